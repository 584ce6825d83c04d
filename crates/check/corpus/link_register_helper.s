# bug: none reported: helpers of an ABI with a link register, by which code for other machines is ported
# wrong: nothing says that the return address is in a register, and that nothing is pushed
# expect: refuted helper
# linked: helper r11

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_adjust_cfa_offset	8
	.cfi_offset	%rbx, -16
	mov	%edi, %ebx
	lea	.Lback(%rip), %r11
	jmp	helper
	nop
.Lback:
	add	%ebx, %eax
	pop	%rbx
	.cfi_adjust_cfa_offset	-8
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	helper
	.type	helper, @function
helper:
	.cfi_startproc
	.ifndef	WRONG
	.cfi_def_cfa	%rsp, 0
	.cfi_register	%rip, %r11
	.endif
	sub	$16, %rsp
	.cfi_adjust_cfa_offset	16
	mov	%r11, 8(%rsp)
	.ifndef	WRONG
	.cfi_offset	%rip, -8
	.endif
	call	leaf
	mov	8(%rsp), %r11
	.ifndef	WRONG
	.cfi_register	%rip, %r11
	.endif
	add	$16, %rsp
	.cfi_adjust_cfa_offset	-16
	jmp	*%r11
	.cfi_endproc
	.size	helper, . - helper

	.type	leaf, @function
leaf:
	.cfi_startproc
	lea	1(%rdi), %eax
	ret
	.cfi_endproc
	.size	leaf, . - leaf

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
