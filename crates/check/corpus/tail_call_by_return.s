# bug: like OpenSSL's helpers (_x86_64_AES_encrypt), which keep no register: one to which another function returns in place of its caller
# wrong: the row behind the call says that %rbx is unchanged
# expect: refuted lost

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$8, %rsp
	.cfi_adjust_cfa_offset	8
	call	dispatch
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

	.type	dispatch, @function
dispatch:
	.cfi_startproc
	lea	helper(%rip), %rax
	push	%rax
	.cfi_adjust_cfa_offset	8
	ret
	.cfi_endproc
	.size	dispatch, . - dispatch

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
