# readelf differs: it does not evaluate a CIE that it has not come to
# An FDE stands before its CIE, in both sections.
#| arch x86-64 little
#| fn 0x3000..0x3010
#|   0x3000  cfa=rsp+8  ra=[cfa-8]
#|   0x3004  cfa=rsp+48  ra=[cfa-8]
#| arch x86-64 little
#| fn 0x4000..0x4010
#|   0x4000  cfa=rsp+8  ra=[cfa-8]
#|   0x4004  cfa=rsp+64  ra=[cfa-8]
	.section .debug_frame
	.long	3f - 2f
2:	.long	cie - .debug_frame
	.quad	0x3000
	.quad	0x10
	.byte	0x44, 0x0e, 48
	.balign	8
3:
cie:	.long	1f - 0f
0:	.long	-1
	.byte	1
	.asciz	""
	.uleb128 1
	.sleb128 -8
	.byte	16
	.byte	0x0c, 7, 8, 0x90, 1
	.balign	8
1:
	.section .eh_frame, "a"
	.long	3f - 2f
2:	.long	. - cie_eh			# less than 0
	.quad	0x4000
	.quad	0x10
	.byte	0x44, 0x0e, 64
	.balign	4
3:
cie_eh:	.long	1f - 0f
0:	.long	0
	.byte	1
	.asciz	""
	.uleb128 1
	.sleb128 -8
	.byte	16
	.byte	0x0c, 7, 8, 0x90, 1
	.balign	4
1:
