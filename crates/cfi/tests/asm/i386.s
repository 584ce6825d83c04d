# as: as --32
# i386: position-independent code, arguments pushed before a call that may throw.
#| arch i386 little
#| fn 0x0..0x7 personality=[0x0] lsda=0x4
#|   0x0  cfa=esp+4  ra=[cfa-4]
#|   0x1  cfa=esp+8  ra=[cfa-4]  ebp=[cfa-8]
#|   0x3  cfa=ebp+8  args=16  ra=[cfa-4]  ebp=[cfa-8]
#|   0x5  cfa=ebp+8  ra=[cfa-4]  ebp=[cfa-8]
#|   0x6  cfa=esp+4  ra=[cfa-4]
#| fn 0x7..0x8
#|   0x7  cfa={breg4 4; breg8 0; lit15; and; lit11; ge; lit2; shl; plus}  ra=[cfa-4]
#| fn 0x8..0x9
#|   0x8  cfa={breg5 -4; deref}  ra=[cfa-4]  ebp=[{breg5 0}]
	.text
f:	.cfi_startproc
	.cfi_personality 0x9b, pointer
	.cfi_lsda 0x1b, data
	push	%ebp
	.cfi_def_cfa_offset 8
	.cfi_offset %ebp, -8
	mov	%esp, %ebp
	.cfi_def_cfa_register %ebp
	.cfi_escape 0x2e, 16
	push	$1
	.cfi_escape 0x2e, 0
	leave
	.cfi_restore %ebp
	.cfi_def_cfa %esp, 4
	ret
	.cfi_endproc
plt:	.cfi_startproc
	# breg4 4; breg8 0; lit15; and; lit11; ge; lit2; shl; plus
	.cfi_escape 0x0f, 0x0b, 0x74, 4, 0x78, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x32, 0x24, 0x22
	nop
	.cfi_endproc
main:	.cfi_startproc
	# the stack is aligned: the CFA is in memory
	.cfi_escape 0x0f, 3, 0x75, 0x7c, 0x06
	.cfi_escape 0x10, 5, 2, 0x75, 0
	nop
	.cfi_endproc
	.data
pointer: .long	0
data:	.long	0
