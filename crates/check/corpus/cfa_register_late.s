# bug: like sunfishcode/origin PR 157 and libgcc's riscv save-restore: a directive that stands late
# wrong: .cfi_def_cfa_register stands two instructions late, behind the allocation
# expect: refuted allocated

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%rsp, %rbp
	.ifndef	WRONG
	.cfi_def_cfa_register	%rbp
	.endif
	sub	$16, %rsp
allocated:
	mov	%edi, -4(%rbp)
	.ifdef	WRONG
	.cfi_def_cfa_register	%rbp
	.endif
	mov	-4(%rbp), %eax
	leave
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
