# bug: the save and restore helpers of libgcc for RISC-V ("CFI info is not correct in next 2 instruction"), and outlined prologues
# wrong: what the helper leaves on the stack is described one instruction too late
# expect: refuted behind

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	call	save
behind:
	.ifndef	WRONG
	.cfi_def_cfa_offset	24
	.endif
	.cfi_offset	%rbx, -16
	.cfi_offset	%r12, -24
	mov	%rdi, %rbx
	.ifdef	WRONG
	.cfi_def_cfa_offset	24
	.endif
	lea	(%rdi,%rdi), %r12
	lea	(%rbx,%r12), %rax
	pop	%r12
	.cfi_def_cfa_offset	16
	.cfi_restore	%r12
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	f, . - f

	.type	save, @function
save:
	.cfi_startproc
	pop	%r11
	.cfi_def_cfa_offset	0
	.cfi_register	%rip, %r11
	push	%rbx
	.cfi_def_cfa_offset	8
	.cfi_offset	%rbx, -8
	push	%r12
	.cfi_def_cfa_offset	16
	.cfi_offset	%r12, -16
	jmp	*%r11
	.cfi_endproc
	.size	save, . - save

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	mov	$3, %edi
	call	f
	xor	%eax, %eax
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	main, . - main
