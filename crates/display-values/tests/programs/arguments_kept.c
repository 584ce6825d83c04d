/* Functions that keep their arguments intentionally, and compiled with -DNOTHING the same without. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unspool_keep.h>

#ifdef NOTHING
#undef UNSPOOL_KEEP
#define UNSPOOL_KEEP(number, argument)
#endif

#define APART __attribute__((noinline, noclone))

struct pair { int first; long second; };

volatile long sink;

/* frame: inner 51 */
APART int inner(long forgotten)
{
  UNSPOOL_KEEP(1, forgotten);
  sink = forgotten;
  raise(SIGSEGV);
  return 3;
}

/* Callees get an address in the frame, and write to all that they may.
 * frame: outer 41 {.first=7,.second=8} -9 6.5 */
APART int outer(long forgotten, struct pair pair, signed char small, double real)
{
  UNSPOOL_KEEP(1, forgotten);
  UNSPOOL_KEEP(2, pair);
  UNSPOOL_KEEP(3, small);
  UNSPOOL_KEEP(4, real);
  char text[40];
  sink = forgotten + pair.first + pair.second + small + (long)real;
  memset(text, (int)sink, sizeof text);
  sink = text[sink % 40];
  return inner(atoi(getenv("FIRST"))) + text[3];
}

int main(void)
{
  setenv("FIRST", "51", 1);
  setenv("SECOND", "41", 1);
  struct pair pair = {atoi("7"), atol("8")};
  return outer(atoi(getenv("SECOND")), pair, (signed char)-atoi("9"), atof("6.5"));
}
