# bug: like dmd PR 5521 (callee-saved offsets always wrong), in Intel syntax with frame pointer
# wrong: rbx and r12 are pushed in the other order than the table says
# expect: refuted pushed

	.intel_syntax	noprefix
	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	rbp, -16
	mov	rbp, rsp
	.cfi_def_cfa_register	rbp
	push	r12
	push	rbx
	.ifdef	WRONG
	.cfi_offset	rbx, -24
	.cfi_offset	r12, -32
	.else
	.cfi_offset	r12, -24
	.cfi_offset	rbx, -32
	.endif
pushed:
	mov	r12d, edi
	lea	ebx, [r12 + 1]
	mov	eax, ebx
	pop	rbx
	pop	r12
	.cfi_restore	rbx
	.cfi_restore	r12
	pop	rbp
	.cfi_def_cfa	rsp, 8
	ret
	.cfi_endproc
	.size	f, . - f

	.att_syntax
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
