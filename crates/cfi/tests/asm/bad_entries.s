# Bad entries among good ones: each is reported, and nothing else is lost.
#! .eh_frame entry at offset 0x2c: CIE version 2 is not supported
#! .eh_frame entry at offset 0x3c: its CIE at offset 0x2c is bad
#! .eh_frame entry at offset 0x54: augmentation `Q` is unknown; entries are read without it
#! .eh_frame entry at offset 0x84: the data after that of augmentation `R` cannot be found
#! .eh_frame entry at offset 0x98: its CIE at offset 0x84 is bad
#! .eh_frame entry at offset 0xb4: instruction 0x3f at offset 0xcc is unknown
#! .eh_frame entry at offset 0xd0: field at offset 0xea runs past the end 0xec
#! .eh_frame entry at offset 0xec: range of 0x10 bytes at 0xfffffffffffffff8 wraps around the address space
#! .eh_frame entry at offset 0x104: the CIE pointer leads to offset 0x88, where there is no CIE
#! .eh_frame entry at offset 0x11c: the CIE pointer leads to offset 0x14, where there is no CIE
#! .eh_frame entry at offset 0x134: the CIE pointer leads to offset -0x1000, before the section
#! .eh_frame entry at offset 0x14c: the CIE pointer leads to offset 0x1000, where there is no CIE
#! .eh_frame entry at offset 0x174: instruction at offset 0x18c gives an offset to a CFA without a register
#! .eh_frame entry at offset 0x190: register number 536870911 is too large
#! .eh_frame entry at offset 0x1cc: length 0x1000 runs past the section end 0x1d4
#| arch x86-64 little
#| fn 0x1000..0x1010
#|   0x1000  cfa=rsp+8  ra=[cfa-8]
#| fn 0x1200..0x1210
#|   0x1200  cfa=rsp+8
#| fn 0x2000..0x2010
#|   0x2000  cfa=rsp+8  ra=[cfa-8]
#|   0x2004  cfa=rsp+16  ra=[cfa-8]
	.section .eh_frame, "a"
	.macro	cie version, augmentation, rest:vararg
	.long	1f - 0f
0:	.long	0
	.byte	\version
	.asciz	"\augmentation"
	.uleb128 1
	.sleb128 -8
	.byte	16
	.byte	\rest
	.balign	4
1:
	.endm
	.macro	fde cie, start, length, rest:vararg
	.long	3f - 2f
2:	.long	. - \cie
	.quad	\start
	.quad	\length
	.ifnb	\rest
	.byte	\rest
	.endif
	.balign	4
3:
	.endm
good:	cie	1, "", 0x0c, 7, 8, 0x90, 1
entry:	fde	good, 0x1000, 0x10
version: cie	2, "", 0x0c, 7, 8
	fde	version, 0x1100, 0x10
letter:	cie	1, "zQ", 0, 0x0c, 7, 8
	fde	letter, 0x1200, 0x10, 0
without: cie	1, "R", 0x0c, 7, 8
	fde	without, 0x1300, 0x10, 0
	fde	good, 0x1400, 0x10, 0x3f		# unknown instruction
	fde	good, 0x1500, 0x10, 0x0f, 100		# expression past the end
	fde	good, -8, 0x10				# wraps around the address space
	fde	0b, 0x1600, 0x10			# CIE pointer into a CIE
	fde	entry, 0x1700, 0x10			# CIE pointer to an FDE
	fde	(good - 0x1000), 0x1710, 0x10		# CIE pointer out of the section
	fde	(good + 0x1000), 0x1720, 0x10
bare:	cie	1, "", 0
	fde	bare, 0x1800, 0x10, 0x0e, 16		# offset of a CFA that nothing defined
	fde	good, 0x1900, 0x10, 0x05, 0xff, 0xff, 0xff, 0xff, 1, 1 # register number
	fde	good, 0x2000, 0x10, 0x44, 0x0e, 16
	.long	0x1000					# past the end
	.long	0
