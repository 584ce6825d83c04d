// What every test program does when it stands where it is to be looked at.
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

// Says so, and lets processes that are not its parents look, where Yama asks for that. Ends the
// program if nobody else does.
static inline void ready(void)
{
    alarm(120);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    puts("ready");
    fflush(stdout);
}
