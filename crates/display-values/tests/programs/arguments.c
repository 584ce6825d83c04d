/* Functions with known arguments, down to one that a signal kills. Each comment line "frame: NAME VALUE…" has
 * the arguments of the function NAME. */
#include <alloca.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum colour { RED = 1, GREEN = 5, BLUE = 9 };
struct pair { int first; long second; };
struct mixed { double real; long whole; };
struct large { long a, b, c; };
struct node { struct node *next; };
struct waiter { long task; struct node node; };

volatile long sink;
long (*volatile through)(long, long);

#define APART __attribute__((noinline, noclone))

/* frame: ends -7 200 Z GREEN */
APART int ends(signed char small, unsigned short middle, char letter, enum colour colour) {
  raise(SIGSEGV);
  return small + middle + letter + colour;
}

/* Without a use after the call, only the caller has the value.
 * frame: forgets 0x1122334455667788 4000000000 */
APART int forgets(long big, unsigned wide) {
  sink = big + wide;
  int got = ends(-7, 200, 'Z', GREEN);
  return got + 1;
}

/* A structure in registers, one in registers of two kinds, one in memory.
 * frame: structures {.first=-3,.second=77} {.real=2.5,.whole=66} {.a=101,.b=102,.c=103} 55 */
APART long structures(struct pair pair, struct mixed mixed, struct large large, long last) {
  int got = forgets(0x1122334455667788, 4000000000u);
  return got + pair.first + pair.second + (long)mixed.real + mixed.whole + large.a + large.b + large.c + last;
}

/* Seven integers and more: the last are in memory.
 * frame: many 1 2 3 4 5 6 7000000007 -8 */
APART long many(long a, int b, short c, char d, long e, long f, long g, int h) {
  struct pair pair = {-3, 77};
  struct mixed mixed = {2.5, 66};
  struct large large = {101, 102, 103};
  long got = structures(pair, mixed, large, 55);
  return got + a + b + c + d + e + f + g + h;
}

/* Gets the low byte of a number, sign-extended.
 * frame: signs -56 */
APART long signs(int small) {
  long got = many(1, 2, 3, 4, 5, 6, 7000000007, -8);
  return got + 1;
}

APART void changes(long *value) { *value = -1; }

/* Its argument has its address taken, and has changed.
 * frame: exposed 31 32 */
APART long exposed(long changed, long kept) {
  changes(&changed);
  int small;
  __asm__("mov $200, %0\n\tmovsbl %b0, %0" : "=q"(small));
  long got = signs(small);
  return got + changed + kept;
}

APART void wakes(struct node *node) {
  struct waiter *waiter = (struct waiter *)((char *)node - offsetof(struct waiter, node));
  waiter->task = -2;
}

/* The argument is in a member of a structure; only another member's address is taken.
 * frame: waits 41 */
APART long waits(long task) {
  struct waiter waiter = {task, {0}};
  wakes(&waiter.node);
  long got = exposed(31, 32);
  return got + waiter.task;
}

/* Called through a pointer, by a tail call with other values.
 * frame: jumped_to 51 52 */
APART long jumped_to(long first, long second) {
  long got = waits(41);
  return got + first + second;
}

APART long jumps(long first, long second) { return jumped_to(second + 1, first + 1); }

/* frame: indirect 61 */
APART long indirect(long value) {
  long got = through(51, 50);
  return got + value;
}

/* Adds to its argument, in a register.
 * frame: moves * 16 */
APART long moves(const char *text, size_t bytes) {
  long got = 0;
  const char *end = text + bytes;
  while (text < end)
    got += *text++;
  got += indirect(61);
  return got + (end - text);
}

/* Each of its frames has other values.
 * frame: recursive 0 93
 * frame: recursive 1 92
 * frame: recursive 2 91 */
APART long recursive(int depth, long value) {
  if (depth == 0) {
    static const char text[17] = "sixteen letters.";
    return moves(text, 16) + value;
  }
  long got = recursive(depth - 1, value + 1);
  __asm__ volatile("" : "+r"(got)); /* prevents a loop */
  return got * depth + value;
}

/* A frame of variable size.
 * frame: grows 300 */
APART long grows(int bytes) {
  char *room = alloca(bytes);
  memset(room, 1, bytes);
  long got = recursive(2, 91);
  return got + room[bytes - 1] + bytes;
}

/* frame: variadic 3 */
APART long variadic(int count, ...) {
  va_list list;
  va_start(list, count);
  long got = grows(va_arg(list, int));
  while (--count)
    got += va_arg(list, long);
  va_end(list);
  return got;
}

/* Tail-calls itself with other values, which compilers may turn into a loop.
 * frame: again 0|2 5|3
 * frame: again 1 4
 * frame: again 2 3 */
APART long again(long left, long value) {
  if (left)
    return again(left - 1, value + 1);
  long got = variadic(3, 300, 7L, 8L);
  return got + value;
}

/* frame: truth 1 0 */
APART long truth(_Bool yes, _Bool no) {
  long got = again(2, 3);
  return got + yes + 2 * no;
}

/* Its argument is also in the caller's frame, where it has changed.
 * frame: both 71 * */
APART long both(long value, long *place) {
  sink = value;
  *place = -5;
  long got = truth(1, 0);
  return got + *place;
}

int main(void) {
  through = jumps;
  sink = 71;
  long value = sink;
  return (int)both(value, &value);
}
