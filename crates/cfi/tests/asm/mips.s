# as: llvm-mc --triple=mips-linux-gnu --filetype=obj
# MIPS, ELF32 big-endian: every CIE begins with def_cfa_register, for an offset of 0.
#| arch machine-8-32 big
#| fn 0x0..0x14
#|   0x0  cfa=reg29+0  return=reg31
#|   0x4  cfa=reg29+32  return=reg31
#|   0xc  cfa=reg29+32  return=reg31  reg31=[cfa-4]  reg30=[cfa-8]
#|   0x10  cfa=reg30+32  return=reg31  reg31=[cfa-4]  reg30=[cfa-8]
	.set	noreorder
	.text
f:	.cfi_startproc
	addiu	$sp, $sp, -32
	.cfi_def_cfa_offset 32
	sw	$ra, 28($sp)
	sw	$fp, 24($sp)
	.cfi_offset 31, -4
	.cfi_offset 30, -8
	move	$fp, $sp
	.cfi_def_cfa_register 30
	nop
	.cfi_endproc
