// A handler whose way back is a trampoline of the program's own, in assembly.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

extern void handler(int);
extern void restore(void);

struct action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

int main(void) {
    struct action action = {handler, 0x04000000 /* SA_RESTORER */, restore, 0};
    if (syscall(SYS_rt_sigaction, SIGUSR1, &action, 0, sizeof action.mask) != 0)
        return 1;
    return raise(SIGUSR1);
}
