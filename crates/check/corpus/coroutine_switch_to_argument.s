# bug: like libdill #64, libfringe PR 38 (stack switching code); the stack pointer itself is passed, as in xv6's swtch
# wrong: one of the pops from the other stack is not described
# expect: refuted popped

	.text
	.globl	switch_to
	.type	switch_to, @function
switch_to:
	.cfi_startproc
	push	%rbp
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	%rbp, 0
	push	%rbx
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	%rbx, 0
	mov	%rsp, (%rdi)
	mov	%rsi, %rsp
	pop	%rbx
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-8
	.endif
	.cfi_restore	%rbx
popped:
	pop	%rbp
	.cfi_adjust_cfa_offset	-8
	.cfi_restore	%rbp
	ret
	.cfi_endproc
	.size	switch_to, . - switch_to

	.globl	start
	.type	start, @function
start:
	.cfi_startproc
	push	%rbp
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	%rbp, 0
	push	%rbx
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	%rbx, 0
	mov	%rsp, main_stack(%rip)
	mov	%rsp, %rbx
	.cfi_def_cfa_register	%rbx
	lea	stack_end(%rip), %rsp
	call	coroutine
	.cfi_endproc
	.size	start, . - start

	.globl	coroutine
	.type	coroutine, @function
coroutine:
	.cfi_startproc
	push	%rbx
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	%rbx, 0
	mov	$5, %ebx
	lea	own_stack(%rip), %rdi
	mov	main_stack(%rip), %rsi
	call	switch_to
	mov	$6, %ebx
	lea	own_stack(%rip), %rdi
	mov	main_stack(%rip), %rsi
	call	switch_to
	hlt
	.cfi_endproc
	.size	coroutine, . - coroutine

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	lea	start(%rip), %rax
	call	*%rax
	lea	main_stack(%rip), %rdi
	mov	own_stack(%rip), %rsi
	call	switch_to
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main

	.bss
	.balign	16
main_stack:
	.skip	8
own_stack:
	.skip	8
	.skip	4096
stack_end:
	.skip	64
