# Operations of expressions, with operands of every kind.
#| arch x86-64 little
#| fn 0x0..0xb
#|   0x0  cfa=rsp+8  ra=[cfa-8]
#|   0x1  cfa={addr 0x807060504030201}  ra=[cfa-8]
#|   0x2  cfa={const1u 255; const1s -1; minus; bregx 16 -1}  ra=[cfa-8]
#|   0x3  cfa={const2u 65281; const2s -255; plus; deref}  ra=[cfa-8]
#|   0x4  cfa={const4u 4278190081; const4s -16777215; plus}  ra=[cfa-8]
#|   0x5  cfa={constu 128; consts -128; plus}  ra=[cfa-8]
#|   0x6  cfa={breg0 0; breg31 -1; pick 1; deref_size 4; nop}  ra=[cfa-8]
#|   0x7  cfa={breg7 8; dup; bra 1; nop; skip 0; lit0; plus}  ra=[cfa-8]
#|   0x8  cfa={breg7 8; dup; bra 1; nop; skip 0; lit0; plus}  ra=[cfa-8]  rbx=[{drop; breg7 0; dup; over; swap; rot; abs; and; neg; not; or; lit31; shl; plus}]
#|   0x9  cfa={breg7 8; dup; bra 1; nop; skip 0; lit0; plus}  ra=[cfa-8]  rbx={lit5; div; lit1; mod; lit1; mul; lit1; shr; lit1; shra; lit1; xor}
#|   0xa  cfa={breg7 8; dup; bra 1; nop; skip 0; lit0; plus}  ra=[cfa-8]  rbx={lit5; div; lit1; mod; lit1; mul; lit1; shr; lit1; shra; lit1; xor}  rbp={lit1; eq; lit1; ge; lit1; gt; lit1; le; lit1; lt; lit1; ne}
	.text
f:	.cfi_startproc
	nop
	.cfi_escape 0x0f, 9, 0x03, 1, 2, 3, 4, 5, 6, 7, 8		# addr
	nop
	.cfi_escape 0x0f, 8, 0x08, 255, 0x09, 255, 0x1c, 0x92, 0x10, 0x7f	# const1u, const1s, minus, bregx
	nop
	.cfi_escape 0x0f, 8, 0x0a, 1, 255, 0x0b, 1, 255, 0x22, 0x06	# const2u, const2s
	nop
	.cfi_escape 0x0f, 11, 0x0c, 1, 0, 0, 255, 0x0d, 1, 0, 0, 255, 0x22	# const4u, const4s
	nop
	.cfi_escape 0x0f, 7, 0x10, 0x80, 1, 0x11, 0x80, 0x7f, 0x22	# constu, consts
	nop
	.cfi_escape 0x0f, 9, 0x70, 0, 0x8f, 0x7f, 0x15, 1, 0x94, 4, 0x96	# breg0, breg31, pick, deref_size, nop
	nop
	.cfi_escape 0x0f, 12, 0x77, 8, 0x12, 0x28, 1, 0, 0x96, 0x2f, 0, 0, 0x30, 0x22	# dup, bra, skip, lit0
	nop
	.cfi_escape 0x10, 3, 15, 0x13, 0x77, 0, 0x12, 0x14, 0x16, 0x17, 0x19, 0x1a, 0x1f, 0x20, 0x21, 0x4f, 0x24, 0x22
	nop
	.cfi_escape 0x16, 3, 12, 0x35, 0x1b, 0x31, 0x1d, 0x31, 0x1e, 0x31, 0x25, 0x31, 0x26, 0x31, 0x27
	nop
	.cfi_escape 0x16, 6, 12, 0x31, 0x29, 0x31, 0x2a, 0x31, 0x2b, 0x31, 0x2c, 0x31, 0x2d, 0x31, 0x2e
	nop
	.cfi_endproc
