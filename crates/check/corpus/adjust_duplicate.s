# bug: like OCaml #7120 (an adjust too many)
# wrong: one subtraction is described twice, by hand and by a macro
# expect: refuted body

	.macro	allocate bytes
	sub	$\bytes, %rsp
	.cfi_adjust_cfa_offset	\bytes
	.endm

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	allocate	24
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	24
	.endif
body:
	mov	%rdi, 8(%rsp)
	mov	8(%rsp), %rax
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
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
