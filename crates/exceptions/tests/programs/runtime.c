/* A personality routine (RUNTIME), and a function that has it. */
#ifdef RUNTIME
int calls;

int runtime_personality(int version, int action) {
    (void)version, (void)action;
    calls++;
    return 8; /* _URC_CONTINUE_UNWIND */
}
#else
__asm__(".text\n"
        ".globl through\n"
        ".type through, @function\n"
        "through: .cfi_startproc\n"
        ".cfi_personality 0x9b, pointer\n"
        "sub $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "call *%rdi\n"
        "add $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size through, . - through\n"
        ".data\n"
        ".balign 8\n"
        "pointer: .quad runtime_personality\n");
#endif
