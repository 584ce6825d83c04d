# bug: none reported: a tail call through a table, in Intel syntax
# wrong: the jump through a table of functions has the rules of registers that are back, and the height before
# expect: refuted jump

	.intel_syntax	noprefix
	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	rbx
	.cfi_adjust_cfa_offset	8
	.cfi_rel_offset	rbx, 0
	mov	ebx, edi
	lea	rax, [rip + targets]
	mov	rax, qword ptr [rax + rbx*8]
	pop	rbx
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	-8
	.cfi_restore	rbx
	.endif
jump:
	jmp	rax
	.cfi_endproc
	.size	f, . - f

	.att_syntax
	.globl	g
	.type	g, @function
g:
	.cfi_startproc
	mov	$1, %eax
	ret
	.cfi_endproc
	.size	g, . - g

	.globl	h
	.type	h, @function
h:
	.cfi_startproc
	mov	$2, %eax
	ret
	.cfi_endproc
	.size	h, . - h

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	xor	%edi, %edi
	call	f
	mov	$1, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main

	.section	.data.rel.ro, "aw"
	.balign	8
targets:
	.quad	g, h
