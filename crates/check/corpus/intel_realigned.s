# bug: none reported: a frame aligned by hand, in Intel syntax
# wrong: the stack pointer is rounded down after the frame pointer is set, but the table goes on with rsp
# expect: refuted aligned

	.intel_syntax	noprefix
	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	r13
	.cfi_def_cfa_offset	16
	.cfi_offset	r13, -16
	mov	r13, rsp
	.ifndef	WRONG
	.cfi_def_cfa_register	r13
	.endif
	and	rsp, -128
aligned:
	mov	dword ptr [rsp - 64], edi
	mov	eax, dword ptr [rsp - 64]
	mov	rsp, r13
	.cfi_def_cfa	rsp, 16
	pop	r13
	.cfi_def_cfa	rsp, 8
	.cfi_restore	r13
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
