# bug: like OpenSSL's helpers (_x86_64_AES_encrypt), which keep no register: one that others call, seven calls deep
# wrong: the row behind the outermost call says that %rbx is unchanged
# expect: refuted lost

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$8, %rsp
	.cfi_adjust_cfa_offset	8
	call	level6
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

	.type	level6, @function
level6:
	.cfi_startproc
	call	level5
	.cfi_undefined	%rbx
	inc	%eax
	ret
	.cfi_endproc
	.size	level6, . - level6

	.type	level5, @function
level5:
	.cfi_startproc
	call	level4
	.cfi_undefined	%rbx
	inc	%eax
	ret
	.cfi_endproc
	.size	level5, . - level5

	.type	level4, @function
level4:
	.cfi_startproc
	call	level3
	.cfi_undefined	%rbx
	inc	%eax
	ret
	.cfi_endproc
	.size	level4, . - level4

	.type	level3, @function
level3:
	.cfi_startproc
	call	level2
	.cfi_undefined	%rbx
	inc	%eax
	ret
	.cfi_endproc
	.size	level3, . - level3

	.type	level2, @function
level2:
	.cfi_startproc
	call	level1
	.cfi_undefined	%rbx
	inc	%eax
	ret
	.cfi_endproc
	.size	level2, . - level2

	.type	level1, @function
level1:
	.cfi_startproc
	call	helper
	.cfi_undefined	%rbx
	inc	%eax
	ret
	.cfi_endproc
	.size	level1, . - level1

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
