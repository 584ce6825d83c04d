# bug: like rust stacker/psm PR 71 (code that calls on another stack)
# wrong: the old stack pointer is on top of the new stack, the expression loads the word above it
# expect: refuted switched

	.text
	.globl	on_stack
	.type	on_stack, @function
on_stack:
	.cfi_startproc
	mov	%rsp, %rax
	.cfi_def_cfa_register	%rax
	mov	%rsi, %rsp
	push	%rax
	.ifdef	WRONG
	.cfi_escape	0xf,0x5,0x77,0x8,0x6,0x23,0x8	# CFA = [%rsp+8]+8
	.else
	.cfi_escape	0xf,0x5,0x77,0x0,0x6,0x23,0x8	# CFA = [%rsp]+8
	.endif
switched:
	call	*%rdi
	pop	%rsp
	.cfi_def_cfa	%rsp, 8
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
