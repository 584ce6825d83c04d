# A section that is written by hand: entries out of order, an FDE of nothing, terminators in the
# middle, overlaps, set_loc, a CFA that nothing defines, or only half of it.
#! .eh_frame entry at offset 0xb8: row at 0xb0 follows one at 0xb4
#| arch x86-64 little
#| fn 0x80..0x90
#|   0x80  cfa=rsp+8  ra=[cfa-8]
#| fn 0x10..0x50
#|   0x10  cfa=rsp+8  ra=[cfa-8]
#|   0x20  cfa=rsp+16  ra=[cfa-8]
#| fn 0x20..0x30
#|   0x20  cfa=rsp+8  ra=[cfa-8]
#|   0x24  cfa=rsp+32  ra=[cfa-8]
#| fn 0x20..0x28
#|   0x20  cfa=rsp+40  ra=[cfa-8]
#| fn 0x70..0x70
#| fn 0x60..0x70
#|   0x60  cfa=rsp+8  ra=[cfa-8]
#|   0x61  cfa=rsp+16  ra=[cfa-8]
#| fn 0x90..0xb0
#|   0x90  cfa=rsp+8  ra=[cfa-8]
#|   0x94  cfa=rsp+16  ra=[cfa-8]
#|   0xa0  cfa=rsp+24  ra=[cfa-8]
#| fn 0xd0..0xe0
#|   0xd0  cfa=rsp+8  signal  ra=[cfa-8]
#|   0xd8  cfa=rsp+8  signal  ra=[cfa-8]  xmm2=[cfa-12]
#| fn 0xe0..0xf0
#|   0xe0  cfa=undefined
#|   0xe4  cfa=undefined  rbx=[cfa-16]
#| fn 0xf0..0x100
#|   0xf0  cfa=undefined
#|   0xf4  cfa=rsp+0
#|   0xf8  cfa=rsp+16
	.text
	.skip	0x100
	.section .eh_frame, "a"
cie:	.long	1f - 0f
0:	.long	0
	.byte	1
	.asciz	"zR"
	.uleb128 1
	.sleb128 -8
	.byte	16
	.uleb128 1
	.byte	0x1b
	.byte	0x0c, 7, 8, 0x90, 1
	.balign	4
1:
	.macro	fde cie, start, length, rest:vararg
	.long	3f - 2f
2:	.long	. - \cie
	.long	.text + \start - .
	.long	\length
	.byte	0
	.ifnb	\rest
	\rest
	.endif
	.balign	4
3:
	.endm
	fde	cie, 0x80, 0x10
	fde	cie, 0x10, 0x40, .byte 0x50, 0x0e, 16
	fde	cie, 0x20, 0x10, .byte 0x44, 0x0e, 32	# inside the one before
	fde	cie, 0x20, 0x08, .byte 0x0e, 40		# the same start: the first counts
	fde	cie, 0x70, 0, .byte 0x0e, 48		# covers nothing
	.long	0
	.long	0
	fde	cie, 0x60, 0x10, .byte 0x41, 0x0e, 16
	# set_loc: a pointer in the encoding of the CIE
	.long	3f - 2f
2:	.long	. - cie
	.long	.text + 0x90 - .
	.long	0x20
	.byte	0
	.byte	0x01
	.long	.text + 0x94 - .
	.byte	0x0e, 16
	.byte	0x01
	.long	.text + 0xa0 - .
	.byte	0x0e, 24
	.balign	4
3:
	# set_loc backwards
	.long	3f - 2f
2:	.long	. - cie
	.long	.text + 0xb0 - .
	.long	0x10
	.byte	0, 0x44, 0x01
	.long	.text + 0xb0 - .
	.byte	0x0e, 24
	.balign	4
3:
cie_eh:	.long	1f - 0f
0:	.long	0
	.byte	1
	.asciz	"zRS"
	.uleb128 4
	.sleb128 -4
	.byte	16
	.uleb128 1
	.byte	0x1b
	.byte	0x0c, 7, 8, 0x90, 2
	.balign	4
1:	fde	cie_eh, 0xd0, 0x10, .byte 0x42, 0x93, 3
bare:	.long	1f - 0f					# nothing defines the CFA
0:	.long	0
	.byte	1
	.asciz	""
	.uleb128 1
	.sleb128 -8
	.byte	16
	.balign	4
1:	.long	3f - 2f
2:	.long	. - bare
	.quad	.text + 0xe0
	.quad	0x10
	.byte	0x44, 0x83, 2
	.balign	4
3:	.long	3f - 2f					# def_cfa_register: offset 0
2:	.long	. - bare
	.quad	.text + 0xf0
	.quad	0x10
	.byte	0x44, 0x0d, 7, 0x44, 0x0e, 16
	.balign	4
3:	.long	0
