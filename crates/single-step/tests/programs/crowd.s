# Two hundred functions that are all alike and right. Each is new to whoever looks at it.
	.altmacro
	.macro	member number
	.text
	.type	member_\number, @function
member_\number:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	mov	%edi, %ebx
	call	one_more
	test	$1, %ebx
	jz	1f
	nop
1:	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	member_\number, . - member_\number
	.section .data.rel.local, "aw"
	.quad	member_\number
	.endm

	.section .data.rel.local, "aw"
	.balign	8
	.globl	members
members:
	.set	count, 0
	.rept	200
	member	%count
	.set	count, count + 1
	.endr
	.section .note.GNU-stack, "", @progbits
