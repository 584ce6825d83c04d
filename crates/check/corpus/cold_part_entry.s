# bug: like glibc lowlevellock.h (a slow path in another section), as GCC's .cold parts
# wrong: the part in another section starts with the state of a function's entry
# expect: refuted f.cold

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	sub	$16, %rsp
	.cfi_def_cfa_offset	32
	mov	%edi, %ebx
	test	%edi, %edi
	js	f.cold
.Lback:
	mov	%ebx, %eax
	add	$16, %rsp
	.cfi_def_cfa_offset	16
	pop	%rbx
	.cfi_def_cfa_offset	8
	ret
	.cfi_endproc
	.size	f, . - f

	.section	.text.unlikely, "ax", @progbits
	.type	f.cold, @function
f.cold:
	.cfi_startproc
	.ifndef	WRONG
	.cfi_def_cfa_offset	32
	.cfi_offset	%rbx, -16
	.endif
	neg	%ebx
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
	mov	$-3, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
