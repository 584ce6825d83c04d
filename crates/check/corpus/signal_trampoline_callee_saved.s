# bug: like Linux powerpc vdso (a slot that is wrong)
# wrong: %rbp and %rbx have changed places in the signal frame
# expect: refuted restore

	.text
	.globl	handler
	.type	handler, @function
handler:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	mov	%edi, %ebx
	mov	%ebx, %eax
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	handler, . - handler

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
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
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main

	.cfi_startproc
	.cfi_signal_frame
	.cfi_escape	0xf,0x4,0x77,0xa0,0x1,0x6		# CFA = [%rsp+160]
	.cfi_escape	0x10,0xc,0x3,0x77,0xc8,0x0		# %r12 at [%rsp+72]
	.cfi_escape	0x10,0xd,0x3,0x77,0xd0,0x0		# %r13 at [%rsp+80]
	.cfi_escape	0x10,0xe,0x3,0x77,0xd8,0x0		# %r14 at [%rsp+88]
	.cfi_escape	0x10,0xf,0x3,0x77,0xe0,0x0		# %r15 at [%rsp+96]
	.ifdef	WRONG
	.cfi_escape	0x10,0x6,0x3,0x77,0x80,0x1		# %rbp at [%rsp+128]
	.cfi_escape	0x10,0x3,0x3,0x77,0xf8,0x0		# %rbx at [%rsp+120]
	.else
	.cfi_escape	0x10,0x6,0x3,0x77,0xf8,0x0		# %rbp at [%rsp+120]
	.cfi_escape	0x10,0x3,0x3,0x77,0x80,0x1		# %rbx at [%rsp+128]
	.endif
	.cfi_escape	0x10,0x10,0x3,0x77,0xa8,0x1		# %rip at [%rsp+168]
	nop		# return addresses are looked up at the byte before
	.type	restore, @function
restore:
	mov	$15, %eax		# rt_sigreturn, which does not come back: no code follows
	syscall
	.cfi_endproc
	.size	restore, . - restore

	.data
	.balign	8
action:
	.quad	handler
	.quad	0x04000000	# SA_RESTORER
	.quad	restore
	.quad	0
