# bug: none reported: code that takes its return address off the stack, as glibc's vfork does
# wrong: the return address is in %rcx, and the arguments are popped; the table says it is still on the stack
# expect: refuted taken

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	pop	%rcx
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-8
	.cfi_register	%rip, %rcx
	.endif
taken:
	lea	1(%rdi), %eax
	jmp	*%rcx
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
