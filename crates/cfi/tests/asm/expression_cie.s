# readelf differs: its first row of an entry has no expression of the CIE
# The CIE ends with an expression: the offset from before it holds where the FDE leaves it.
#| arch x86-64 little
#| fn 0x0..0x10
#|   0x0  cfa={breg7 8; deref}
#|   0x4  cfa=rbp+56
	.text
	.skip	0x10
	.section .eh_frame, "a"
cie:	.long	1f - 0f
0:	.long	0
	.byte	1
	.asciz	""
	.uleb128 1
	.sleb128 -8
	.byte	16
	.byte	0x0c, 7, 56, 0x0f, 3, 0x77, 8, 0x06
	.balign	4
1:	.long	3f - 2f
2:	.long	. - cie
	.quad	.text
	.quad	0x10
	.byte	0x44, 0x0d, 6
	.balign	4
3:	.long	0
