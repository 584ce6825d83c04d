# bug: like Linux powerpc vdso (a label reached by a path that never saved)
# wrong: a second function begins in the middle of an entry; the row there is that of the code before it
# expect: refuted g

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	$1
	.cfi_adjust_cfa_offset	8
	jmp	.Lcommon
	.size	f, . - f
	.globl	g
	.type	g, @function
g:
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-8
	.endif
	push	$2
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	8
	.endif
.Lcommon:
	pop	%rax
	.cfi_adjust_cfa_offset	-8
	add	%edi, %eax
	ret
	.cfi_endproc
	.size	g, . - g

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$3, %edi
	call	f
	call	g
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
