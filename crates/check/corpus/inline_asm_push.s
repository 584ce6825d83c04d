# bug: like LLVM/clang #58493 (CFI in inline assembly)
# wrong: compilers do not describe what inline assembly does to the stack
# expect: refuted pushed

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	mov	%edi, %ebx
#APP
	push	%rdi
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	8
	.endif
pushed:
	call	g
	pop	%rdi
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-8
	.endif
#NO_APP
	add	%ebx, %eax
	pop	%rbx
	.cfi_def_cfa_offset	8
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	g
	.type	g, @function
g:
	.cfi_startproc
	lea	1(%rdi), %eax
	ret
	.cfi_endproc
	.size	g, . - g

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
