# bug: like OpenSSL PR 10653 (missing directives), of a register's place
# wrong: the push of %rbx is in the CFA, but not the place of %rbx
# expect: refuted clobbered

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_adjust_cfa_offset	8
	.ifndef	WRONG
	.cfi_rel_offset	%rbx, 0
	.endif
	lea	1(%rdi), %rbx
clobbered:
	mov	%rbx, %rax
	pop	%rbx
	.cfi_adjust_cfa_offset	-8
	.cfi_restore	%rbx
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
