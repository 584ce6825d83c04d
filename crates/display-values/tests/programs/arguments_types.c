/* Functions with types that do not fully determine how arguments are passed. Each comment line "frame: NAME VALUE…" has the arguments of
 * the function NAME. */
#include <signal.h>

#define APART __attribute__((noinline, noclone))

/* gcc writes it without members. */
typedef union { long *numbers; char *text; } either __attribute__((transparent_union));
/* gcc passes both parts in general-purpose registers, and records only the one that is not a bit-field. */
struct apart { float first; int : 32; float second; };

volatile double sink;
char text[4] = "abc";

/* Without a prototype: a double is passed for the float.
 * frame: old 1.5 D -3 2.5 */
APART long old(x, letter, number, y) float x; char letter; short number; double y;
{
  raise(SIGSEGV);
  return sink;
}

/* frame: old_kept 0.25 7.5 11 */
APART long old_kept(x, y, number) float x; double y; int number;
{
  long (*unknown)() = (long (*)())old;
  long got = unknown(1.5f, 324, -3, 2.5);
  return got + x + y + number;
}

/* frame: is_apart * 9 0.5 8 */
APART long is_apart(struct apart apart, long number, double real, long last) {
  long (*unknown)() = (long (*)())old_kept;
  long got = old_kept(0.25f, 7.5, 11);
  return got + apart.first + apart.second + number + real + last + (unknown == 0);
}

/* frame: transparent 6 * 777 */
APART long transparent(int number, either either, long size) {
  long got = is_apart((struct apart){1, 2}, 9, 0.5, 8);
  return got + number + (either.text == text) + size;
}

int main(void) { return (int)transparent(6, text, 777); }
