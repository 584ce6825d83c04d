# bug: like OpenSSL 3.0's helpers with a private convention
# wrong: the helper's caller has its stack pointer in %rbp, which the helper rebuilds; the row there says that %rbp is saved
# expect: refuted rebuilt
# right: unproven-ok

	.text
	.globl	helper
	.type	helper, @function
helper:
	.cfi_startproc
	.cfi_val_offset	%rbp, 0
	lea	1(%rdi), %rbp
	mov	%rbp, %rax
	lea	8(%rsp), %rbp
rebuilt:
	.ifdef	WRONG
	.cfi_offset	%rbp, -16
	.else
	.cfi_restore	%rbp
	.endif
	ret
	.cfi_endproc
	.size	helper, . - helper

	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register	%rbp
	call	helper
	pop	%rbp
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
