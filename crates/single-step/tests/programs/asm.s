# Functions that are right, but for those whose names begin with wrong.
	.text
	.globl	right
	.type	right, @function
right:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	mov	%edi, %ebx
	lea	1(%rbx), %eax
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	right, . - right

	.globl	wrong
	.type	wrong, @function
wrong:
	.cfi_startproc
	push	%rbx
	mov	%edi, %ebx
	lea	1(%rbx), %eax
	pop	%rbx
	ret
	.cfi_endproc
	.size	wrong, . - wrong

# The slot is declared a word too low, and the register that the CFA is counted from is the caller's already.
	.globl	wrong_places
	.type	wrong_places, @function
wrong_places:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register	%rbp
	push	%rbx
	.cfi_offset	%rbx, -32
	nop
	mov	%edi, %ebx
	lea	1(%rbx), %eax
	pop	%rbx
	.cfi_restore	%rbx
	pop	%rbp
	.cfi_restore	%rbp
	ret
	.cfi_endproc
	.size	wrong_places, . - wrong_places

# Comes back behind two bytes of data, which it steps over one by one.
	.globl	skips_data
	.type	skips_data, @function
skips_data:
	.cfi_startproc
	mov	$2, %ecx
1:	incq	(%rsp)
	dec	%ecx
	jnz	1b
	lea	1(%rdi), %eax
	ret
	.cfi_endproc
	.size	skips_data, . - skips_data

	.globl	has_data
	.type	has_data, @function
has_data:
	.cfi_startproc
	sub	$8, %rsp
	.cfi_def_cfa_offset	16
	call	skips_data
	.byte	0x0f, 0x0b
	add	$8, %rsp
	.cfi_def_cfa_offset	8
	ret
	.cfi_endproc
	.size	has_data, . - has_data

# Calls what it is given, which may not come back.
	.globl	calls
	.type	calls, @function
calls:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register	%rbp
	mov	%rdi, %rax
	mov	%rsi, %rdi
	sub	$32, %rsp
	call	*%rax
	leave
	.cfi_def_cfa	%rsp, 8
	.cfi_restore	%rbp
	ret
	.cfi_endproc
	.size	calls, . - calls

# Jumps to what it is given, with one argument.
	.globl	jumps
	.type	jumps, @function
jumps:
	.cfi_startproc
	mov	%rdi, %rax
	mov	%esi, %edi
	jmp	*%rax
	.cfi_endproc
	.size	jumps, . - jumps

# Counts down, and has a way that only few take: the 1000th entry.
	.globl	loops
	.type	loops, @function
loops:
	.cfi_startproc
	push	%r12
	.cfi_def_cfa_offset	16
	.cfi_offset	%r12, -16
	mov	%edi, %r12d
1:	sub	$1, %r12d
	jnz	1b
	addl	$1, entries(%rip)
	cmpl	$1000, entries(%rip)
	jl	2f
	push	%r12
	.globl	rare
rare:
	nop
	pop	%r12
2:	pop	%r12
	.cfi_def_cfa_offset	8
	.cfi_restore	%r12
	ret
	.cfi_endproc
	.size	loops, . - loops

# Begins with memory that it names by a distance, calls what it names so, and jumps on.
	.globl	reads
	.type	reads, @function
reads:
	.cfi_startproc
	mov	thousand(%rip), %edi
	cmpl	$1000, thousand(%rip)
	jne	2f
	sub	$8, %rsp
	.cfi_def_cfa_offset	16
	call	right
	call	*minus(%rip)
	add	$8, %rsp
	.cfi_def_cfa_offset	8
2:	ret
	.cfi_endproc
	.size	reads, . - reads

	.type	one_less, @function
one_less:
	.cfi_startproc
	dec	%eax
	ret
	.cfi_endproc
	.size	one_less, . - one_less

# Calls what takes its argument off the stack, which the code here does not show.
	.globl	misleads
	.type	misleads, @function
misleads:
	.cfi_startproc
	mov	popping(%rip), %rax
	dec	%rax
	push	$1
	.cfi_def_cfa_offset	16
	call	*%rax
	.cfi_def_cfa_offset	8
	nop
	ret
	.cfi_endproc
	.size	misleads, . - misleads

	.type	pops, @function
pops:
	.cfi_startproc
	mov	8(%rsp), %rax
	ret	$8
	.cfi_endproc
	.size	pops, . - pops

# Moves the stack by what it is given.
	.globl	moves
	.type	moves, @function
moves:
	.cfi_startproc
	sub	%rdi, %rsp
	.cfi_escape	0x0f, 5, 0x77, 8, 0x75, 0, 0x22	# cfa = rsp+8+rdi
	nop
	add	%rdi, %rsp
	.cfi_def_cfa	%rsp, 8
	ret
	.cfi_endproc
	.size	moves, . - moves

	.data
	.balign	8
