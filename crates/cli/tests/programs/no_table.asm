; Three functions without a table and without a frame pointer. One changes registers of its caller.
default rel
extern stopped
global outer:function
section .text

outer:
	sub	rsp, 24
	call	middle
	add	rsp, 24
	ret

middle:
	push	rbx
	push	r12
	xor	ebx, ebx
	xor	r12d, r12d
	sub	rsp, 8
	call	inner
	add	rsp, 8
	pop	r12
	pop	rbx
	ret

inner:
	sub	rsp, 0x108
	call	stopped
	add	rsp, 0x108
	ret

section .note.GNU-stack noalloc noexec nowrite progbits
