# bug: like glibc's __longjmp and setcontext: rows that describe the context that control is about to go to
# wrong: the stack pointer and the return address have each other's place in the buffer. What is in it is an agreement
# expect: unproven-ok goes_back
# right: unproven-ok

	.text
	.globl	goes_back
	.type	goes_back, @function
goes_back:
	.cfi_startproc
	.cfi_def_cfa	%rdi, 0
	.cfi_offset	%rbx, 0
	.ifdef	WRONG
	.cfi_offset	%rsp, 16
	.cfi_offset	%rip, 8
	.else
	.cfi_offset	%rsp, 8
	.cfi_offset	%rip, 16
	.endif
	mov	(%rdi), %rbx
	mov	8(%rdi), %rsp
	jmp	*16(%rdi)
	.cfi_endproc
	.size	goes_back, . - goes_back

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	sub	$24, %rsp
	.cfi_adjust_cfa_offset	24
	mov	%rbx, (%rsp)
	mov	%rsp, 8(%rsp)
	lea	.Lback(%rip), %rax
	mov	%rax, 16(%rsp)
	mov	%rsp, %rdi
	call	goes_back
.Lback:
	xor	%eax, %eax
	add	$24, %rsp
	.cfi_adjust_cfa_offset	-24
	ret
	.cfi_endproc
	.size	main, . - main
