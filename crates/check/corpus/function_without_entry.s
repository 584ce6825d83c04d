# bug: OpenSSL PR 10635, rust compiler-builtins #304: functions without FDE stop every walk
# wrong: a trivial function between two others has no entry
# expect: refuted trivial

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$8, %rsp
	.cfi_adjust_cfa_offset	8
	call	trivial
	add	$8, %rsp
	.cfi_adjust_cfa_offset	-8
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	trivial
	.type	trivial, @function
trivial:
	.ifndef	WRONG
	.cfi_startproc
	.endif
	lea	(%rdi,%rdi,2), %eax
	ret
	.ifndef	WRONG
	.cfi_endproc
	.endif
	.size	trivial, . - trivial

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
