// Globals of all kinds. Prints some of them whenever it gets SIGUSR1.
#include <complex.h>
#include <signal.h>
#include <stdint.h>
#include "ready.h"

enum colour { RED, GREEN = 5, BLUE = -2 };
enum flags { READ = 1, WRITE = 2, RUN = 4 };

struct node {
    struct node *next;
    char name[8];
    unsigned low : 3, high : 11;
    int sign : 5;
    enum colour colour;
    union {
        double real;
        struct {
            uint32_t first, second;
        };
    };
};

struct __attribute__((packed)) tight {
    char c;
    long l;
    enum flags flags;
    _Bool is_set;
    unsigned char byte;
};

struct node last = { 0, "last", 5, 1025, -3, GREEN, { 1.5 } };
struct node root = { &last, "root", 1, 2, 3, BLUE, { 0.1 } };
struct tight tight = { 'x', -5, READ | RUN, 1, 200 };
long double wide = 2.5L;
long double wides[] = { 0.1L, -2.5L, 1e300L, 0, 1 / 3.0L, -1e-300L };
double complex turn = 3 + 4 * I;
float part = 0.25f;
float tiny = 0x7p-149f;
double large = -1e300;
char parts[6] = { 'a', 0, 'b', '"', 'c' };
int grid[2][3] = { { 1, 2, 3 }, { 4, 5, 6 } };
struct node many[300] = { [7] = { .low = 6 } };
const char *text = "a \"text\"\n";
int (*function)(void);
volatile int64_t counter = -1;
static unsigned short small = 65535;
const int fixed = 7;
__int128 huge = (__int128)1 << 100;

static void print(int number)
{
    (void)number;
    printf("%s %d %d %ld %d\n", root.name, root.high, last.sign, (long)counter, tight.is_set);
    fflush(stdout);
}

int main(void)
{
    last.next = &root;
    function = main;
    signal(SIGUSR1, print);
    ready();
    for (;;)
        small += pause() == 0;
}
