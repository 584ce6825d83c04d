/* Parameters that are others before the first instruction, down to a function that is killed by a signal. Each line "frame: NAME VALUE…" of the comments
 * is what the function of that name is called with. */
#include <signal.h>

#define APART __attribute__((noinline, noclone))

volatile int sink;

APART long ends(const char *text, int number) {
  raise(SIGSEGV);
  return number + text[sink];
}

/* Where each is at the first instruction, the other one is passed.
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
