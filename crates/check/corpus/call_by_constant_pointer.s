# bug: like OpenSSL's helpers (_x86_64_AES_encrypt), which keep no register: one that a pointer in constant data names
# wrong: the row behind the call says that %rbx is unchanged
# expect: refuted lost

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$8, %rsp
	.cfi_adjust_cfa_offset	8
	call	*pointer(%rip)
	.ifndef	WRONG
	.cfi_undefined	%rbx
	.endif
lost:
	add	%ebx, %eax
	add	$8, %rsp
	.cfi_adjust_cfa_offset	-8
	ret
	.cfi_endproc
	.size	f, . - f

	.type	helper, @function
helper:
	.cfi_startproc
	lea	1(%rdi), %eax
	mov	%edi, %ebx
	.cfi_undefined	%rbx
	ret
	.cfi_endproc
	.size	helper, . - helper

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	push	%rbx
	.cfi_adjust_cfa_offset	8
	.cfi_offset	%rbx, -16
	mov	$3, %edi
	call	f
	xor	%eax, %eax
	pop	%rbx
	.cfi_adjust_cfa_offset	-8
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	main, . - main

	.section	.data.rel.ro, "aw", @progbits
	.balign	8
pointer:
	.quad	helper
