# bug: like Linux powerpc vdso (`.cfi_register lr, r0` while r0 is reused), with a slot
# wrong: %rbx is loaded early and its slot holds a local variable; the rule is kept
# expect: refuted reused

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$24, %rsp
	.cfi_def_cfa_offset	32
	mov	%rbx, 16(%rsp)
	.cfi_offset	%rbx, -16
	mov	%edi, %ebx
	lea	1(%rbx), %eax
	mov	16(%rsp), %rbx
	.ifndef	WRONG
	.cfi_restore	%rbx
	.endif
	mov	%rax, 16(%rsp)
reused:
	add	16(%rsp), %eax
	add	$24, %rsp
	.cfi_def_cfa_offset	8
	.ifdef	WRONG
	.cfi_restore	%rbx
	.endif
	ret
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
