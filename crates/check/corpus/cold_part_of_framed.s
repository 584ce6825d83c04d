# bug: like glibc lowlevellock.h (a slow path in another section), as GCC's .cold parts with frame pointer
# wrong: the CFA of the part in another section is counted from %rsp, by the pushes, without the local variables
# expect: refuted f.cold

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
	push	%r12
	.cfi_offset	%r12, -24
	sub	$24, %rsp
	mov	%edi, %r12d
	cmp	$100, %edi
	ja	f.cold
.Lback:
	mov	%r12d, %eax
	add	$24, %rsp
	pop	%r12
	pop	%rbp
	.cfi_def_cfa	%rsp, 8
	ret
	.cfi_endproc
	.size	f, . - f

	.section	.text.unlikely, "ax", @progbits
	.type	f.cold, @function
f.cold:
	.cfi_startproc
	.ifdef	WRONG
	.cfi_def_cfa	%rsp, 24
	.else
	.cfi_def_cfa	%rbp, 16
	.endif
	.cfi_offset	%rbp, -16
	.cfi_offset	%r12, -24
	mov	$100, %r12d
	jmp	.Lback
	.cfi_endproc
	.size	f.cold, . - f.cold

	.text
	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$3, %edi
	call	f
	mov	$300, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
