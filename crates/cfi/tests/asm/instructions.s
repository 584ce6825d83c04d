# Every directive of the assembler, one row each.
#| arch x86-64 little
#| fn 0x0..0x10194
#|   0x0  cfa=rsp+8  ra=[cfa-8]
#|   0x1  cfa=rsp+16  ra=[cfa-8]
#|   0x2  cfa=rbp+16  ra=[cfa-8]
#|   0x3  cfa=rbp+32  ra=[cfa-8]
#|   0x4  cfa=rbp+24  ra=[cfa-8]
#|   0x5  cfa=rbp+24  ra=[cfa-8]  rbx=[cfa-24]
#|   0x6  cfa=rbp+24  ra=[cfa-8]  rbx=[cfa-24]  r12=[cfa-16]
#|   0x7  cfa=rbp+24  ra=[cfa-8]  rbx=[cfa-24]  r12=[cfa-16]  reg80=[cfa-64]
#|   0x8  cfa=rbp+24  ra=[cfa-8]  rbx=[cfa-24]  r12=[cfa-16]  r13=[cfa+24]  reg80=[cfa-64]
#|   0x9  cfa=rbp+24  ra=[cfa-8]  rbx=[cfa-24]  r12=[cfa-16]  r13=[cfa+24]  r14=cfa-8  reg80=[cfa-64]
#|   0xa  cfa=rbp+24  ra=[cfa-8]  rbx=[cfa-24]  r12=[cfa-16]  r13=[cfa+24]  r14=cfa+8  reg80=[cfa-64]
#|   0xb  cfa=rbp+24  ra=[cfa-8]  rbx=rcx  r12=[cfa-16]  r13=[cfa+24]  r14=cfa+8  reg80=[cfa-64]
#|   0xc  cfa=rbp+24  ra=[cfa-8]  rbx=rcx  r12=[cfa-16]  r13=[cfa+24]  r14=cfa+8  r15=same  reg80=[cfa-64]
#|   0xd  cfa=rbp+24  ra=[cfa-8]  rax=undefined  rbx=rcx  r12=[cfa-16]  r13=[cfa+24]  r14=cfa+8  r15=same  reg80=[cfa-64]
#|   0xe  cfa=rbp+24  ra=[cfa-8]  rax=undefined  r12=[cfa-16]  r13=[cfa+24]  r14=cfa+8  r15=same  reg80=[cfa-64]
#|   0xf  cfa=rbp+24  ra=[cfa-8]  rax=undefined  r12=[cfa-16]  r13=[cfa+24]  r14=cfa+8  r15=same
#|   0x10  cfa=rbp+24  ra=[cfa-8]  rax=undefined  r12=[cfa-16]  r13=[cfa+24]  r14=cfa+8  r15=same
#|   0x11  cfa=rbp+24  ra=undefined  rax=undefined  r12=[cfa-16]  r13=[cfa+24]  r14=cfa+8  r15=same
#|   0x12  cfa=rbp+24  ra=[cfa-8]  rax=undefined  r12=[cfa-16]  r13=[cfa+24]  r14=cfa+8  r15=same
#|   0x13  cfa=rbp-32  ra=[cfa-8]  rax=undefined  r12=[cfa-16]  r13=[cfa+24]  r14=cfa+8  r15=same
#|   0x14  cfa=rsp-64  ra=[cfa-8]  rax=undefined  r12=[cfa-16]  r13=[cfa+24]  r14=cfa+8  r15=same
#|   0x53  cfa=rsp+8  ra=[cfa-8]  rax=undefined  r12=[cfa-16]  r13=[cfa+24]  r14=cfa+8  r15=same
#|   0x93  cfa=rsp+16  ra=[cfa-8]  rax=undefined  r12=[cfa-16]  r13=[cfa+24]  r14=cfa+8  r15=same
#|   0x193  cfa=rsp+24  ra=[cfa-8]  rax=undefined  r12=[cfa-16]  r13=[cfa+24]  r14=cfa+8  r15=same
#|   0x10193  cfa=rsp+32  ra=[cfa-8]  rax=undefined  r12=[cfa-16]  r13=[cfa+24]  r14=cfa+8  r15=same
	.text
f:	.cfi_startproc
	nop
	.cfi_def_cfa %rsp, 16
	nop
	.cfi_def_cfa_register %rbp
	nop
	.cfi_def_cfa_offset 32
	nop
	.cfi_adjust_cfa_offset -8
	nop
	.cfi_offset %rbx, -24
	nop
	.cfi_rel_offset %r12, 8
	nop
	.cfi_offset 80, -64		# DW_CFA_offset_extended
	nop
	.cfi_offset %r13, 24		# DW_CFA_offset_extended_sf
	nop
	.cfi_val_offset %r14, -8
	nop
	.cfi_val_offset %r14, 8		# DW_CFA_val_offset_sf
	nop
	.cfi_register %rbx, %rcx
	nop
	.cfi_same_value %r15
	nop
	.cfi_undefined %rax
	nop
	.cfi_restore %rbx		# nothing to restore: no rule
	nop
	.cfi_restore 80			# DW_CFA_restore_extended
	nop
	.cfi_restore %rip		# the CIE's rule stays
	nop
	.cfi_undefined %rip
	nop
	.cfi_restore %rip
	nop
	.cfi_def_cfa_offset -32		# DW_CFA_def_cfa_offset_sf
	nop
	.cfi_def_cfa %rsp, -64		# DW_CFA_def_cfa_sf
	.skip 63
	.cfi_def_cfa_offset 8
	.skip 64			# DW_CFA_advance_loc1
	.cfi_def_cfa_offset 16
	.skip 256			# DW_CFA_advance_loc2
	.cfi_def_cfa_offset 24
	.skip 0x10000			# DW_CFA_advance_loc4
	.cfi_def_cfa_offset 32
	nop
	.cfi_endproc
