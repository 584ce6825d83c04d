# bug: none reported: epilogues that load %rbp before they move %rsp
# wrong: %rbp is the caller's again, the CFA is still based on it
# expect: refuted reloaded

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register	%rbp
	sub	$48, %rsp
	mov	%rdi, (%rsp)
	mov	(%rsp), %rax
	mov	48(%rsp), %rbp
	.ifndef	WRONG
	.cfi_def_cfa	%rsp, 64
	.cfi_restore	%rbp
	.endif
reloaded:
	lea	56(%rsp), %rsp
	.ifdef	WRONG
	.cfi_restore	%rbp
	.endif
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
