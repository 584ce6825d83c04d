# bug: none reported: cmpxchg stores the source where it finds the value of %rax, and leaves that
# wrong: %rbx holds the source, and the table calls it unchanged
# expect: refuted exchanged

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	mov	%rbx, %rax
	mov	$5, %ecx
	cmpxchg	%rcx, %rbx
	.ifndef	WRONG
	.cfi_register	%rbx, %rax
	.endif
exchanged:
	lea	1(%rbx), %rcx
	mov	%rax, %rbx
	.cfi_restore	%rbx
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
