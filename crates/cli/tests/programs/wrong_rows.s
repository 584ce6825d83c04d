# A function with a table that lacks what it pushes.
	.globl	outer
	.type	outer, @function
outer:
	.cfi_startproc
	push	%rbx
	push	%r12
	xor	%ebx, %ebx
	xor	%r12d, %r12d
	sub	$8, %rsp
	call	stopped
	add	$8, %rsp
	pop	%r12
	pop	%rbx
	ret
	.cfi_endproc
	.size	outer, . - outer
	.section .note.GNU-stack, "", @progbits
