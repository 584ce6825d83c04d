# bug: glibc 2.36, _start and its like: no undefined return address
# wrong: the outermost function describes its pushes as if somebody had called it
# expect: refuted entry
# outermost: entry

	.text
	.globl	entry
	.type	entry, @function
entry:
	.cfi_startproc
	.ifndef	WRONG
	.cfi_undefined	%rip
	.endif
	xor	%ebp, %ebp
	push	%rbp
	.cfi_adjust_cfa_offset	8
	mov	%rsp, %rbp
	.cfi_def_cfa_register	%rbp
	and	$-16, %rsp
	call	work
	mov	%eax, %edi
	mov	$60, %eax		# exit
	syscall
	.cfi_endproc
	.size	entry, . - entry

	.globl	work
	.type	work, @function
work:
	.cfi_startproc
	xor	%eax, %eax
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
	jmp	entry
	.cfi_endproc
	.size	main, . - main

	.bss
	.balign	16
	.skip	4096
stack_end:
	.skip	64
