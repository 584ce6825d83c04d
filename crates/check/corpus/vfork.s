# bug: none, in glibc's vfork: rows of its kind, with the return address in %rdi, are what opentelemetry-ebpf-profiler #876 is about
# wrong: the pop of the return address into %rdi is not described. (With its adjustment alone, the row would be
#   right as long as nothing writes below the stack pointer)
# expect: refuted taken
# never runs: failed

	.text
	.globl	vfork_like
	.type	vfork_like, @function
vfork_like:
	.cfi_startproc
	pop	%rdi
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-8
	.cfi_register	%rip, %rdi
	.endif
taken:
	mov	$39, %eax		# getpid
	syscall
	push	%rdi
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	%rip, 0
	.endif
	cmp	$-4095, %rax
	jae	failed
	ret
failed:
	or	$-1, %eax
	ret
	.cfi_endproc
	.size	vfork_like, . - vfork_like

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	call	vfork_like
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
