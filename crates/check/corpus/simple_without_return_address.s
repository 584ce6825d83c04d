# bug: none reported: .cfi_startproc simple, which has no rules but those that are written
# wrong: nothing says where the return address is
# expect: refuted f

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc	simple
	.cfi_def_cfa	%rsp, 8
	.ifndef	WRONG
	.cfi_offset	%rip, -8
	.endif
	lea	1(%rdi), %eax
	push	%rax
	.cfi_def_cfa_offset	16
	pop	%rcx
	.cfi_def_cfa_offset	8
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	sub	$8, %rsp
	.cfi_adjust_cfa_offset	8
	mov	$3, %edi
	call	f
	xor	%eax, %eax
	add	$8, %rsp
	.cfi_adjust_cfa_offset	-8
	ret
	.cfi_endproc
	.size	main, . - main
