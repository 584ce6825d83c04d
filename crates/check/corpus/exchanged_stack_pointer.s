# bug: like libdill #64, libfringe PR 38 (stack switching code)
# wrong: the function runs on another stack, its own stack pointer is in %rbx; the CFA stays based on %rsp
# expect: refuted switched

	.text
	.globl	on_stack
	.type	on_stack, @function
on_stack:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	mov	%rsi, %rbx
	xchg	%rsp, %rbx
	.ifndef	WRONG
	.cfi_def_cfa_register	%rbx
	.endif
switched:
	call	*%rdi
	mov	%rbx, %rsp
	.cfi_def_cfa_register	%rsp
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	on_stack, . - on_stack

	.globl	work
	.type	work, @function
work:
	.cfi_startproc
	mov	$1, %eax
	ret
	.cfi_endproc
	.size	work, . - work

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	lea	work(%rip), %rdi
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
	.skip	64
