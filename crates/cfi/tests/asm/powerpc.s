# as: llvm-mc --triple=powerpc-linux-gnu --filetype=obj
# 32-bit PowerPC, big-endian: the return-address column is 65, operands of two bytes.
#| arch machine-20-32 big
#| fn 0x0..0x4c0
#|   0x0  cfa=reg1+0  return=reg65
#|   0x8  cfa=reg1+32  return=reg65  reg65=[cfa+4]  reg31=[cfa-4]
#|   0x4bc  cfa=reg31+32  return=reg65  reg65=[cfa+4]  reg30=[{const2u 4660; breg1 0}]  reg31=[cfa-4]
	.cfi_sections .debug_frame
	.text
f:	.cfi_startproc
	mflr	0
	stwu	1, -32(1)
	.cfi_def_cfa_offset 32
	.cfi_offset lr, 4
	.cfi_offset r31, -4
	.fill	300, 4, 0x60000000
	mr	31, 1
	.cfi_def_cfa_register r31
	.cfi_escape 0x10, 30, 5, 0x0a, 0x12, 0x34, 0x71, 0	# expression r30: const2u; breg1
	nop
	.cfi_endproc
