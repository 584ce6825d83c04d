# The same rows in both sections.
#| arch x86-64 little
#| fn 0x0..0x2
#|   0x0  cfa=rsp+8  ra=[cfa-8]
#|   0x1  cfa=rsp+16  ra=[cfa-8]  rbx=[cfa-16]
#| fn 0x0..0x1
#|   0x0  cfa=rsp+8  ra=[cfa-8]
#| arch x86-64 little
#| fn 0x0..0x2
#|   0x0  cfa=rsp+8  ra=[cfa-8]
#|   0x1  cfa=rsp+16  ra=[cfa-8]  rbx=[cfa-16]
#| fn 0x0..0x1
#|   0x0  cfa=rsp+8  ra=[cfa-8]
	.cfi_sections .eh_frame, .debug_frame
	.text
f:	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	nop
	.cfi_endproc
	.section .text.cold
g:	.cfi_startproc
	nop
	.cfi_endproc
