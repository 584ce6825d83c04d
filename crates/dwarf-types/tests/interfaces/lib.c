/* A small library. The tests edit its interface: one edit of edits.txt at a time. */
#include <stddef.h>

enum color { RED, GREEN, BLUE = 7 };

struct pair {
    int first;
    char pad;
    long second;
};

struct flags {
    unsigned ready : 1;
    unsigned level : 3;
    unsigned rest : 12;
};

union value {
    int number;
    float real;
    char text[8];
};

struct hidden;

struct node {
    struct node *next;
    struct pair inner;
    enum color color;
    union value value;
    const char *name;
    int (*visit)(struct node *self, int depth);
    double weights[3];
    struct hidden *secret;
};

struct hidden {
    int key;
};

typedef int number_t;
typedef struct node node_t;
typedef void (*callback_t)(void *context, unsigned flags);

struct local {
    int unused_by_others;
};

int counter = 1;
long table[4];
struct pair origin;
const char *const version = "1";
__thread int depth;

node_t *node_new(const char *name, number_t size) { return (node_t *)(name + size); }
void node_free(node_t *node) { node->next = 0; }
int node_count(const struct node *node) { return node->color; }
struct pair pair_of(int first, long second) { struct pair p = {first, 0, second}; return p; }
double node_weight(struct node *node, size_t index) { return node->weights[index]; }
void node_walk(node_t *node, callback_t callback, void *context) { callback(context, node->color); }
int node_print(const char *format, ...) { return format[0]; }
enum color node_color(node_t *node) { return node->color; }
unsigned flags_of(struct flags *flags) { return flags->level; }
unsigned char byte_of(unsigned char byte) { return byte; }
float scale(float by) { return by; }
static int helper(struct local *l) { return l->unused_by_others; }
int use_helper(int n) { struct local l = {n}; return helper(&l); }
