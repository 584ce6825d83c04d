# bug: like glibc's _dl_runtime_resolve: code that is jumped to with a word on the stack
# wrong: the word that the stub has pushed is not counted
# expect: refuted resolver

	.text
	.type	stub, @function
stub:
	.cfi_startproc
	push	$7
	.cfi_adjust_cfa_offset	8
	jmp	*pointer(%rip)
	.cfi_endproc
	.size	stub, . - stub

	.type	resolver, @function
resolver:
	.cfi_startproc
	.ifndef	WRONG
	.cfi_def_cfa_offset	16
	.endif
	mov	(%rsp), %eax
	add	$8, %rsp
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-8
	.endif
resolved:
	jmp	*target(%rip)
	.cfi_endproc
	.size	resolver, . - resolver

	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	mov	$1, %eax
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	sub	$8, %rsp
	.cfi_adjust_cfa_offset	8
	call	stub
	xor	%eax, %eax
	add	$8, %rsp
	.cfi_adjust_cfa_offset	-8
	ret
	.cfi_endproc
	.size	main, . - main

	.data
	.balign	8
pointer:
	.quad	resolver
target:
	.quad	f
