# bug: like rust stacker/psm PR 71 (a wrong sign), in an expression
# wrong: the caller's %rbx is %r8 - 8; the expression adds
# expect: refuted clobbered

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	lea	8(%rbx), %r8
	mov	%edi, %ebx
	.ifdef	WRONG
	.cfi_escape	0x16,0x3,0x2,0x78,0x8		# %rbx = %r8 + 8
	.else
	.cfi_escape	0x16,0x3,0x2,0x78,0x78	# %rbx = %r8 - 8
	.endif
clobbered:
	lea	1(%rbx), %eax
	lea	-8(%r8), %rbx
	.cfi_restore	%rbx
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
