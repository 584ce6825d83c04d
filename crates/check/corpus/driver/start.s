# What runs the main function of a pair without a C library: every register that functions have to
# preserve has a value that tells it, since the kernel starts programs with zeros, which are easily
# the right value by chance.
	.text
	.globl	_start
	.type	_start, @function
_start:
	.cfi_startproc
	.cfi_undefined %rip
	# Functions that align the stack pointer find it so in each run.
	and	$-4096, %rsp
	xor	%edi, %edi
	mov	$0x0b0b0b0b0b0b, %rbx
	mov	$0x060606060606, %rbp
	mov	$0x121212121212, %r12
	mov	$0x131313131313, %r13
	mov	$0x141414141414, %r14
	mov	$0x151515151515, %r15
	call	main
	mov	%eax, %edi
	mov	$60, %eax		# exit
	syscall
	.cfi_endproc
	.size	_start, . - _start

# A compilation unit that has all code. gdb takes over at the last instruction of functions that no
# compilation unit has, or one of a compiler as old as GCC 4.4, and does not ask the unwind table
# there (amd64_stack_frame_destroyed_p).
	.section .debug_abbrev, "", @progbits
	.uleb128 1
	.uleb128 0x11			# DW_TAG_compile_unit
	.byte	0			# without children
	.uleb128 0x25, 0x08		# DW_AT_producer, DW_FORM_string
	.uleb128 0x13, 0x05		# DW_AT_language, DW_FORM_data2
	.uleb128 0x03, 0x08		# DW_AT_name, DW_FORM_string
	.uleb128 0x11, 0x01		# DW_AT_low_pc, DW_FORM_addr
	.uleb128 0x12, 0x01		# DW_AT_high_pc, DW_FORM_addr
	.byte	0, 0, 0
	.section .debug_info, "", @progbits
	.long	2f - 1f
1:	.short	4			# DWARF 4
	.long	.debug_abbrev
	.byte	8
	.uleb128 1
	.asciz	"GNU C17 12.2.0"
	.short	12			# DW_LANG_C99
	.asciz	"corpus"
	.quad	__executable_start
	.quad	etext
2:
	.section .note.GNU-stack, "", @progbits
