# bug: none reported: code that needs %rbp, and keeps the frame pointer in its frame
# wrong: the expression adds a word less than is between the frame pointer and the CFA
# expect: refuted kept

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register	%rbp
	sub	$32, %rsp
	mov	%rbp, 24(%rsp)
	.ifndef	WRONG
	.cfi_escape	0xf,0x5,0x77,0x18,0x6,0x23,0x10	# CFA = [%rsp+24]+16
	.else
	.cfi_escape	0xf,0x5,0x77,0x18,0x6,0x23,0x8
	.endif
kept:
	xor	%ebp, %ebp
	call	g
	mov	24(%rsp), %rbp
	.cfi_def_cfa	%rbp, 16
	leave
	.cfi_def_cfa	%rsp, 8
	.cfi_restore	%rbp
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	g
	.type	g, @function
g:
	.cfi_startproc
	mov	$1, %eax
	ret
	.cfi_endproc
	.size	g, . - g

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
