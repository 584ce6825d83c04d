// A library in which its program waits. Another BUILD makes another file.
#include "ready.h"

__attribute__((noipa)) int waits(void)
{
    volatile int build = BUILD;
    ready();
    for (;;)
        pause();
    return build;
}
