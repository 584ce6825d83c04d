# bug: none reported: GCC spills general registers to vector registers
# wrong: %rbx is kept in %xmm1; nothing is said, so it counts as unchanged. libgcc has no columns of vector registers,
#   so the right table says that %rbx is lost
# expect: refuted clobbered

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	movq	%rbx, %xmm1
	.ifndef	WRONG
	.cfi_undefined	%rbx
	.endif
	lea	1(%rdi), %rbx
clobbered:
	mov	%rbx, %rax
	movq	%xmm1, %rbx
	.cfi_restore	%rbx
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
