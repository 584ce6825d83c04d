# bug: none reported: the mark of the outermost frame, copied with the begin of a function
# wrong: the function is said to have no caller, and returns to it
# expect: refuted f

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	.ifdef	WRONG
	.cfi_undefined	%rip
	.endif
	lea	1(%rdi), %eax
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	sub	$8, %rsp
	.cfi_adjust_cfa_offset	8
	mov	$3, %edi
	call	f
	xor	%eax, %eax
	add	$8, %rsp
	.cfi_adjust_cfa_offset	-8
	ret
	.cfi_endproc
	.size	main, . - main
