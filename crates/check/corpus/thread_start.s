# bug: glibc 2.36, thread entry: `xor %ebp, %ebp; pop; pop; call` with CFA rsp+8
# wrong: the outermost function of a stack has no undefined return address, and its pops are not described
# expect: refuted thread_start
# outermost: thread_start

	.text
	.globl	thread_start
	.type	thread_start, @function
thread_start:
	.cfi_startproc
	.ifndef	WRONG
	.cfi_undefined	%rip
	.endif
	xor	%ebp, %ebp
	pop	%rax
	pop	%rdi
	call	*%rax
	mov	%eax, %edi
	mov	$60, %eax		# exit
	syscall
	.cfi_endproc
	.size	thread_start, . - thread_start

	.globl	work
	.type	work, @function
work:
	.cfi_startproc
	lea	-3(%rdi), %eax
	ret
	.cfi_endproc
	.size	work, . - work

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	%rsp, %rbx
	.cfi_def_cfa_register	%rbx
	.cfi_undefined	%rbx
	lea	stack_end(%rip), %rsp
	push	$3
	lea	work(%rip), %rax
	push	%rax
	jmp	thread_start
	.cfi_endproc
	.size	main, . - main

	.bss
	.balign	16
	.skip	4096
stack_end:
