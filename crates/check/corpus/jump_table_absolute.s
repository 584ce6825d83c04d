# bug: none reported: blocks laid out behind others, in a switch with absolute addresses
# wrong: a case that passes an argument on the stack ends in a jump; the case laid out behind it counts that argument
# expect: refuted second

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	cmp	$1, %edi
	ja	.Lothers
	mov	%edi, %edi
	jmp	*.Ltable(,%rdi,8)
.Lfirst:
	push	$7
	.cfi_adjust_cfa_offset	8
	call	g
	lea	8(%rsp), %rsp
	.cfi_adjust_cfa_offset	-8
	jmp	.Lout
.Lsecond:
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	8
	.endif
second:
	mov	$2, %eax
	jmp	.Lout
.Lothers:
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	-8
	.endif
	mov	$3, %eax
.Lout:
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	g
	.type	g, @function
g:
	.cfi_startproc
	mov	8(%rsp), %eax
	ret
	.cfi_endproc
	.size	g, . - g

	.section	.rodata
	.balign	8
.Ltable:
	.quad	.Lfirst, .Lsecond

	.text
	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	xor	%edi, %edi
	call	f
	mov	$1, %edi
	call	f
	mov	$2, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
