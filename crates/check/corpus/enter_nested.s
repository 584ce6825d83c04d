# bug: none reported: enter of nesting level 1
# wrong: enter pushes a second word at level 1; the CFA is counted from %rsp without it
# expect: refuted entered

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	enter	$16, $1
	.ifdef	WRONG
	.cfi_def_cfa	%rsp, 32
	.else
	.cfi_def_cfa	%rsp, 40
	.endif
	.cfi_offset	%rbp, -16
entered:
	mov	%edi, (%rsp)
	mov	(%rsp), %eax
	leave
	.cfi_def_cfa	%rsp, 8
	.cfi_restore	%rbp
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
