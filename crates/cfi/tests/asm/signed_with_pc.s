# as: aarch64-linux-gnu-as
# readelf differs: DW_CFA_AARCH64_negate_ra_state_with_pc is newer than binutils 2.40
# AArch64: a return address signed with the stack pointer and the address of the instruction.
#| arch aarch64 little
#| fn 0x0..0x10
#|   0x0  cfa=sp+0
#|   0x4  cfa=sp+0  signed-pc
#|   0x8  cfa=sp+0
#|   0xc  cfa=sp+0  signed-pc
	.text
f:	.cfi_startproc
	nop
	.cfi_escape 0x2c
	nop
	.cfi_remember_state
	.cfi_escape 0x2c
	nop
	.cfi_restore_state
	nop
	.cfi_endproc
