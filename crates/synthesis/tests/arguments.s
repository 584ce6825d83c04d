# A function without a frame pointer that pushes arguments. Exceptions land with the stack as it is without them, as
# clang has it.
	.text
	.p2align 4
begin:
	.cfi_startproc
	.cfi_lsda 0x1b, area
	push %rbx
	.cfi_adjust_cfa_offset 8
	.cfi_offset rbx, -16
first:
	call callee
first_end:
	sub $8, %rsp
	.cfi_adjust_cfa_offset 8
	push $1
	.cfi_adjust_cfa_offset 8
	.cfi_escape 0x2e, 16
second:
	call callee
second_end:
	add $16, %rsp
	.cfi_adjust_cfa_offset -16
	.cfi_escape 0x2e, 0
	.cfi_remember_state
	pop %rbx
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_restore_state
first_pad:
	mov %rax, %rdi
	call callee
	ud2
second_pad:
	mov %rax, %rbx
	call callee
	ud2
	.cfi_endproc
	.p2align 4
callee:
	.cfi_startproc
	ret
	.cfi_endproc

	.section .gcc_except_table, "a", @progbits
area:
	# Pads are counted from the start; there are no types; numbers are of any length.
	.byte 0xff, 0xff, 1
	.uleb128 sites_end - sites
sites:
	.uleb128 first - begin
	.uleb128 first_end - first
	.uleb128 first_pad - begin
	.uleb128 0
	.uleb128 second - begin
	.uleb128 second_end - second
	.uleb128 second_pad - begin
	.uleb128 0
sites_end:
