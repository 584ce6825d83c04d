# bug: like GCC PR 12990 (a return in the middle), in a loop
# wrong: the registers that a way out of the loop has popped are not back in the row of the loop's second half
# expect: refuted second_half

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	push	%rbx
	.cfi_def_cfa_offset	24
	.cfi_offset	%rbx, -24
	mov	%edi, %ebp
	xor	%ebx, %ebx
.Lnext:
	add	%ebp, %ebx
	cmp	$100, %ebx
	jb	.Lgo_on
	mov	%ebx, %eax
	.ifndef	WRONG
	.cfi_remember_state
	.endif
	pop	%rbx
	.cfi_def_cfa_offset	16
	.cfi_restore	%rbx
	pop	%rbp
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbp
	ret
.Lgo_on:
	.ifndef	WRONG
	.cfi_restore_state
	.endif
second_half:
	dec	%ebp
	jnz	.Lnext
	xor	%eax, %eax
	.ifdef	WRONG
	.cfi_def_cfa_offset	24
	.cfi_offset	%rbx, -24
	.cfi_offset	%rbp, -16
	.endif
	pop	%rbx
	.cfi_def_cfa_offset	16
	.cfi_restore	%rbx
	pop	%rbp
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbp
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$3, %edi
	call	f
	mov	$60, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
