# bug: none reported: entry code of kernels
# wrong: an error code lies below the frame that iretq takes; the table does not count it
# expect: refuted interrupt_return

	.text
	.globl	interrupt_return
	.type	interrupt_return, @function
interrupt_return:
	.cfi_startproc
	.cfi_signal_frame
	.ifdef	WRONG
	.cfi_def_cfa	%rsp, 40
	.else
	.cfi_def_cfa	%rsp, 48
	.endif
	.cfi_offset	%rsp, -16
	.cfi_offset	%rip, -40
	add	$8, %rsp
	.cfi_def_cfa_offset	40
	iretq
	.cfi_endproc
	.size	interrupt_return, . - interrupt_return

	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	mov	(%rsp), %rcx
	lea	8(%rsp), %rdx
	mov	%ss, %eax
	push	%rax
	.cfi_adjust_cfa_offset	8
	push	%rdx
	.cfi_adjust_cfa_offset	8
	pushf
	.cfi_adjust_cfa_offset	8
	mov	%cs, %eax
	push	%rax
	.cfi_adjust_cfa_offset	8
	push	%rcx
	.cfi_adjust_cfa_offset	8
	push	$0
	.cfi_adjust_cfa_offset	8
	jmp	interrupt_return
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
