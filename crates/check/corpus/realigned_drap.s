# bug: none reported: GCC's dynamically realigned frames (DRAP), prologue
# wrong: the CFA's expression loads the saved %r10 from the slot beside it
# expect: refuted realigned

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	lea	8(%rsp), %r10
	.cfi_def_cfa	%r10, 0
	and	$-32, %rsp
	push	-8(%r10)
	push	%rbp
	mov	%rsp, %rbp
	.cfi_escape	0x10,0x6,0x2,0x76,0x0	# %rbp at [%rbp]
	push	%r10
	.ifdef	WRONG
	.cfi_escape	0xf,0x3,0x76,0x70,0x6	# CFA = [%rbp-16]
	.else
	.cfi_escape	0xf,0x3,0x76,0x78,0x6	# CFA = [%rbp-8]
	.endif
realigned:
	sub	$40, %rsp
	movaps	%xmm0, -48(%rbp)
	mov	%edi, -20(%rbp)
	mov	-20(%rbp), %eax
	add	$40, %rsp
	pop	%r10
	.cfi_def_cfa	%r10, 0
	pop	%rbp
	.cfi_restore	%rbp
	lea	-8(%r10), %rsp
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
