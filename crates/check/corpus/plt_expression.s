# bug: none reported: linkers' rows of the procedure linkage table, ((rip & 15) >= 11) << 3
# wrong: the constant is 6, so the word is counted before it is pushed
# expect: refuted plt_a.push plt_b.push

	.section	.plt_like, "ax", @progbits
	.balign	16
	.type	plt_0, @function
plt_0:
	.cfi_startproc
	.cfi_def_cfa_offset	16
	push	link_map(%rip)
	.cfi_adjust_cfa_offset	8
	jmp	*resolver(%rip)
	.balign	16
	.size	plt_0, . - plt_0
    # CFA = %rsp + 8 + (((%rip & 15) >= 11) << 3)
	.ifdef	WRONG
	.cfi_escape	0xf,0xb,0x77,0x8,0x80,0x0,0x3f,0x1a,0x36,0x2a,0x33,0x24,0x22
	.else
	.cfi_escape	0xf,0xb,0x77,0x8,0x80,0x0,0x3f,0x1a,0x3b,0x2a,0x33,0x24,0x22
	.endif
	.macro	plt_entry name, number
	.type	plt_\name, @function
plt_\name:
	jmp	*slot_\name(%rip)
plt_\name\().push:
	.byte	0x68		# push $number
	.long	\number
	.byte	0xe9		# jmp plt_0
	.long	plt_0 - . - 4
	.size	plt_\name, . - plt_\name
	.endm
	plt_entry	a, 0
	plt_entry	b, 1
	.cfi_endproc

	.text
	.globl	resolve
	.type	resolve, @function
resolve:
	.cfi_startproc
	.cfi_def_cfa_offset	24
	push	%rax
	.cfi_adjust_cfa_offset	8
	mov	16(%rsp), %rax
	lea	functions(%rip), %r11
	mov	(%r11,%rax,8), %r11
	pop	%rax
	.cfi_adjust_cfa_offset	-8
	add	$16, %rsp
	.cfi_adjust_cfa_offset	-16
	jmp	*%r11
	.cfi_endproc
	.size	resolve, . - resolve

	.globl	a
	.type	a, @function
a:
	.cfi_startproc
	mov	$1, %eax
	ret
	.cfi_endproc
	.size	a, . - a

	.globl	b
	.type	b, @function
b:
	.cfi_startproc
	mov	$2, %eax
	ret
	.cfi_endproc
	.size	b, . - b

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	call	plt_a
	call	plt_b
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main

	.data
	.balign	8
link_map:
	.quad	0
resolver:
	.quad	resolve
slot_a:
	.quad	plt_a.push
slot_b:
	.quad	plt_b.push
functions:
	.quad	a, b
