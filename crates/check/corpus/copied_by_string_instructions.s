# bug: like string_stores_in_turn: registers saved in turn by stosq, moved by movsq, loaded by lodsq
# wrong: %rbx is looked for in the slot that the second movsq has gone over
# expect: refuted moved

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$32, %rsp
	.cfi_adjust_cfa_offset	32
	mov	%rsp, %rdi
	mov	%rbx, %rax
	stosq
	mov	%r12, %rax
	stosq
	.cfi_rel_offset	%rbx, 0
	.cfi_rel_offset	%r12, 8
	xor	%ebx, %ebx
	xor	%r12d, %r12d
	mov	%rsp, %rsi
	lea	16(%rsp), %rdi
	movsq
	.cfi_rel_offset	%rbx, 16
	lea	8(%rsp), %rsi
	mov	%rsp, %rdi
	movsq
	.ifdef	WRONG
	.cfi_rel_offset	%rbx, 0
	.endif
moved:
	nop
	lea	16(%rsp), %rsi
	lodsq
	mov	%rax, %rbx
	.cfi_restore	%rbx
	mov	(%rsp), %r12
	.cfi_restore	%r12
	add	$32, %rsp
	.cfi_adjust_cfa_offset	-32
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
