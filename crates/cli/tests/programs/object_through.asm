; Code of NASM, which writes no unwind tables: an exception passes through `through` and `helper`.
default rel
global through
extern callee
section .note.GNU-stack noalloc noexec nowrite progbits
section .text

through:
	push rbx
	mov rbx, rdi
	sub rsp, 32
	mov [rsp + 8], rdi
	call helper
	lea rax, [rbx + 1]
	add rsp, 32
	pop rbx
	ret

helper:
	push rbp
	mov rbp, rsp
	push r12
	push r13
	and rsp, -64
	mov r12, rdi
.again:
	mov rdi, r12
	call callee wrt ..plt
	dec r12
	jnz .again
	lea rsp, [rbp - 16]
	pop r13
	pop r12
	pop rbp
	ret
