# bug: like OpenSSL PR 2589 (offsets of pushes wrong), in code that addresses its frame through a copy of the old %rsp
# wrong: the offsets from %r11 are taken for offsets from the CFA
# expect: refuted saved

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	mov	%rsp, %r11
	sub	$72, %rsp
	.cfi_def_cfa_offset	80
	mov	%rbx, -8(%r11)
	mov	%rbp, -16(%r11)
	.ifdef	WRONG
	.cfi_offset	%rbx, -8
	.cfi_offset	%rbp, -16
	.else
	.cfi_offset	%rbx, -16
	.cfi_offset	%rbp, -24
	.endif
saved:
	mov	%edi, %ebx
	lea	1(%rbx), %ebp
	mov	%ebp, %eax
	lea	72(%rsp), %r11
	mov	-8(%r11), %rbx
	mov	-16(%r11), %rbp
	.cfi_restore	%rbx
	.cfi_restore	%rbp
	mov	%r11, %rsp
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
