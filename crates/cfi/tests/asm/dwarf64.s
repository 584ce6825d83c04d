# 64-bit DWARF in .debug_frame: lengths and CIE pointers of 8 bytes. Versions 1 and 4.
#| arch x86-64 little
#| fn 0x1000..0x1010
#|   0x1000  cfa=rsp+8  ra=[cfa-8]
#|   0x1004  cfa=rsp+16  ra=[cfa-8]
#| fn 0x2000..0x2010
#|   0x2000  cfa=rsp+8  ra=[cfa-8]
#|   0x2004  cfa=rsp+32  ra=[cfa-8]
#| fn 0x3000..0x3010
#|   0x3000  cfa=rsp+8  ra=[cfa-8]
#|   0x3004  cfa=rsp+48  ra=[cfa-8]
	.section .debug_frame
	.macro	cie version, sizes:vararg
	.long	0xffffffff
	.quad	1f - 0f
0:	.quad	-1
	.byte	\version
	.asciz	""
	.ifnb	\sizes
	.byte	\sizes
	.endif
	.uleb128 1
	.sleb128 -8
	.uleb128 16
	.byte	0x0c, 7, 8, 0x90, 1
	.balign	8
1:
	.endm
	.macro	fde cie, start, length, rest:vararg
	.long	0xffffffff
	.quad	3f - 2f
2:	.quad	\cie
	.quad	\start
	.quad	\length
	.byte	\rest
	.balign	8
3:
	.endm
	cie	1
	fde	0, 0x1000, 0x10, 0x44, 0x0e, 16
second:	cie	4, 8, 0
	fde	(second-.debug_frame), 0x2000, 0x10, 0x44, 0x0e, 32
	.long	3f - 2f				# a 32-bit FDE of a 64-bit CIE
2:	.long	0
	.quad	0x3000
	.quad	0x10
	.byte	0x44, 0x0e, 48
	.balign	8
3:
