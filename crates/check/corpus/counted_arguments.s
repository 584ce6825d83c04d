# bug: none reported: a call with as many words on the stack as there are; a counter takes them off again
# wrong: the row behind the instruction that takes them off stands before it
# expect: unproven-ok added

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register	%rbp
	push	%rbx
	.cfi_offset	%rbx, -24
	mov	%edi, %ecx
	lea	1(%rdi), %ebx
.Lword:
	push	%rcx
	dec	%rcx
	jns	.Lword
	call	g
	.ifdef	WRONG
	.cfi_def_cfa	%rsp, 24
	.endif
added:
	lea	(%rsp,%rbx,8), %rsp
	.ifndef	WRONG
	.cfi_def_cfa	%rsp, 24
	.endif
	pop	%rbx
	.cfi_def_cfa_offset	16
	.cfi_restore	%rbx
	pop	%rbp
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbp
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	g
	.type	g, @function
g:
	.cfi_startproc
	mov	$1, %eax
	ret
	.cfi_endproc
	.size	g, . - g

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	sub	$8, %rsp
	.cfi_adjust_cfa_offset	8
	mov	$3, %edi
	call	f
	xor	%eax, %eax
	add	$8, %rsp
	.cfi_adjust_cfa_offset	-8
	ret
	.cfi_endproc
	.size	main, . - main
