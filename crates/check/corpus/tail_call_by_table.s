# bug: like OpenSSL's helpers (_x86_64_AES_encrypt), which keep no register: those of a table, to which another function jumps
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
	and	$1, %edi
	lea	table(%rip), %rax
	jmp	*(%rax,%rdi,8)
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

	.type	other, @function
other:
	.cfi_startproc
	lea	2(%rdi), %eax
	mov	%eax, %ebx
	.cfi_undefined	%rbx
	ret
	.cfi_endproc
	.size	other, . - other

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	push	%rbx
	.cfi_adjust_cfa_offset	8
	.cfi_offset	%rbx, -16
	xor	%edi, %edi
	call	f
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
table:
	.quad	other, helper
