# as: arm-linux-gnueabihf-as
# Thumb code whose calls stand where rows and functions end: see thumb.rs.
#| arch arm little
#| fn 0x0..0xa
#|   0x0  cfa=sp+0
#|   0x2  cfa=sp+8  lr=[cfa-4]  r7=[cfa-8]
#|   0x6  cfa=sp+0
#|   0x8  cfa=sp+8  lr=[cfa-4]  r7=[cfa-8]
#| fn 0xa..0xc
#|   0xa  cfa=sp+0
#| fn 0xc..0x14
#|   0xc  cfa=sp+0
#|   0x10  cfa=sp+8  lr=[cfa-4]  r4=[cfa-8]
	.syntax	unified
	.cfi_sections .debug_frame
	.text
	.thumb
	.type	f, %function
f:	.cfi_startproc
	push	{r7, lr}
	.cfi_def_cfa_offset 8
	.cfi_offset r7, -8
	.cfi_offset lr, -4
	.cfi_remember_state
	bl	leaf			// returns to where the next row begins
	.cfi_def_cfa_offset 0
	.cfi_restore r7
	.cfi_restore lr
	bx	lr
	.cfi_restore_state
	blx	r3			// returns to where the next function begins
	.cfi_endproc
	.type	leaf, %function
leaf:	.cfi_startproc
	bx	lr
	.cfi_endproc
	.arm
	.balign	4
	.type	arm, %function
arm:	.cfi_startproc
	push	{r4, lr}
	.cfi_def_cfa_offset 8
	.cfi_offset r4, -8
	.cfi_offset lr, -4
	bl	leaf
	.cfi_endproc
