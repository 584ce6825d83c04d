/* All kinds of types of CTF. */
#include <stddef.h>
typedef unsigned int u32;
struct node {
    struct node *next;
    int a : 3;
    unsigned b : 5;
    enum hue { LIGHT, DARK } shade : 2;
    u32 grid[3][4];
    char c;
    double d;
    struct { int x; union { int y; float z; }; } inner;
    int last[];
};
struct holes { char a; long b; char c; short d; };
union mixed { int i; float f; long double ld; _Bool b; };
enum color { RED, GREEN = 5, BLUE = -1 };
struct opaque;
union opaque_union;
const volatile int constant = 3;
static int only_here;
int (*callback)(const char *restrict, ...);
struct node *(*table[2])(struct holes *, int (*)(void));
struct node head;
struct holes with_holes;
enum color color;
enum many { A, B, C, D, E, F, G, H, I, J, K, L } letter;
enum ten { A1, B1, C1, D1, E1, F1, G1, H1, I1, J1 } ten;
struct { enum many letter : 4; } sliced;
union mixed mixed;
struct opaque *opaque;
union opaque_union *opaque_union;
_Complex double complex_number;
void *anything;
char const *const names[] = {"a", "b"};
unsigned char bytes[2][3][5];
int use(struct node *n, union mixed *m, size_t size) { only_here++; return n->a + m->i + (int)size; }
__attribute__((noinline)) static void quiet(void) { only_here++; }
int many(int n, ...) { quiet(); return n; }
int main(int argc, char **argv) { quiet(); return argv == NULL || use(&head, &mixed, (size_t)argc) == -1; }
