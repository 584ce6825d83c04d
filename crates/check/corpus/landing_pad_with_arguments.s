# bug: none reported: landing pads of calls with arguments on the stack (DW_CFA_GNU_args_size)
# wrong: the unwinder takes the arguments off before it goes to the landing pad; its row still counts them
# expect: refuted pad
# never runs: personality

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	.cfi_personality	0x1b, personality
	.cfi_lsda	0x1b, .Llsda
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	mov	%edi, %ebx
	lea	.Lpad(%rip), %rdx
	push	$1
	.cfi_adjust_cfa_offset	8
	push	$2
	.cfi_adjust_cfa_offset	8
	.cfi_escape	0x2e, 0x10	# DW_CFA_GNU_args_size 16
.Lcall:
	call	may_throw
.Lcalled:
	add	$16, %rsp
	.cfi_adjust_cfa_offset	-16
	.cfi_escape	0x2e, 0x0
	mov	%ebx, %eax
.Lout:
	.cfi_remember_state
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	ret
.Lpad:
	.cfi_restore_state
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	16
	.endif
pad:
	lea	1(%rbx), %eax
	jmp	.Lout
	.cfi_endproc
	.size	f, . - f

	.section	.gcc_except_table, "a", @progbits
.Llsda:
	.byte	0xff		# landing pads count from the start of the function
	.byte	0xff		# no types
	.byte	1			# call sites are ULEB128
	.uleb128	.Lsites_end - .Lsites
.Lsites:
	.uleb128	.Lcall - f, .Lcalled - .Lcall, .Lpad - f, 0
.Lsites_end:

	.text
    # Goes to the landing pad in %rdx as an unwinder does, if %edi is zero.
	.globl	may_throw
	.type	may_throw, @function
may_throw:
	.cfi_startproc
	test	%edi, %edi
	je	.Lthrow
	ret
.Lthrow:
	add	$24, %rsp
	.cfi_adjust_cfa_offset	-24
	jmp	*%rdx
	.cfi_endproc
	.size	may_throw, . - may_throw

	.globl	personality
	.type	personality, @function
personality:
	.cfi_startproc
	mov	$8, %eax		# _URC_CONTINUE_UNWIND
	ret
	.cfi_endproc
	.size	personality, . - personality

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$3, %edi
	call	f
	xor	%edi, %edi
	call	f
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main
