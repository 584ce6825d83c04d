// A library whose constructor waits in the program that loads it.
void wait_for_ever(void);

static __attribute__((constructor)) void construct(void)
{
    wait_for_ever();
    __asm__ volatile("" ::: "memory");
}