minus:	.quad	one_less
popping:
	.quad	pops + 1
thousand:
	.long	1000
	.text

# Calls itself, the last time of 1000 from elsewhere on the stack, to take another way, and to call. Nobody steps that call
# of itself: all before it were alike.
	.globl	recurses
	.type	recurses, @function
recurses:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register	%rbp
	push	%rbx
	.cfi_offset	%rbx, -24
	cmp	$1, %edi
	je	2f
	ja	3f
	mov	$1000, %ebx
1:	xor	%edi, %edi
	cmp	$1, %ebx
	sete	%dil
	inc	%edi
	mov	%edi, %eax
	shl	$5, %eax
	sub	%rax, %rsp
	call	recurses
	lea	-8(%rbp), %rsp
	dec	%ebx
	jnz	1b
	jmp	2f
3:	mov	%edi, %ebx
	call	right
	nop
2:	pop	%rbx
	.cfi_restore	%rbx
	pop	%rbp
	.cfi_def_cfa	%rsp, 8
	.cfi_restore	%rbp
	ret
	.cfi_endproc
	.size	recurses, . - recurses

# Calls itself behind some turns, as deep as it is told, and takes the next way each time: descends(depth, turns, way).
	.globl	descends
	.type	descends, @function
descends:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	mov	%edi, %ebx
	lea	1f(%rip), %rax
	lea	(%rax,%rdx,8), %rax
	inc	%edx
	jmp	*%rax
	.p2align 3
1:	.rept	11
	.p2align 3
	nop
	jmp	2f
	.endr
2:	mov	%esi, %ecx
3:	dec	%ecx
	jnz	3b
	lea	-1(%rbx), %edi
	test	%ebx, %ebx
	jnz	4f
	pop	%rbx
	.cfi_remember_state
	.cfi_restore	%rbx
	.cfi_def_cfa_offset	8
	ret
4:	.cfi_restore_state
	call	descends
	pop	%rbx
	.cfi_restore	%rbx
	.cfi_def_cfa_offset	8
	ret
	.cfi_endproc
	.size	descends, . - descends

# Does not end.
	.globl	endless
	.type	endless, @function
endless:
	.cfi_startproc
	jmp	endless
	.cfi_endproc
	.size	endless, . - endless

# Goes to another stack and back: switch_stack(&from, to).
	.globl	switch_stack
	.type	switch_stack, @function
switch_stack:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbp, -16
	push	%rbx
	.cfi_def_cfa_offset	24
	.cfi_offset	%rbx, -24
	push	%r12
	.cfi_def_cfa_offset	32
	.cfi_offset	%r12, -32
	mov	%rsp, (%rdi)
	mov	%rsi, %rsp
	pop	%r12
	.cfi_def_cfa_offset	24
	.cfi_restore	%r12
	pop	%rbx
	.cfi_def_cfa_offset	16
	.cfi_restore	%rbx
	pop	%rbp
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbp
	ret
	.cfi_endproc
	.size	switch_stack, . - switch_stack

# Goes on in a part of its own, with the address of its own on top of the stack that a call has left there.
	.globl	stale_word
	.type	stale_word, @function
stale_word:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	call	leaves_a_word
	mov	$7, %ebx
	sub	$8, %rsp
	.cfi_def_cfa_offset	24
	jmp	stale_word_part
1:	call	leaves_a_word
	add	$8, %rsp
	.cfi_def_cfa_offset	16
	lea	(%rdi, %rbx), %rax
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	stale_word, . - stale_word
	.type	stale_word_part, @function
stale_word_part:
	.cfi_startproc
	.cfi_def_cfa_offset	24
	.cfi_offset	%rbx, -16
	nop
	jmp	1b
	.cfi_endproc
	.size	stale_word_part, . - stale_word_part
	.type	leaves_a_word, @function
leaves_a_word:
	.cfi_startproc
	ret
	.cfi_endproc
	.size	leaves_a_word, . - leaves_a_word

# An exit that functions share has no type, and is called by nobody. Its first row says nothing of %r12.
	.globl	wrong_exit
wrong_exit:
	.cfi_startproc
	.cfi_def_cfa_offset	24
	.cfi_offset	%rbx, -16
	lea	(%rbx,%r12), %rax
	pop	%r12
	.cfi_def_cfa_offset	16
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	ret
	.cfi_endproc

	.globl	shares
	.type	shares, @function
shares:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	push	%r12
	.cfi_def_cfa_offset	24
	.cfi_offset	%r12, -24
	mov	%rdi, %rbx
	lea	1(%rdi), %r12
	jmp	wrong_exit
	.cfi_endproc
	.size	shares, . - shares

	.bss
	.balign	4
entries:
	.skip	4
	.section .note.GNU-stack, "", @progbits
