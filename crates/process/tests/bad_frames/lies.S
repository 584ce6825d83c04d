// Functions that damage their own frame, and functions whose unwind tables lie. None returns.
//
// The frames that they call are sound: `middle` calls `inner`, and that `reached`. Behind the call of
// each function is a label with its name and `after_` before it: the return address that is expected.

	.text

	.macro	begin name
	.globl	\name
	.type	\name, @function
\name:
	.cfi_startproc
	.endm

	.macro	finish name, callee=middle
	call	\callee@PLT
	.globl	after_\name
after_\name:
7:
	hlt
	.cfi_endproc
	.size	\name, . - \name
	.endm

	begin	inner
	push	%r12
	.cfi_def_cfa_offset 16
	.cfi_offset %r12, -16
	finish	inner, reached

	begin	middle
	sub	$40, %rsp
	.cfi_def_cfa_offset 48
	finish	middle, inner

// A sound frame whose caller's frame pointer and return address are overwritten:
// void smash(uint64_t frame_pointer, uint64_t return_address).
	begin	smash
	push	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	mov	%rdi, (%rbp)
	mov	%rsi, 8(%rbp)
	finish	smash

// The frame pointer itself is overwritten: void bad_frame_pointer(uint64_t frame_pointer).
	begin	bad_frame_pointer
	push	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	mov	%rdi, %rbp
	.cfi_def_cfa_register %rbp
	finish	bad_frame_pointer

// The same with no table at all.
	.globl	bad_frame_pointer_no_table
	.type	bad_frame_pointer_no_table, @function
bad_frame_pointer_no_table:
	push	%rbp
	mov	%rdi, %rbp
	call	middle@PLT
	.globl	after_bad_frame_pointer_no_table
after_bad_frame_pointer_no_table:
	hlt
	.size	bad_frame_pointer_no_table, . - bad_frame_pointer_no_table

// A stack that ends above this frame: void on_stack(uint64_t stack_pointer).
	begin	on_stack
	mov	%rdi, %rsp
	finish	on_stack

// All of a stretch of the stack is overwritten, as by a string that is too long:
// void overrun(uint64_t word, uint64_t words).
	begin	overrun
	push	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	mov	%rdi, %rax
	mov	%rsi, %rcx
	mov	%rbp, %rdi
	rep stosq
	finish	overrun

// `middle` returns to a signal handler's trampoline above which lies a record of an interrupted frame:
// void fake_signal(uint64_t pc, uint64_t stack_pointer, uint64_t trampoline). Without a stack
// pointer it is that of `middle`.
	begin	fake_signal
	sub	$264, %rsp
	.cfi_def_cfa_offset 272
	lea	-48(%rsp), %rax
	test	%rsi, %rsi
	cmove	%rax, %rsi
	movq	$0, 120(%rsp)
	mov	%rsi, 160(%rsp)
	mov	%rdi, 168(%rsp)
	push	%rdx
	jmp	middle@PLT
	.cfi_endproc
	.size	fake_signal, . - fake_signal

// The innermost frame is bad: it faults.
	begin	wild_stack_pointer
	mov	%rdi, %rsp
	.globl	after_wild_stack_pointer
after_wild_stack_pointer:
	ud2
	.cfi_endproc
	.size	wild_stack_pointer, . - wild_stack_pointer

	begin	wild_frame_pointer
	push	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	mov	%rdi, %rbp
	.cfi_def_cfa_register %rbp
	.globl	after_wild_frame_pointer
after_wild_frame_pointer:
	ud2
	.cfi_endproc
	.size	wild_frame_pointer, . - wild_frame_pointer

	begin	wild_call
	sub	$8, %rsp
	.cfi_def_cfa_offset 16
	.globl	at_wild_call
at_wild_call:
	call	*%rdi
	.globl	after_wild_call
after_wild_call:
	hlt
	.cfi_endproc
	.size	wild_call, . - wild_call

// Functions of one shape, whose tables say what they like: void f(uint64_t rbx). The section `lies` has
// their names and addresses.
	.macro	lie name, rules
	.pushsection .rodata
