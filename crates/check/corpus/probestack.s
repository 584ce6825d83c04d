# bug: rust compiler-builtins #304, #305, #325, #328: __rust_probestack
# wrong: the function that touches the pages of a big frame has no row but the first
# expect: refuted pushed

	.text
	.globl	probestack
	.type	probestack, @function
probestack:
	.cfi_startproc
	push	%rbp
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	8
	.cfi_offset	%rbp, -16
	.endif
pushed:
	mov	%rsp, %rbp
	.ifndef	WRONG
	.cfi_def_cfa_register	%rbp
	.endif
	mov	%rax, %rcx
.Lpage:
	sub	$4096, %rsp
	orq	$0, (%rsp)
	sub	$4096, %rcx
	ja	.Lpage
	leave
	.ifndef	WRONG
	.cfi_def_cfa	%rsp, 8
	.cfi_restore	%rbp
	.endif
	ret
	.cfi_endproc
	.size	probestack, . - probestack

	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	mov	$0x2800, %eax
	call	probestack
	sub	%rax, %rsp
	.cfi_def_cfa_offset	0x2808
	mov	%edi, (%rsp)
	mov	(%rsp), %eax
	add	$0x2800, %rsp
	.cfi_def_cfa_offset	8
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
