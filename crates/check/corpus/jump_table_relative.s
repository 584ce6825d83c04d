# bug: like GCC PR 12990 (a return in the middle), in a switch with a position-independent table
# wrong: the second case inherits the state of the first one's return
# expect: refuted second

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	sub	$16, %rsp
	.cfi_def_cfa_offset	32
	mov	%edi, %ebx
	cmp	$2, %edi
	ja	.Lothers
	lea	.Ltable(%rip), %rdx
	mov	%edi, %eax
	movslq	(%rdx,%rax,4), %rax
	add	%rdx, %rax
	notrack	jmp *%rax
.Lfirst:
	.cfi_remember_state
	mov	$10, %eax
	add	$16, %rsp
	.cfi_def_cfa_offset	16
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	ret
.Lsecond:
	.ifndef	WRONG
	.cfi_restore_state
	.endif
second:
	lea	20(%rbx), %eax
	.ifdef	WRONG
	.cfi_restore_state
	.endif
	jmp	.Lout
.Lthird:
	lea	30(%rbx), %eax
	jmp	.Lout
.Lothers:
	xor	%eax, %eax
.Lout:
	add	$16, %rsp
	.cfi_def_cfa_offset	16
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	f, . - f

	.section	.rodata
	.balign	4
.Ltable:
	.long	.Lfirst - .Ltable
	.long	.Lsecond - .Ltable
	.long	.Lthird - .Ltable

	.text
	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	xor	%edi, %edi
	call	f
	mov	$1, %edi
	call	f
	mov	$2, %edi
	call	f
	mov	$3, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
