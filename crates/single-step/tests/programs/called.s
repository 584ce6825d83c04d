# Functions that are called with values made up for their arguments, and end the process by ud2 if these, or what
# they point at, are not as promised.
	.text
	.globl	expects
	.type	expects, @function
expects:
	.cfi_startproc
	# The stack is aligned as behind a call.
	lea	8(%rsp), %rax
	test	$15, %al
	jnz	fails
	# The first argument is an address, and so is what it points at, and what that points at.
	test	$63, %dil
	jnz	fails
	mov	(%rdi), %rax
	mov	(%rax), %rax
	mov	%rax, (%rdi)
	# So is the first argument on the stack.
	mov	8(%rsp), %rax
	mov	(%rax), %rax
	# It is a size, too.
	cmp	%rdi, (%rdi,%rdi,8)
	# The second is 7, and the third is between -2 and 9.
	cmp	$7, %rsi
	jne	fails
	add	$2, %rdx
	cmp	$11, %rdx
	ja	fails
	# Nobody would mistake what is in registers that calls preserve.
	cmp	%rbx, %rbp
	je	fails
	cmp	%r12, %r13
	je	fails
	ret
	.globl	fails
fails:
	ud2
	.cfi_endproc
	.size	expects, . - expects

# Leaves two registers and the direction flag otherwise than they were.
	.globl	loses
	.type	loses, @function
loses:
	.cfi_startproc
	mov	$1, %r12d
	not	%rbp
	std
	ret
	.cfi_endproc
	.size	loses, . - loses

# Has a table that is right, and reads what is not there.
	.globl	crashes
	.type	crashes, @function
crashes:
	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset	16
	.cfi_offset	%rbx, -16
	mov	8, %eax
	pop	%rbx
	.cfi_def_cfa_offset	8
	.cfi_restore	%rbx
	ret
	.cfi_endproc
	.size	crashes, . - crashes

# Ends the process with 7.
	.globl	leaves
	.type	leaves, @function
leaves:
	.cfi_startproc
	mov	$7, %edi
	mov	$60, %eax
	syscall
	hlt
	.cfi_endproc
	.size	leaves, . - leaves

	.globl	turns
	.type	turns, @function
turns:
	.cfi_startproc
	jmp	turns
	.cfi_endproc
	.size	turns, . - turns
	.section .note.GNU-stack, "", @progbits
