# as: as --gdwarf-cie-version=3
# .debug_frame with CIEs of version 3: the return-address column is a LEB128 number.
#| arch x86-64 little
#| fn 0x0..0x2
#|   0x0  cfa=rsp+8  ra=[cfa-8]
#|   0x1  cfa=rsp+16  ra=[cfa-8]
#| fn 0x2..0x3
#|   0x2  cfa=rsp+8  return=reg100  ra=[cfa-8]
#| fn 0x3..0x4
#|   0x3  cfa=undefined
	.cfi_sections .debug_frame
	.text
f:	.cfi_startproc
	nop
	.cfi_def_cfa_offset 16
	nop
	.cfi_endproc
g:	.cfi_startproc
	.cfi_return_column 100
	nop
	.cfi_endproc
h:	.cfi_startproc simple
	nop
	.cfi_endproc
