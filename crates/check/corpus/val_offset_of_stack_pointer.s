# bug: none reported: val_offset rules
# wrong: the caller's %rsp is said to be CFA+8, as after the return
# expect: refuted ruled

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	.ifdef	WRONG
	.cfi_val_offset	%rsp, 8
	.else
	.cfi_val_offset	%rsp, 0
	.endif
ruled:
	mov	%edi, %ebx
	mov	%ebx, %eax
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	.cfi_restore	%rsp
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
