# bug: like the Linux arm64 vdso, whose .cfi_startproc stood behind the first byte to be looked up
# wrong: the first instruction of the function is in no entry
# expect: refuted f

	.text
	.globl	f
	.type	f, @function
f:
	.ifndef	WRONG
	.cfi_startproc
	.endif
	endbr64
	.ifdef	WRONG
	.cfi_startproc
	.endif
	mov	%edi, %eax
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
