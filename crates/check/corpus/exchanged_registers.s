# bug: like Linux powerpc vdso (a register kept in another), with xchg
# wrong: %r12 and %rsi change places; the table follows %r12 only after it is back
# expect: refuted exchanged

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	xchg	%r12, %rsi
	.ifndef	WRONG
	.cfi_register	%r12, %rsi
	.endif
exchanged:
	lea	(%r12,%rdi), %rax
	xchg	%r12, %rsi
	.cfi_restore	%r12
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$3, %edi
	mov	$4, %esi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
