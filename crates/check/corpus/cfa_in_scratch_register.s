# bug: like ClickHouse PR 17046 (CFA in rax), across a call
# wrong: the CFA stays based on %rax behind a call, which need not keep %rax
# expect: refuted after_call

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	lea	8(%rsp), %rax
	.cfi_def_cfa	%rax, 0
	sub	$40, %rsp
	mov	%rdi, 8(%rsp)
	.ifndef	WRONG
	.cfi_def_cfa	%rsp, 48
	.endif
	call	g
after_call:
	mov	8(%rsp), %rdi
	.cfi_def_cfa	%rsp, 48
	add	%rdi, %rax
	add	$40, %rsp
	.cfi_def_cfa_offset	8
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	g
	.type	g, @function
g:
	.cfi_startproc
	mov	$1, %eax
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
