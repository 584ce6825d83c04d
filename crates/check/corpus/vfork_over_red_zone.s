# bug: none reported: a system call from which a child comes back first, on the stack of its parent
# wrong: %rbx is saved twice, and the table names the copy below the stack pointer, over which the child pushes
# expect: refuted parent
# never runs: child

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	mov	%rbx, -8(%rsp)
	xor	%ebx, %ebx
	mov	$58, %eax		# vfork
	syscall
	.ifdef	WRONG
	.cfi_offset	%rbx, -24
	.endif
parent:
	test	%eax, %eax
	jz	child
	.cfi_remember_state
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	ret
child:
	.cfi_restore_state
	push	$1
	.cfi_def_cfa_offset	24
	mov	$60, %eax		# exit
	xor	%edi, %edi
	syscall
	hlt
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
