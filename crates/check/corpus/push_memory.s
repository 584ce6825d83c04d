# bug: like coreclr PR 381 (missing adjusts), with memory operands
# wrong: a push of memory and a pop into memory are taken for moves
# expect: refuted after_push

	.text
	.globl	swap
	.type	swap, @function
swap:
	.cfi_startproc
	push	(%rdi)
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	8
	.endif
after_push:
	mov	(%rsi), %rax
	mov	%rax, (%rdi)
	pop	(%rsi)
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-8
	.endif
	ret
	.cfi_endproc
	.size	swap, . - swap

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	lea	first(%rip), %rdi
	lea	second(%rip), %rsi
	call	swap
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main

	.data
first:
	.quad	1
second:
	.quad	2
