/* A program calls a function of a shared object. Another shared object interposes it, and calls it with other arguments. Each comment line
 * "frame: NAME VALUE…" has the arguments of the function, without and with the interposing object. */
#if defined(LIBRARY)
#include <signal.h>

volatile int sink;

__attribute__((noinline)) static void ends(void) { raise(SIGSEGV); }

/* frame: asked 5 77
 * frame: asked 1005 154 */
long asked(int number, long other) {
  sink = number;
  ends();
  return sink;
}
#elif defined(BETWEEN)
#define _GNU_SOURCE
#include <dlfcn.h>

static long (*next)(int, long);

__attribute__((constructor)) static void find(void) { next = (long (*)(int, long))dlsym(RTLD_NEXT, "asked"); }

long asked(int number, long other) { return next(number + 1000, other * 2); }
#else
long asked(int number, long other);

int main(int count, char **words) {
  long got = 0;
  for (int round = 0; round < 2; round++)
    got += asked(count + 4, count + 76);
  return (int)got;
}
#endif
