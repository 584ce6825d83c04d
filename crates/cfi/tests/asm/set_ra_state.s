# as: aarch64-linux-gnu-as
# readelf differs: DW_CFA_AARCH64_set_ra_state is newer than binutils 2.40
# AArch64: the state of the return address, set instead of toggled. The bytes are those that LLVM
# writes for `.cfi_set_ra_state 1, 0`, `0, -4` and `2, 8`.
#! .eh_frame entry at offset 0x3c: return address state 3 of the instruction at offset 0x4e is unknown
#| arch aarch64 little
#| fn 0x0..0x18
#|   0x0  cfa=sp+0
#|   0x4  cfa=sp+0  signed
#|   0x8  cfa=sp+0
#|   0xc  cfa=sp+0  signed-pc
#|   0x10  cfa=sp+0
#|   0x14  cfa=sp+0  signed-pc
	.text
f:	.cfi_startproc
	nop
	.cfi_escape 0x2b, 1, 0
	nop
	.cfi_escape 0x2b, 0, 0x7c
	nop
	.cfi_escape 0x2b, 2, 8
	.cfi_remember_state
	nop
	.cfi_escape 0x2b, 0, 0x80, 0x7f
	nop
	.cfi_restore_state
	nop
	.cfi_endproc
reserved:
	.cfi_startproc
	nop
	.cfi_escape 0x2b, 3, 0
	nop
	.cfi_endproc
