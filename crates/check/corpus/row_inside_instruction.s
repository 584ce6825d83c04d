# bug: none reported: advances counted by hand
# wrong: a row starts between the bytes of an instruction. At every instruction the rows are true, so no run can
#   tell; an interrupted decoder or a patch of the code would
# expect: refuted inside static-only

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
inside:
	.byte	0x48, 0x83	# sub $24, %rsp
	.ifdef	WRONG
	.cfi_adjust_cfa_offset	24
	.endif
	.byte	0xec, 0x18
	.ifndef	WRONG
	.cfi_adjust_cfa_offset	24
	.endif
	mov	%edi, 12(%rsp)
	mov	12(%rsp), %eax
	add	$24, %rsp
	.cfi_adjust_cfa_offset	-24
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
