	.text			# two mistakes, and a function without an entry: docs/tutorial.md
	.globl	sum_squares
	.type	sum_squares, @function
sum_squares:
	.cfi_startproc
	pushq	%rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbx, 0
	pushq	%r12
	.cfi_rel_offset %r12, 0
	subq	$8, %rsp
	.cfi_adjust_cfa_offset 8
	xorl	%ebx, %ebx
	movq	%rdi, %r12
1:	testq	%r12, %r12
	je	2f
	movq	%r12, %rdi
	call	square
	addq	%rax, %rbx
	decq	%r12
	jmp	1b
2:	movq	%rbx, %rax
	addq	$8, %rsp
	.cfi_adjust_cfa_offset -8
	popq	%r12
	.cfi_adjust_cfa_offset -8
	popq	%rbx
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size	sum_squares, .-sum_squares

	.type	square, @function
square:
	movq	%rdi, %rax
	imulq	%rdi, %rax
	ret
	.size	square, .-square
	.section .note.GNU-stack,"",@progbits
