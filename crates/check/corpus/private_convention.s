# bug: OpenSSL 3.0's 61 helpers that clobber callee-saved registers on purpose
# wrong: the helper returns a value in %rbx, and the table calls %rbx unchanged
# expect: refuted clobbered

	.text
	.type	helper, @function
helper:
	.cfi_startproc
	lea	1(%rdi), %rbx
	.ifndef	WRONG
	.cfi_undefined	%rbx
	.endif
clobbered:
	lea	2(%rdi), %rax
	ret
	.cfi_endproc
	.size	helper, . - helper

	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	call	helper
	add	%rbx, %rax
	pop	%rbx
	.cfi_def_cfa_offset	8
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
