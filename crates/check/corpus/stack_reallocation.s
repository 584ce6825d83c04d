# bug: OCaml #15037: the stack reallocation path behind ret inherits rsp+8+N
# wrong: the path starts at the function's entry, with nothing allocated; it has the row of the frame
# expect: refuted realloc

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
.Lentry:
	lea	-64(%rsp), %r10
	cmp	limit(%rip), %r10
	jb	.Lrealloc
	sub	$24, %rsp
	.cfi_adjust_cfa_offset	24
	mov	%edi, 8(%rsp)
	mov	8(%rsp), %eax
	add	$24, %rsp
	.cfi_adjust_cfa_offset	-24
	ret
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	24
	.endif
.Lrealloc:
realloc:
	mov	$64, %r10d
	call	realloc_stack
	jmp	.Lentry
	.cfi_endproc
	.size	f, . - f

	.globl	realloc_stack
	.type	realloc_stack, @function
realloc_stack:
	.cfi_startproc
	movq	$0, limit(%rip)
	ret
	.cfi_endproc
	.size	realloc_stack, . - realloc_stack

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

	.data
	.balign	8
limit:
	.quad	-1