8:	.asciz	"\name"
	.popsection
	.pushsection lies, "aw"
	.quad	8b, \name
	.popsection
	begin	\name
	push	%rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	mov	%rdi, %rbx
	\rules
	finish	\name
	.endm

	// The CFA.
	lie	cfa_far_above, ".cfi_def_cfa_offset 0x100000000000"
	lie	cfa_too_low, ".cfi_def_cfa_offset 8"
	lie	cfa_below, ".cfi_def_cfa_offset -64"
	lie	cfa_misaligned, ".cfi_def_cfa_offset 11"
	lie	cfa_by_rbx, ".cfi_def_cfa %rbx, 16"
	lie	cfa_by_unknown_register, ".cfi_def_cfa %rax, 16"
	lie	cfa_by_no_register, ".cfi_escape 0x0c, 99, 16"
	lie	cfa_dereferences_rbx, ".cfi_escape 0x0f, 3, 0x73, 0, 0x06"
	lie	cfa_expression_endless, ".cfi_escape 0x0f, 3, 0x2f, 0xfd, 0xff"
	lie	cfa_expression_endless_branch, ".cfi_escape 0x0f, 4, 0x31, 0x28, 0xfc, 0xff"
	lie	cfa_expression_deep, ".cfi_escape 0x0f, 5, 0x31, 0x12, 0x2f, 0xfc, 0xff"
	lie	cfa_expression_underflow, ".cfi_escape 0x0f, 1, 0x22"
	lie	cfa_expression_empty, ".cfi_escape 0x0f, 0"
	lie	cfa_expression_illegal, ".cfi_escape 0x0f, 2, 0x91, 0"
	lie	cfa_expression_cut_short, ".cfi_escape 0x0f, 3, 0x0e, 1, 2"
	lie	cfa_expression_branches_out, ".cfi_escape 0x0f, 4, 0x30, 0x2f, 0x64, 0"
	lie	cfa_expression_divides_by_zero, ".cfi_escape 0x0f, 3, 0x31, 0x30, 0x1b"
	lie	cfa_expression_needs_unknown, ".cfi_escape 0x0f, 2, 0x70, 0"

	// The return address.
	lie	ra_far_away, ".cfi_offset %rip, 0x100000000000"
	lie	ra_is_the_cfa, ".cfi_val_offset %rip, 0"
	lie	ra_in_rbx, ".cfi_register %rip, %rbx"
	lie	ra_in_unknown_register, ".cfi_register %rip, %rcx"
	lie	ra_undefined, ".cfi_undefined %rip"
	lie	ra_same_value, ".cfi_same_value %rip"
	lie	ra_at_expression, ".cfi_escape 0x10, 16, 2, 0x73, 0"
	lie	ra_of_expression, ".cfi_escape 0x16, 16, 2, 0x73, 0"
	lie	ra_expression_endless, ".cfi_escape 0x16, 16, 3, 0x2f, 0xfd, 0xff"

	// Registers that later frames may need, or not.
	lie	rbx_far_away, ".cfi_offset %rbx, 0x100000000000"
	lie	rbx_expression_endless, ".cfi_escape 0x10, 3, 3, 0x2f, 0xfd, 0xff"
	lie	rbp_far_away, ".cfi_offset %rbp, 0x100000000000"
	lie	rbp_in_unknown_register, ".cfi_register %rbp, %rdx"
	lie	rbp_of_bad_expression, ".cfi_escape 0x16, 6, 2, 0x30, 0x06"
	lie	rsp_far_away, ".cfi_offset %rsp, 0x100000000000"
	lie	rsp_below, ".cfi_val_offset %rsp, -4096"

	// Circles, and walks that never come back to a frame. The return address is in rbx, which stays.
	.macro	lie_to_itself name, offset
	lie	\name, "lea 7f(%rip), %rbx; .cfi_def_cfa_offset \offset; .cfi_same_value %rbx; .cfi_register %rip, %rbx"
	.endm
	lie_to_itself	circle, 0
	lie_to_itself	climbs_for_ever, 16
	lie_to_itself	falls_for_ever, -16

	// Bad entries. The linker would make no search table for a file with the first two: these hold an
	// expression for r15, of which the tests make the bad instruction.
	lie	entry_cut_short, ".cfi_escape 0x16, 15, 4, 0x63, 0x75, 0x74, 0x21"
	lie	entry_unknown_instruction, ".cfi_escape 0x16, 15, 4, 0x6e, 0x65, 0x77, 0x21"
	lie	entry_restores_nothing, ".cfi_escape 0x0b"
	lie	entry_remembers_without_end, ".rept 300; .cfi_escape 0x0a; .endr"
	lie	entry_goes_back, ".cfi_escape 0x01, 0, 0, 0, 0, 0, 0, 0, 0"

	// Words beside the rows.
	lie	signal_frame, ".cfi_signal_frame"
	lie	bad_personality, ".cfi_personality 0x9b, bad_pointer; .cfi_lsda 0x1b, bad_pointer"

	.section .data.rel
bad_pointer:
	.quad	0x4141414141414141
	.text

// An entry that covers the next function, too, whose frame is larger.
	begin	covers_the_next
	sub	$8, %rsp
	.cfi_def_cfa_offset 16
	ret
	.globl	covered_by_another
	.type	covered_by_another, @function
covered_by_another:
	sub	$72, %rsp
	movq	$0x10000, 8(%rsp)
	finish	covers_the_next

	.section .note.GNU-stack, "", @progbits
