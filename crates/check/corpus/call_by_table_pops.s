# bug: like coreclr PR 21955 (arguments that are taken back), in callees that pop them and that a table names
# wrong: the row behind the call still counts the argument
# expect: refuted popped

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rdi
	.cfi_adjust_cfa_offset	8
	and	$1, %edi
	lea	table(%rip), %rax
	call	*(%rax,%rdi,8)
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-8
	.endif
popped:
	nop
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	-8
	.endif
	ret
	.cfi_endproc
	.size	f, . - f

	.type	even, @function
even:
	.cfi_startproc
	mov	8(%rsp), %rax
	ret	$8
	.cfi_endproc
	.size	even, . - even

	.type	odd, @function
odd:
	.cfi_startproc
	mov	8(%rsp), %rax
	neg	%rax
	ret	$8
	.cfi_endproc
	.size	odd, . - odd

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	xor	%edi, %edi
	call	f
	mov	$3, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main

	.section	.data.rel.ro, "aw", @progbits
	.balign	8
table:
	.quad	even, odd
