# Personality routines and LSDAs in several encodings, present and absent; signal frames.
#| arch x86-64 little
#| fn 0x0..0x1 personality=0x8 lsda=0x18
#|   0x0  cfa=rsp+8  ra=[cfa-8]
#| fn 0x1..0x2 personality=[0x8] lsda=0x18
#|   0x1  cfa=rsp+8  ra=[cfa-8]
#| fn 0x2..0x3 personality=0x8 lsda=0x18
#|   0x2  cfa=rsp+8  ra=[cfa-8]
#| fn 0x3..0x4 personality=0x8 lsda=0x18
#|   0x3  cfa=rsp+8  ra=[cfa-8]
#| fn 0x4..0x5 personality=0x8 lsda=0x18
#|   0x4  cfa=rsp+8  ra=[cfa-8]
#| fn 0x5..0x6 personality=0x8
#|   0x5  cfa=rsp+8  ra=[cfa-8]
#| fn 0x6..0x7
#|   0x6  cfa=rsp+8  signal  ra=[cfa-8]
#| fn 0x7..0x8
#|   0x7  cfa=rsp+8  return=rdi  ra=[cfa-8]
	.text
direct:	.cfi_startproc
	.cfi_personality 0x1b, handler
	.cfi_lsda 0x1b, data
	nop
	.cfi_endproc
indirect: .cfi_startproc
	.cfi_personality 0x9b, pointer
	.cfi_lsda 0x1b, data
	nop
	.cfi_endproc
absolute: .cfi_startproc
	.cfi_personality 0x00, handler
	.cfi_lsda 0x00, data
	nop
	.cfi_endproc
short:	.cfi_startproc
	.cfi_personality 0x03, handler
	.cfi_lsda 0x0b, data
	nop
	.cfi_endproc
wide:	.cfi_startproc
	.cfi_personality 0x1c, handler
	.cfi_lsda 0x1c, data
	nop
	.cfi_endproc
cleanup: .cfi_startproc
	.cfi_personality 0x1b, handler
	nop
	.cfi_endproc
signal:	.cfi_startproc
	.cfi_signal_frame
	nop
	.cfi_endproc
column:	.cfi_startproc
	.cfi_return_column %rdi
	nop
	.cfi_endproc
handler: ret
	.data
	.quad	0
pointer: .quad handler
	.section .gcc_except_table, "a"
	.zero	24
data:	.byte	0
