# Instructions that the assembler has no directive for, or writes another way.
#| arch x86-64 little
#| fn 0x0..0x36
#|   0x0  cfa=rsp+8  ra=[cfa-8]
#|   0x1  cfa=rsp+8  ra=[cfa-8]  rbx=cfa-16
#|   0x2  cfa=rsp+8  ra=[cfa-8]  rbx=cfa+16
#|   0x3  cfa=rsp+8  ra=[cfa-8]  rbx=cfa+16  rbp=[{breg7 16}]
#|   0x4  cfa=rsp+8  ra=[cfa-8]  rbx=cfa+16  rbp=[{breg7 16}]  r12={const1u 255; plus}
#|   0x5  cfa={breg7 8; deref; plus_uconst 128}  ra=[cfa-8]  rbx=cfa+16  rbp=[{breg7 16}]  r12={const1u 255; plus}
#|   0x6  cfa=rsp+8  ra=[cfa-8]  rbx=cfa+16  rbp=[{breg7 16}]  r12={const1u 255; plus}
#|   0x7  cfa=rsp+8  args=144  ra=[cfa-8]  rbx=cfa+16  rbp=[{breg7 16}]  r12={const1u 255; plus}
#|   0x8  cfa=rsp+8  ra=[cfa-8]  rbx=cfa+16  rbp=[{breg7 16}]  r12={const1u 255; plus}
#|   0x9  cfa=rsp+8  ra=[cfa-8]  rbx=cfa+16  rbp=[{breg7 16}]  r12={const1u 255; plus}  r13=[cfa+24]
#|   0xa  cfa=rsp+8  ra=[cfa-8]  rbx=cfa+16  rdi=[cfa-32]  rbp=[{breg7 16}]  r12={const1u 255; plus}  r13=[cfa+24]
#|   0xb  cfa=rsp+8  ra=[cfa-8]  rbx=cfa+16  rdi=[cfa-32]  rbp=[{breg7 16}]  r12={const1u 255; plus}  r13=[cfa+24]  r14=[cfa+24]
#|   0xc  cfa=rsp+32  ra=[cfa-8]  rbx=cfa+16  rdi=[cfa-32]  rbp=[{breg7 16}]  r12={const1u 255; plus}  r13=[cfa+24]  r14=[cfa+24]
#|   0xd  cfa=rbp+40  ra=[cfa-8]  rbx=cfa+16  rdi=[cfa-32]  rbp=[{breg7 16}]  r12={const1u 255; plus}  r13=[cfa+24]  r14=[cfa+24]
#|   0xe  cfa=rbp+40  ra=[cfa-8]  rbx=cfa+16  rdi=[cfa-32]  rbp=[{breg7 16}]  r12={const1u 255; plus}  r13=[cfa+24]  r14=[cfa+24]
#|   0xf  cfa=rsp+40  ra=[cfa-8]  rbx=cfa+16  rdi=[cfa-32]  rbp=[{breg7 16}]  r12={const1u 255; plus}  r13=[cfa+24]  r14=[cfa+24]
#|   0x11  cfa=rsp+16  ra=[cfa-8]  rbx=cfa+16  rdi=[cfa-32]  rbp=[{breg7 16}]  r12={const1u 255; plus}  r13=[cfa+24]  r14=[cfa+24]
	.text
f:	.cfi_startproc
	nop
	.cfi_escape 0x14, 3, 2			# DW_CFA_val_offset rbx
	nop
	.cfi_escape 0x15, 3, 0x7e		# DW_CFA_val_offset_sf rbx
	nop
	.cfi_escape 0x10, 6, 2, 0x77, 16	# DW_CFA_expression rbp: breg7 16
	nop
	.cfi_escape 0x16, 12, 3, 0x08, 0xff, 0x22 # DW_CFA_val_expression r12: const1u; plus
	nop
	.cfi_escape 0x0f, 6, 0x77, 8, 0x06, 0x23, 0x80, 0x01 # DW_CFA_def_cfa_expression
	nop
	.cfi_escape 0x0c, 7, 8			# DW_CFA_def_cfa
	nop
	.cfi_escape 0x2e, 0x90, 0x01		# DW_CFA_GNU_args_size
	nop
	.cfi_escape 0x2e, 0
	nop
	.cfi_escape 0x2f, 13, 3			# DW_CFA_GNU_negative_offset_extended
	nop
	.cfi_escape 0x05, 0x85, 0x80, 0, 0x84, 0x80, 0 # DW_CFA_offset_extended, padded numbers
	nop
	.cfi_escape 0x11, 14, 0x7d		# DW_CFA_offset_extended_sf
	nop
	.cfi_escape 0x13, 0x7c			# DW_CFA_def_cfa_offset_sf
	nop
	.cfi_escape 0x12, 6, 0x7b		# DW_CFA_def_cfa_sf
	nop
	.cfi_escape 0x04, 1, 0, 0, 0		# DW_CFA_advance_loc4
	.cfi_escape 0x0d, 7			# DW_CFA_def_cfa_register
	.cfi_escape 0x1d, 2, 0, 0, 0, 0, 0, 0, 0 # DW_CFA_MIPS_advance_loc8
	.cfi_escape 0x0e, 8
	.cfi_escape 0x40			# DW_CFA_advance_loc 0: the last row counts
	.cfi_escape 0x0e, 16
	.skip 40
	.cfi_escape 0x02, 200			# past the end: holds nowhere
	.cfi_escape 0x0e, 24
	.cfi_endproc
