# What GCC makes of a function that it does not optimise, and that ends with a call: a `nop` behind it. Here that ends where
# functions are aligned.
	.text
	.globl	_start
	.type	_start, @function
_start:
	.cfi_startproc
	.cfi_undefined	%rip
	call	calls_both
	mov	$60, %eax
	syscall
	ud2
	.cfi_endproc

	.type	calls_both, @function
calls_both:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register	%rbp
	call	ends_with_call
	call	ends_with_call
	pop	%rbp
	.cfi_def_cfa	%rsp, 8
	.cfi_restore	%rbp
	ret
	.cfi_endproc

	.type	ends_with_call, @function
	.balign	16
	.skip	2, 0xcc
ends_with_call:
	.cfi_startproc
	push	%rbp			# at 2
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%rsp, %rbp		# at 3
	.cfi_def_cfa_register	%rbp
	sub	$16, %rsp		# at 6
	call	leaf			# at 10
	nop				# at 15
	leave				# at 16
	.cfi_def_cfa	%rsp, 8
	.cfi_restore	%rbp
	ret
	.cfi_endproc

	.type	leaf, @function
leaf:
	.cfi_startproc
	ret
	.cfi_endproc
	.section .note.GNU-stack, "", @progbits
