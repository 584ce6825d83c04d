// Calls a function with known values in two registers that it must keep.
void outer(void);

__attribute__((noipa)) void stopped(void)
{
}

int main(void)
{
    __asm__ volatile("mov $0x1111, %%ebx\n\tmov $0x2222, %%r12d\n\tcall outer" ::
                         : "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12",
                           "memory", "cc");
    return 0;
}
