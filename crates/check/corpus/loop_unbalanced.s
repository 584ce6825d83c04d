# bug: none reported: what objtool calls "stack state mismatch"
# wrong: each iteration leaves a word on the stack, and a computed lea takes them all back: no table can be right
# expect: refuted next
# code: differs

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	xor	%ecx, %ecx
next:
	push	%rcx
	.cfi_adjust_cfa_offset	8
	.ifndef	WRONG
	pop	%rdx
	.cfi_adjust_cfa_offset	-8
	.endif
	inc	%ecx
	cmp	$3, %ecx
	jne	next
	.ifdef	WRONG
	lea	(%rsp,%rcx,8), %rsp
	.endif
	mov	%ecx, %eax
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	-8
	.endif
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
