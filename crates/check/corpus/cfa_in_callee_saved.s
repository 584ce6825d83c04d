# bug: like ClickHouse PR 17046 (CFA in rax), with a register that the epilogue loads
# wrong: the CFA is held in %rbx, which is loaded with the caller's value before the stack pointer is
# expect: refuted loaded

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	mov	%rsp, %rbx
	.cfi_def_cfa_register	%rbx
	shl	$3, %rdi
	sub	%rdi, %rsp
	movq	$1, (%rsp)
	mov	(%rsp), %rax
	lea	8(%rbx), %rcx
	.ifndef	WRONG
	.cfi_def_cfa	%rcx, 8
	.endif
	mov	(%rbx), %rbx
loaded:
	.cfi_restore	%rbx
	mov	%rcx, %rsp
	.cfi_def_cfa	%rsp, 8
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$3, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
