# bug: like Linux powerpc vdso (a label reached by a path that never saved); objtool's "stack state mismatch"
# wrong: one of two ways to the label pushes, the other does not: no table can be right
# expect: refuted joined
# code: differs

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	mov	%rsp, %rbx
	test	%edi, %edi
	je	.Lzero
	push	%rdi
	.cfi_def_cfa_offset	24
	jmp	.Ljoined
.Lzero:
	.ifndef	WRONG
	.cfi_def_cfa_offset	16
	sub	$8, %rsp
	.cfi_def_cfa_offset	24
	.endif
.Ljoined:
joined:
	mov	%edi, %eax
	mov	%rbx, %rsp
	.cfi_def_cfa_offset	16
	pop	%rbx
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
	xor	%edi, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
