// A library in which its program waits. Built with another BUILD, it is another file.
#include "ready.h"

__attribute__((noipa)) int waits(void)
{
    volatile int build = BUILD;
    ready();
    for (;;)
        pause();
    return build;
}
