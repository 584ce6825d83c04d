# bug: like dmd PR 5521 (callee-saved offsets always wrong)
# wrong: the places of %r14 and %r15 are swapped
# expect: refuted saved

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$24, %rsp
	.cfi_adjust_cfa_offset	24
	mov	%r14, (%rsp)
	mov	%r15, 8(%rsp)
	.ifdef	WRONG
	.cfi_rel_offset	%r15, 0
	.cfi_rel_offset	%r14, 8
	.else
	.cfi_rel_offset	%r14, 0
	.cfi_rel_offset	%r15, 8
	.endif
saved:
	mov	%edi, %r14d
	lea	1(%r14), %r15d
	mov	%r15d, %eax
	mov	(%rsp), %r14
	mov	8(%rsp), %r15
	.cfi_restore	%r14
	.cfi_restore	%r15
	add	$24, %rsp
	.cfi_adjust_cfa_offset	-24
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
