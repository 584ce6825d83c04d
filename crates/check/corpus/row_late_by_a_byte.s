# bug: like libgcc's riscv save-restore ("not correct in next 2 instruction"): advances counted by hand
# wrong: the row of a push starts one byte into the instruction behind it
# expect: refuted late

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	%rbx, 0
	.endif
late:
	.byte	0x89		# mov %edi, %ebx
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	%rbx, 0
	.endif
	.byte	0xfb
	mov	%ebx, %eax
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
	mov	$3, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
