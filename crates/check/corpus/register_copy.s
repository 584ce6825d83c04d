# bug: like Linux powerpc vdso (`.cfi_register lr, r0` while r0 is reused)
# wrong: %rbx is kept in %r8, the table says so until %rbx is back, but %r8 is written before
# expect: refuted reused

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	mov	%rbx, %r8
	.cfi_register	%rbx, %r8
	mov	%edi, %ebx
	lea	1(%rbx), %eax
	mov	%r8, %rbx
	.ifndef	WRONG
	.cfi_restore	%rbx
	.endif
	lea	2(%rdi), %r8d
reused:
	add	%r8d, %eax
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
