# bug: none reported: a loop whose head is reached with different heights, which synthesis in OOPSLA'19 declares impossible
# wrong: each iteration pushes; the CFA is counted from %rsp although %rbp could say it
# expect: refuted next

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%rsp, %rbp
	.ifndef	WRONG
	.cfi_def_cfa_register	%rbp
	.endif
next:
	push	%rdi
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	8
	.endif
	dec	%edi
	jnz	next
	pop	%rax
	leave
	.cfi_def_cfa	%rsp, 8
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
