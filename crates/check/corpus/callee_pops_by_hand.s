# bug: none reported: callees that pop arguments; the return address is moved up the stack
# wrong: the arguments are gone and the return address is in their place; the row before is kept
# expect: refuted moved

	.text
	.globl	callee
	.type	callee, @function
callee:
	.cfi_startproc
	mov	16(%rsp), %rax
	mov	(%rsp), %rcx
	mov	%rcx, 16(%rsp)
	add	$16, %rsp
	.ifndef	WRONG
	.cfi_def_cfa_offset	-8
	.cfi_offset	%rip, 8
	.endif
moved:
	ret
	.cfi_endproc
	.size	callee, . - callee

	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rdi
	.cfi_adjust_cfa_offset	8
	push	$4
	.cfi_adjust_cfa_offset	8
	call	callee
	.cfi_adjust_cfa_offset	-16
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
