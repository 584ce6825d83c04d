# bug: like rust compiler-builtins #325 (stack probes without CFI), inline and in Intel syntax
# wrong: an unrolled probe allocates a page at a time; only the sum at the end is described
# expect: refuted first_page

	.intel_syntax	noprefix
	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	rsp, 4096
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	4096
	.endif
first_page:
	mov	qword ptr [rsp], 0
	sub	rsp, 4096
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	4096
	.endif
	mov	qword ptr [rsp], 0
	sub	rsp, 1000
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	9192
	.else
	.cfi_adjust_cfa_offset	1000
	.endif
	mov	dword ptr [rsp + 16], edi
	mov	eax, dword ptr [rsp + 16]
	add	rsp, 9192
	.cfi_adjust_cfa_offset	-9192
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
