/* Functions with known floating-point arguments, down to one that a signal kills. Each comment line
 * "frame: NAME VALUE…" has the arguments of the function NAME. */
#include <signal.h>

struct mixed { double real; long whole; };
struct floats { float a, b, c; };
struct half { float a; int b; double c; };

volatile double sink;
double (*volatile through)(double, float);

#define APART __attribute__((noinline, noclone))

/* The caller has read them from the program's constants.
 * frame: ends 2.5 -0.125 0 */
APART double ends(double x, float y, double zero) {
  raise(SIGSEGV);
  return sink;
}

/* Needed after the call: saved in the frame, by the next function through vector registers.
 * frame: keeps 7.25 1024.5 */
APART double keeps(double x, float y) {
  double got = ends(2.5, -0.125f, 0);
  return got + x * y;
}

/* frame: moves 3 11.75 6.5 */
APART double moves(int n, double x, float y) {
  double got = keeps(7.25, 1024.5f);
  return got + n + x - y;
}

/* Two kinds of registers for one structure, and two for another of three.
 * frame: structures {.real=1.5,.whole=-9} {.a=1,.b=2,.c=3} {.a=4.5,.b=6,.c=8.75} */
APART double structures(struct mixed mixed, struct floats floats, struct half half) {
  double got = moves(3, 11.75, 6.5f);
  return got + mixed.real + mixed.whole + floats.a + floats.b + floats.c + half.a + half.b + half.c;
}

/* The ninth and tenth are in memory.
 * frame: many 1.5 2.5 3.5 4.5 5.5 6.5 7.5 8.5 9.5 10.5 */
APART double many(double a, double b, double c, double d, double e, double f, double g, double h, double i, double j) {
  double got = structures((struct mixed){1.5, -9}, (struct floats){1, 2, 3}, (struct half){4.5f, 6, 8.75});
  return got + a + b + c + d + e + f + g + h + i + j;
}

APART void changes(double *value) { *value = -1; }

/* Its argument has its address taken, and has changed.
 * frame: exposed 31.5 32.5 */
APART double exposed(double changed, double kept) {
  changes(&changed);
  double got = many(1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 10.5);
  return got + changed + kept;
}

/* Incremented while others are called.
 * frame: counts 5 0.5 */
APART double counts(int n, double x) {
  double got = 0;
  while (n-- > 0) {
    got += exposed(31.5, 32.5) + x;
    x += 1;
  }
  return got;
}

/* Called through a pointer.
 * frame: pointed 64.25 -3 */
APART double pointed(double x, float y) {
  double got = counts(5, 0.5);
  return got + x + y;
}

/* frame: begins 100.75 */
APART double begins(double x) {
  through = pointed;
  double got = through(64.25, -3.0f);
  return got + x;
}

int main(void) { return (int)begins(100.75); }
