# bug: like dmd PR 5521 (where registers are is wrong), with .cfi_register
# wrong: the table names %r9, %rbp is kept in %r8
# expect: refuted copied

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	mov	%rbp, %r8
	.ifdef	WRONG
	.cfi_register	%rbp, %r9
	.else
	.cfi_register	%rbp, %r8
	.endif
copied:
	mov	%edi, %ebp
	lea	1(%rbp), %eax
	mov	%r8, %rbp
	.cfi_restore	%rbp
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
