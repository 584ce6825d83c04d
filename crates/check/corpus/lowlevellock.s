# bug: glibc lowlevellock.h (OOPSLA'19): an out-of-line slow path with a table made of bytes
# wrong: the bytes do not say that the red zone is skipped
# expect: refuted skipped

	.text
	.globl	lock
	.type	lock, @function
lock:
	.cfi_startproc
	mov	$1, %eax
	xchg	%eax, (%rdi)
	test	%eax, %eax
	jnz	.Lslow
.Llocked:
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	lock, . - lock

	.section	.text.slow, "ax", @progbits
	.type	_L_lock_1, @function
_L_lock_1:
.Lslow:
	sub	$128, %rsp
skipped:
	call	lock_wait
	add	$128, %rsp
.Ladded:
	jmp	.Llocked
.Lslow_end:
	.size	_L_lock_1, . - _L_lock_1

	.section	.eh_frame, "a", @progbits
	.balign	8
.Lcie:
	.long	.Lcie_end - .Lcie_start
.Lcie_start:
	.long	0			# a CIE
	.byte	1			# version
	.asciz	"zR"
	.uleb128	1		# code alignment
	.sleb128	-8		# data alignment
	.uleb128	16		# return address
	.uleb128	1
	.byte	0x1b		# pc-relative, 4 bytes
	.byte	0x0c		# DW_CFA_def_cfa %rsp, 8
	.uleb128	7, 8
	.byte	0x80 + 16		# DW_CFA_offset %rip, -8
	.uleb128	1
	.balign	8
.Lcie_end:
	.long	.Lfde_end - .Lfde_start
.Lfde_start:
	.long	. - .Lcie
	.long	.Lslow - .
	.long	.Lslow_end - .Lslow
	.uleb128	0
	.byte	0x40 + skipped - .Lslow
	.byte	0x0e		# DW_CFA_def_cfa_offset
	.ifdef	WRONG
	.uleb128	8
	.byte	0			# DW_CFA_nop
	.else
	.uleb128	136
	.endif
	.byte	0x40 + .Ladded - skipped
	.byte	0x0e
	.uleb128	8
	.balign	8
.Lfde_end:

	.text
	.globl	lock_wait
	.type	lock_wait, @function
lock_wait:
	.cfi_startproc
	movl	$0, (%rdi)
	ret
	.cfi_endproc
	.size	lock_wait, . - lock_wait

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	lea	futex(%rip), %rdi
	call	lock
	call	lock
	xor	%eax, %eax
	ret
	.cfi_endproc
	.size	main, . - main

	.bss
	.balign	4
futex:
	.skip	4
