# bug: none reported: retpoline thunks
# wrong: the inner call's return address is on the stack, the table does not count it
# expect: refuted inner
# never runs: trap

	.text
	.globl	indirect_thunk_rax
	.type	indirect_thunk_rax, @function
indirect_thunk_rax:
	.cfi_startproc
	call	.Linner
trap:
	pause
	lfence
	jmp	trap
.Linner:
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	8
	.endif
inner:
	mov	%rax, (%rsp)
	ret
	.cfi_endproc
	.size	indirect_thunk_rax, . - indirect_thunk_rax

	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$8, %rsp
	.cfi_adjust_cfa_offset	8
	lea	g(%rip), %rax
	call	indirect_thunk_rax
	add	$8, %rsp
	.cfi_adjust_cfa_offset	-8
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
