# bug: none reported: the same with a slot of the stack, which gets the sum
# wrong: the table names the slot, where the sum is
# expect: refuted exchanged

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	%rbx, 0
	mov	$5, %ebx
	lock xadd %rbx, (%rsp)
	.ifndef	WRONG
	.cfi_restore	%rbx
	.endif
exchanged:
	mov	(%rsp), %rax
	pop	%rcx
	.cfi_adjust_cfa_offset	-8
	.cfi_restore	%rbx
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
