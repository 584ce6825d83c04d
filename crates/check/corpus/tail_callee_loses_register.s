# bug: like OpenSSL's helpers (_x86_64_AES_encrypt), which keep no register: one that another jumps to in place of its return
# wrong: the row behind the call says that %rbx is unchanged
# expect: refuted lost
# never runs: zero

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$8, %rsp
	.cfi_adjust_cfa_offset	8
	call	chooser
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

	.type	chooser, @function
chooser:
	.cfi_startproc
	test	%edi, %edi
	jne	helper
zero:
	mov	$1, %eax
	ret
	.cfi_endproc
	.size	chooser, . - chooser

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
