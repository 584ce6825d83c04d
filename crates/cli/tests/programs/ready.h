// What every test program does when it stands where it is to be looked at.
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

// Says so, and lets processes that are not its parents look, where Yama asks for that.
static inline void ready(void)
{
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    puts("ready");
    fflush(stdout);
}
