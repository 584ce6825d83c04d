# bug: like Linux powerpc vdso (a slot that is wrong), in the row of the trampoline's second instruction
# wrong: before the system call, %rbx is looked for in the slot of %rdx
# expect: refuted entered

	.text
	.cfi_startproc
	.cfi_signal_frame
	.cfi_escape	0xf,0x4,0x77,0xa0,0x1,0x6		# CFA = [%rsp+160]
	.cfi_escape	0x10,0xc,0x3,0x77,0xc8,0x0		# %r12 at [%rsp+72]
	.cfi_escape	0x10,0xd,0x3,0x77,0xd0,0x0		# %r13 at [%rsp+80]
	.cfi_escape	0x10,0xe,0x3,0x77,0xd8,0x0		# %r14 at [%rsp+88]
	.cfi_escape	0x10,0xf,0x3,0x77,0xe0,0x0		# %r15 at [%rsp+96]
	.cfi_escape	0x10,0x6,0x3,0x77,0xf8,0x0		# %rbp at [%rsp+120]
	.cfi_escape	0x10,0x3,0x3,0x77,0x80,0x1		# %rbx at [%rsp+128]
	.cfi_escape	0x10,0x10,0x3,0x77,0xa8,0x1		# %rip at [%rsp+168]
	nop		# return addresses are looked up at the byte before
	.type	restore, @function
restore:
	mov	$15, %rax		# rt_sigreturn
	.ifdef	WRONG
	.cfi_escape	0x10,0x3,0x3,0x77,0x88,0x1		# %rbx at [%rsp+136]
	.endif
entered:
	syscall
	.cfi_endproc
	.size	restore, . - restore

	.globl	handler
	.type	handler, @function
handler:
	.cfi_startproc
	mov	%edi, %eax
	ret
	.cfi_endproc
	.size	handler, . - handler

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	mov	$0x1234, %ebx
	mov	$10, %edi		# SIGUSR1
	lea	action(%rip), %rsi
	xor	%edx, %edx
	mov	$8, %r10d
	mov	$13, %eax		# rt_sigaction
	syscall
	mov	$39, %eax		# getpid
	syscall
	mov	%eax, %edi
	mov	$10, %esi
	mov	$62, %eax		# kill
	syscall
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main

	.data
	.balign	8
action:
	.quad	handler
	.quad	0x04000000	# SA_RESTORER
	.quad	restore
	.quad	0
