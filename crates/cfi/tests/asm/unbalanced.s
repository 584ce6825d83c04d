# A state is restored that was never remembered, and one that another function remembered.
#! .eh_frame entry at offset 0x30: restore_state at offset 0x42 has no matching remember_state
#| arch x86-64 little
#| fn 0x0..0x2
#|   0x0  cfa=rsp+8  ra=[cfa-8]
#|   0x1  cfa=rsp+16  ra=[cfa-8]
#| fn 0x4..0x5
#|   0x4  cfa=rsp+8  ra=[cfa-8]
	.text
f:	.cfi_startproc
	nop
	.cfi_remember_state
	.cfi_def_cfa_offset 16
	nop
	.cfi_endproc
g:	.cfi_startproc
	nop
	.cfi_escape 0x0b
	nop
	.cfi_endproc
h:	.cfi_startproc
	nop
	.cfi_endproc
