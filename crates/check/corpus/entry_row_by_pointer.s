# bug: like entry_row, of a function that only pointers lead to
# wrong: all rows count a word that is not there, from the entry on
# expect: refuted f

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	.ifdef	WRONG
	.cfi_def_cfa_offset	16
	.endif
	push	%rbx
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	%rbx, 0
	lea	1(%rdi), %rbx
	mov	%rbx, %rax
	pop	%rbx
	.cfi_adjust_cfa_offset	-8
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	sub	$8, %rsp
	.cfi_adjust_cfa_offset	8
	mov	$3, %edi
	call	*pointer(%rip)
	xor	%eax, %eax
	add	$8, %rsp
	.cfi_adjust_cfa_offset	-8
	ret
	.cfi_endproc
	.size	main, . - main

	.data
	.balign	8
pointer:
	.quad	f
