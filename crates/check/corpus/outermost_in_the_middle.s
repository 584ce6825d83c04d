# bug: none reported: .cfi_undefined %rip behind a branch for a new thread, in code that both paths run
# wrong: two rows in the middle say that nobody called
# expect: refuted denied

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	mov	%edi, %eax
	.ifdef	WRONG
	.cfi_undefined	%rip
	.endif
denied:
	inc	%eax
	inc	%eax
	.cfi_offset	%rip, -8
	inc	%eax
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	push	%rbx
	.cfi_adjust_cfa_offset	8
	.cfi_offset	%rbx, -16
	mov	$3, %edi
	call	f
	xor	%eax, %eax
	pop	%rbx
	.cfi_adjust_cfa_offset	-8
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	main, . - main
