# bug: like dmd PR 5521 (callee-saved offsets always wrong)
# wrong: .cfi_rel_offset is given the place counted from the CFA's end of the frame
# expect: refuted saved

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$40, %rsp
	.cfi_adjust_cfa_offset	40
	mov	%rbx, 32(%rsp)
	.ifdef	WRONG
	.cfi_rel_offset	%rbx, 8
	.else
	.cfi_rel_offset	%rbx, 32
	.endif
saved:
	mov	%edi, %ebx
	mov	%ebx, %eax
	mov	32(%rsp), %rbx
	.cfi_restore	%rbx
	add	$40, %rsp
	.cfi_adjust_cfa_offset	-40
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
