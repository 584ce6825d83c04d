# bug: like OpenSSL's helpers (_x86_64_AES_encrypt), which keep no register: as part of the entry of the function that calls it
# wrong: the row behind the call says that %rbx is unchanged
# expect: refuted lost
# called: helper

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	call	helper
	.ifndef	WRONG
	.cfi_undefined	%rbx
	.endif
lost:
	add	%ebx, %eax
	ret
	.cfi_restore	%rbx
helper:
	lea	1(%rdi), %eax
	mov	%edi, %ebx
	.cfi_undefined	%rbx
	ret
	.cfi_endproc
	.size	f, . - f

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
