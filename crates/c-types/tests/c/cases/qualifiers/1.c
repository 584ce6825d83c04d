const int fixed = 1;
volatile int moving;
const volatile int both;
const char *const *volatile names;
typedef const struct node { const struct node *next; } node;
node list;
void copy(char *restrict to, const char *restrict from) { *to = *from; }
