# remember_state and restore_state, nested and left over.
#| arch x86-64 little
#| fn 0x0..0x7
#|   0x0  cfa=rsp+8  ra=[cfa-8]
#|   0x1  cfa=rsp+16  ra=[cfa-8]  rbx=[cfa-16]
#|   0x2  cfa=rsp+24  ra=[cfa-8]  rbx=[cfa-16]  rbp=[cfa-24]
#|   0x3  cfa=rsp+16  ra=[cfa-8]  rbx=same  r15=undefined
#|   0x4  cfa=rsp+24  ra=[cfa-8]  rbx=[cfa-16]  rbp=[cfa-24]
#|   0x5  cfa=rsp+16  ra=[cfa-8]  rbx=[cfa-16]
#|   0x6  cfa=rsp+16  ra=[cfa-8]  rbx=[cfa-16]
#| fn 0x7..0x9
#|   0x7  cfa=rsp+8  ra=[cfa-8]
#|   0x8  cfa=rsp+8  ra=[cfa-8]  rbx=[cfa-16]
	.text
f:	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	.cfi_remember_state
	push	%rbp
	.cfi_def_cfa_offset 24
	.cfi_offset %rbp, -24
	.cfi_remember_state
	pop	%rbp
	.cfi_def_cfa_offset 16
	.cfi_restore %rbp
	.cfi_same_value %rbx
	.cfi_undefined %r15
	nop
	.cfi_restore_state
	nop
	.cfi_restore_state
	nop
	.cfi_remember_state
	nop
	.cfi_endproc
g:	.cfi_startproc
	nop
	.cfi_offset %rbx, -16
	nop
	.cfi_endproc
