# From an expression back to a register: the offset from before it holds, as in libgcc and gdb.
#| arch x86-64 little
#| fn 0x0..0x9
#|   0x0  cfa=rsp+8  ra=[cfa-8]
#|   0x1  cfa=rsp+56  ra=[cfa-8]
#|   0x2  cfa={breg7 8; deref}  ra=[cfa-8]
#|   0x3  cfa=rbp+56  ra=[cfa-8]
#|   0x4  cfa={breg7 8; deref}  ra=[cfa-8]
#|   0x5  cfa={breg7 8; deref}  ra=[cfa-8]
#|   0x6  cfa=rsp+64  ra=[cfa-8]
#|   0x7  cfa={breg7 8; deref}  ra=[cfa-8]
#|   0x8  cfa=rsp+56  ra=[cfa-8]
	.text
f:	.cfi_startproc
	nop
	.cfi_def_cfa %rsp, 56
	nop
	.cfi_escape 0x0f, 3, 0x77, 8, 0x06
	nop
	.cfi_def_cfa_register %rbp
	nop
	.cfi_escape 0x0f, 3, 0x77, 8, 0x06
	.cfi_remember_state
	nop
	.cfi_def_cfa_offset 64
	nop
	.cfi_def_cfa_register %rsp
	nop
	.cfi_restore_state
	nop
	.cfi_def_cfa_register %rsp
	nop
	.cfi_endproc
