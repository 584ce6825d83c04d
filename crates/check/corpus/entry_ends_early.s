# bug: like OpenSSL PR 10635 (functions without FDE), of a part of a function
# wrong: the entry ends before the slow path of the function
# expect: refuted outside

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	test	%edi, %edi
	je	.Lzero
	mov	%edi, %eax
	ret
	.ifdef	WRONG
	.cfi_endproc
	.endif
.Lzero:
outside:
	mov	$1, %eax
	ret
	.ifndef	WRONG
	.cfi_endproc
	.endif
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$3, %edi
	call	f
	xor	%edi, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
