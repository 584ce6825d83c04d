# bug: none reported: what objtool calls "stack state mismatch"
# wrong: the part in another section pushes an argument and jumps back before it is popped: no table can be right
# expect: refuted back
# code: differs

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%rsp, %rbp
	test	%edi, %edi
	js	f.cold
.Lback:
back:
	mov	%edi, %eax
	mov	%rbp, %rsp
	pop	%rbp
	.cfi_def_cfa_offset	8
	ret
	.cfi_endproc
	.size	f, . - f

	.section	.text.unlikely, "ax", @progbits
	.type	f.cold, @function
f.cold:
	.cfi_startproc
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	push	$5
	.cfi_def_cfa_offset	24
	call	g
	.ifndef	WRONG
	pop	%rdx
	.cfi_def_cfa_offset	16
	.endif
	jmp	.Lback
	.cfi_endproc
	.size	f.cold, . - f.cold

	.text
	.globl	g
	.type	g, @function
g:
	.cfi_startproc
	mov	8(%rsp), %edi
	ret
	.cfi_endproc
	.size	g, . - g

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
