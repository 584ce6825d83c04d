# bug: like Linux powerpc vdso (a label reached by a path that never saved)
# wrong: the rule of the path that saved %rbx is kept where both meet
# expect: refuted joined

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$24, %rsp
	.cfi_def_cfa_offset	32
	movq	$0, 8(%rsp)
	test	%edi, %edi
	je	.Ljoined
	mov	%rbx, 8(%rsp)
	.cfi_offset	%rbx, -24
	mov	%edi, %ebx
	lea	1(%rbx), %edi
	mov	8(%rsp), %rbx
	.ifndef	WRONG
	.cfi_restore	%rbx
	.endif
.Ljoined:
joined:
	mov	%edi, %eax
	.ifdef	WRONG
	.cfi_restore	%rbx
	.endif
	add	$24, %rsp
	.cfi_def_cfa_offset	8
	ret
	.cfi_endproc
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
