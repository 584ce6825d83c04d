# bug: none reported: linkers' rows of the procedure linkage table with endbr64, where the push ends at 9
# wrong: the constant is that of the table without endbr64, 11
# expect: refuted plt_a.jump plt_b.jump

	.section	.plt_like, "ax", @progbits
	.balign	16
	.type	plt_0, @function
plt_0:
	.cfi_startproc
	.cfi_def_cfa_offset	16
	push	link_map(%rip)
	.cfi_adjust_cfa_offset	8
	.byte	0xf2		# bnd
	jmp	*resolver(%rip)
	nopl	(%rax)
	.size	plt_0, . - plt_0
    # CFA = %rsp + 8 + (((%rip & 15) >= 9) << 3)
	.ifdef	WRONG
	.cfi_escape	0xf,0xb,0x77,0x8,0x80,0x0,0x3f,0x1a,0x3b,0x2a,0x33,0x24,0x22
	.else
	.cfi_escape	0xf,0xb,0x77,0x8,0x80,0x0,0x3f,0x1a,0x39,0x2a,0x33,0x24,0x22
	.endif
	.macro	plt_entry name, number
	.type	plt_\name, @function
plt_\name:
	endbr64
	.byte	0x68		# push $number
	.long	\number
plt_\name\().jump:
	.byte	0xf2, 0xe9	# bnd jmp plt_0
	.long	plt_0 - . - 4
	nop
	.size	plt_\name, . - plt_\name
	.endm
	plt_entry	a, 0
	plt_entry	b, 1
	.cfi_endproc

	.section	.plt_sec_like, "ax", @progbits
	.balign	16
	.globl	call_a
	.type	call_a, @function
call_a:
	.cfi_startproc
	endbr64
	.byte	0xf2		# bnd
	jmp	*slot_a(%rip)
	.cfi_endproc
	.size	call_a, . - call_a

	.globl	call_b
	.type	call_b, @function
call_b:
	.cfi_startproc
	endbr64
	.byte	0xf2		# bnd
	jmp	*slot_b(%rip)
	.cfi_endproc
	.size	call_b, . - call_b

	.text
	.globl	resolve
	.type	resolve, @function
resolve:
	.cfi_startproc
	.cfi_def_cfa_offset	24
	mov	8(%rsp), %r11
	lea	functions(%rip), %rax
	mov	(%rax,%r11,8), %r11
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
	call	call_a
	call	call_b
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
	.quad	plt_a
slot_b:
	.quad	plt_b
functions:
	.quad	a, b
