# bug: like libunwind PR 54 and objtool's linux #1234: code behind a call that does not return
# wrong: the code behind a call that does not return belongs to another path; it inherits the height of the call
# expect: refuted other

	.text
	.globl	f
	.type	f, @function
f:
	.cfi_startproc
	sub	$8, %rsp
	.cfi_def_cfa_offset	16
	test	%edi, %edi
	jne	.Lother
	push	$1
	.cfi_def_cfa_offset	24
	push	$2
	.cfi_def_cfa_offset	32
	call	finish
.Lother:
	.ifndef	WRONG
	.cfi_def_cfa_offset	16
	.endif
other:
	mov	%edi, %eax
	add	$8, %rsp
	.cfi_def_cfa_offset	8
	ret
	.cfi_endproc
	.size	f, . - f

	.globl	finish
	.type	finish, @function
finish:
	.cfi_startproc
	xor	%edi, %edi
	mov	$60, %eax		# exit
	syscall
	hlt
	.cfi_endproc
	.size	finish, . - finish

	.globl	main
	.type	main, @function
main:
	.cfi_startproc
	mov	$3, %edi
	call	f
	xor	%edi, %edi
	call	f
	.cfi_endproc
	.size	main, . - main
