# bug: like OpenSSL aesni_set_encrypt_key: labels inside a function that are called and return, as functions of their own
# wrong: what such a part pushes is not described
# expect: refuted pushed
# called: twice

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$8, %rsp
	.cfi_adjust_cfa_offset	8
	mov	%edi, %eax
	call	twice
	call	twice
	add	$8, %rsp
	.cfi_adjust_cfa_offset	-8
	ret
twice:
	push	%rbx
pushed:
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	%rbx, 0
	.endif
	mov	%eax, %ebx
	add	%ebx, %eax
	pop	%rbx
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-8
	.cfi_restore	%rbx
	.endif
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$7, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
