# bug: like LLVM BOLT 133501, 131790 (CFI after code was moved)
# wrong: the part in another section knows the CFA, but not where %rbx is
# expect: refuted f.cold

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	mov	%edi, %ebx
	cmp	$100, %edi
	ja	f.cold
.Lback:
	mov	%ebx, %eax
	pop	%rbx
	.cfi_def_cfa_offset	8
	ret
	.cfi_endproc
	.size	f, . - f

	.section	.text.unlikely, "ax", @progbits
	.type	f.cold, @function
f.cold:
	.cfi_startproc
	.cfi_def_cfa_offset	16
	.ifndef	WRONG
	.cfi_offset	%rbx, -16
	.endif
	sub	$100, %ebx
	jmp	.Lback
	.cfi_endproc
	.size	f.cold, . - f.cold

	.text
	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$3, %edi
	call	f
	mov	$300, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
