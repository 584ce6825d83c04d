# bug: none reported: xadd gives the source the destination's old value, and the destination the sum
# wrong: %rbx holds the sum, and the table calls it unchanged
# expect: refuted exchanged

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	mov	$5, %ecx
	xadd	%rcx, %rbx
	.ifndef	WRONG
	.cfi_register	%rbx, %rcx
	.endif
exchanged:
	mov	%rbx, %rax
	mov	%rcx, %rbx
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
