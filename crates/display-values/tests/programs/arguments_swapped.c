/* Parameters with other locations at the first instruction than at the call, down to a function that a signal kills. Each comment line
 * "frame: NAME VALUE…" has the arguments of the function NAME. */
#include <signal.h>

#define APART __attribute__((noinline, noclone))

volatile int sink;

APART long ends(const char *text, int number) {
  raise(SIGSEGV);
  return number + text[sink];
}

/* At the call, each is in the location that the other has at the first instruction.
 * frame: swapped 11 21 */
APART long swapped(long a, long b) {
  long other = a;
  a = b;
  b = other;
  sink += a;
  return ends("x", 3) + a * 3 + b;
}

int main(int count, char **words) {
#ifdef COMPUTED
  return (int)swapped(count + 10, count + 20);
#else
  return (int)swapped(11, 21);
#endif
}
