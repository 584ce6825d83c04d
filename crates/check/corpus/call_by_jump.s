# bug: like Implib.so #21 (missing adjusts): a call made of a push and a jump, as where the callee is far away
# wrong: behind the call the pushed address is still counted
# expect: refuted back

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_adjust_cfa_offset	8
	.cfi_offset	%rbx, -16
	mov	%edi, %ebx
	lea	g(%rip), %rdx
	lea	back(%rip), %rax
	push	%rax
	.cfi_adjust_cfa_offset	8
	jmp	*%rdx
	# Return addresses are looked up at the byte before.
	.cfi_adjust_cfa_offset	-8
	nop
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	8
	.endif
back:
	add	%ebx, %eax
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	-8
	.endif
	pop	%rbx
	.cfi_adjust_cfa_offset	-8
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	f, . - f

	.type	g, @function
g:
	.cfi_startproc
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	g, . - g

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$3, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
