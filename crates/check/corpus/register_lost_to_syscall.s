# bug: like Linux powerpc vdso (`.cfi_register lr, r0` while r0 is reused), and glibc's vfork
# wrong: the table names %rcx, which the system call overwrites; the code has the address in %r8 too
# expect: refuted lost

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	pop	%rcx
	.cfi_adjust_cfa_offset	-8
	.cfi_register	%rip, %rcx
	mov	%rcx, %r8
	.ifndef	WRONG
	.cfi_register	%rip, %r8
	.endif
	mov	$39, %eax		# getpid
	syscall
lost:
	add	$1, %eax
	push	%r8
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	%rip, 0
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
