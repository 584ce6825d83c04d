# bug: GCC 12.2, epilogue of dynamically realigned functions that save %rbx
# wrong: the rules of %rbx, at [%rbp-16], and of %rbp are kept behind leave
# expect: refuted left

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	lea	8(%rsp), %r10
	.cfi_def_cfa	%r10, 0
	and	$-32, %rsp
	push	-8(%r10)
	push	%rbp
	mov	%rsp, %rbp
	.cfi_escape	0x10,0x6,0x2,0x76,0x0	# %rbp at [%rbp]
	push	%r10
	.cfi_escape	0xf,0x3,0x76,0x78,0x6	# CFA = [%rbp-8]
	push	%rbx
	.cfi_escape	0x10,0x3,0x2,0x76,0x70	# %rbx at [%rbp-16]
	sub	$32, %rsp
	mov	%edi, %ebx
	mov	%ebx, %eax
	mov	-8(%rbp), %r10
	.cfi_def_cfa	%r10, 0
	mov	-16(%rbp), %rbx
	leave
	.ifndef	WRONG
	.cfi_restore	%rbx
	.cfi_restore	%rbp
	.endif
left:
	lea	-8(%r10), %rsp
	.cfi_def_cfa	%rsp, 8
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
