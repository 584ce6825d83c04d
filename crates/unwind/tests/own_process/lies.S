// Functions whose unwind tables lie: void f(body *call, void *data, uint64_t value).

	.text

// The CFA is 16 above a value, by rbp, and the caller's rbp and the return address are below it.
	.globl	by_frame_pointer
	.type	by_frame_pointer, @function
by_frame_pointer:
	.cfi_startproc
	push	%rbp
	mov	%rdx, %rbp
	.cfi_def_cfa %rbp, 16
	.cfi_offset %rbp, -16
	mov	%rdi, %rax
	mov	%rsi, %rdi
	call	*%rax
	.globl	behind_call
behind_call:
	pop	%rbp
	ret
	.cfi_endproc
	.size	by_frame_pointer, . - by_frame_pointer

// The CFA is a value, by an expression: [rsp].
	.globl	by_expression
	.type	by_expression, @function
by_expression:
	.cfi_startproc
	push	%rdx
	.cfi_escape 0x0f, 3, 0x77, 0, 0x06
	mov	%rdi, %rax
	mov	%rsi, %rdi
	call	*%rax
	pop	%rdx
	ret
	.cfi_endproc
	.size	by_expression, . - by_expression

	.section .note.GNU-stack, "", @progbits
