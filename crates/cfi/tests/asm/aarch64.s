# as: aarch64-linux-gnu-as
# AArch64: signed return addresses over remembered states, the B key, vector registers.
#| arch aarch64 little
#| fn 0x5000..0x5040
#|   0x5000  cfa=sp+0
#|   0x5004  cfa=sp+16  signed  x30=[cfa-16]
#| fn 0x0..0x1c
#|   0x0  cfa=sp+0
#|   0x4  cfa=sp+0  signed
#|   0x8  cfa=sp+32  signed  x30=[cfa-24]  x29=[cfa-32]  v8=[cfa-16]  v9=[cfa-8]
#|   0xc  cfa=x29+32  signed  x30=[cfa-24]  x29=[cfa-32]  v8=[cfa-16]  v9=[cfa-8]
#|   0x10  cfa=sp+0  signed
#|   0x14  cfa=sp+0
#|   0x18  cfa=sp+32  signed  x30=[cfa-24]  x29=[cfa-32]
#| fn 0x1c..0x24
#|   0x1c  cfa=sp+0
#|   0x20  cfa=sp+0  signed
	.text
f:	.cfi_startproc
	hint	#25			// paciasp
	.cfi_negate_ra_state
	stp	x29, x30, [sp, -32]!
	.cfi_def_cfa_offset 32
	.cfi_offset x29, -32
	.cfi_offset x30, -24
	.cfi_remember_state
	.cfi_offset d8, -16
	.cfi_offset d9, -8
	mov	x29, sp
	.cfi_def_cfa_register x29
	nop
	.cfi_restore x30
	.cfi_restore x29
	.cfi_restore d8
	.cfi_restore d9
	.cfi_def_cfa sp, 0
	hint	#29			// autiasp
	.cfi_negate_ra_state
	ret
	.cfi_restore_state
	nop
	.cfi_endproc
g:	.cfi_startproc
	.cfi_b_key_frame
	hint	#27			// pacibsp
	.cfi_negate_ra_state
	nop
	.cfi_endproc
	.section .eh_frame
cie:	.word	1f - 0f			// tagged memory: G
0:	.word	0
	.byte	3
	.asciz	"zRG"
	.uleb128 4
	.sleb128 -8
	.uleb128 30
	.uleb128 1
	.byte	0x03
	.byte	0x0c, 31, 0
	.balign	4
1:	.word	3f - 2f
2:	.word	. - cie
	.word	0x5000
	.word	0x40
	.uleb128 0
	.byte	0x41, 0x0e, 16, 0x9e, 2, 0x2d
	.balign	4
3:
