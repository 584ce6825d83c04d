# as: arm-linux-gnueabihf-as
# 32-bit ARM: .debug_frame only, Thumb code, double registers.
#| arch arm little
#| fn 0x0..0x14
#|   0x0  cfa=sp+0
#|   0x4  cfa=sp+16  lr=[cfa-4]  r4=[cfa-16]  r5=[cfa-12]  r11=[cfa-8]
#|   0x8  cfa=sp+32  lr=[cfa-4]  r4=[cfa-16]  r5=[cfa-12]  r11=[cfa-8]  d8=[cfa-32]  d9=[cfa-24]
#|   0xc  cfa=r11+8  lr=[cfa-4]  r4=[cfa-16]  r5=[cfa-12]  r11=[cfa-8]  d8=[cfa-32]  d9=[cfa-24]
#|   0x10  cfa=sp+16  lr=[cfa-4]  r4=[cfa-16]  r5=[cfa-12]  r11=[cfa-8]
#| fn 0x14..0x1c
#|   0x14  cfa=sp+0
#|   0x16  cfa=sp+8  lr=[cfa-4]  r7=[cfa-8]
#|   0x18  cfa=r7+8  lr=[cfa-4]  r7=[cfa-8]
#|   0x1a  cfa=r7+8  lr=r3  r7=[cfa-8]
	.syntax	unified
	.cfi_sections .debug_frame
	.text
	.arm
	.type	f, %function
f:	.cfi_startproc
	push	{r4, r5, r11, lr}
	.cfi_def_cfa_offset 16
	.cfi_offset r4, -16
	.cfi_offset r5, -12
	.cfi_offset r11, -8
	.cfi_offset lr, -4
	nop
	.cfi_def_cfa_offset 32
	.cfi_offset 264, -32
	.cfi_offset 265, -24
	add	r11, sp, #8
	.cfi_def_cfa r11, 8
	nop
	.cfi_restore 264
	.cfi_restore 265
	.cfi_def_cfa sp, 16
	pop	{r4, r5, r11, pc}
	.cfi_endproc
	.thumb
	.thumb_func
	.type	g, %function
g:	.cfi_startproc
	push	{r7, lr}
	.cfi_def_cfa_offset 8
	.cfi_offset r7, -8
	.cfi_offset lr, -4
	mov	r7, sp
	.cfi_def_cfa_register r7
	nop
	.cfi_register lr, r3
	nop
	.cfi_endproc
