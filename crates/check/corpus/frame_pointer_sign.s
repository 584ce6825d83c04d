# bug: rust stacker/psm PR 71: `.cfi_def_cfa x2, -16`
# wrong: the offset of the CFA from the frame pointer has the wrong sign, while code runs on another stack
# expect: refuted framed

	.text
	.globl	on_stack
	.type	on_stack, @function
on_stack:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%rsp, %rbp
	.ifdef	WRONG
	.cfi_def_cfa	%rbp, -16
	.else
	.cfi_def_cfa	%rbp, 16
	.endif
framed:
	mov	%rsi, %rsp
	call	*%rdi
	mov	%rbp, %rsp
	pop	%rbp
	.cfi_def_cfa	%rsp, 8
	ret
	.cfi_endproc
	.size	on_stack, . - on_stack

	.globl	callee
	.type	callee, @function
callee:
	.cfi_startproc
	mov	$1, %eax
	ret
	.cfi_endproc
	.size	callee, . - callee

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	lea	callee(%rip), %rdi
	lea	stack_end(%rip), %rsi
	call	on_stack
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main

	.bss
	.balign	16
	.skip	4096
stack_end:
