# bug: like glibc lowlevellock.h (a slow path in another section), where jumps go by registers
# wrong: the row of the part counts one word too many
# expect: refuted part

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_adjust_cfa_offset	8
	.cfi_offset	%rbx, -16
	mov	%edi, %ebx
	lea	part(%rip), %rax
	jmp	*%rax
.Lback:
	mov	%ebx, %eax
	pop	%rbx
	.cfi_adjust_cfa_offset	-8
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	f, . - f

	.section	.text.unlikely, "ax", @progbits
	.type	part, @function
part:
	.cfi_startproc
	.ifdef	WRONG
	.cfi_def_cfa_offset	24
	.cfi_offset	%rbx, -24
	.else
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	.endif
	add	$1, %ebx
	lea	.Lback(%rip), %rcx
	jmp	*%rcx
	.cfi_endproc
	.size	part, . - part

	.text
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
