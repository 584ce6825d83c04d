/* The second unit. */
typedef int length;
struct item { struct item *next; double value; };
struct shelf { struct item *first; length size; };
struct common { struct common *self; struct plain *plain; };
struct plain { int a, b; };
struct hidden { int known; };
struct holder { struct hidden *hidden; };
struct item two_item;
struct shelf two_shelf;
struct common two_common;
struct plain two_plain;
struct hidden two_hidden;
struct holder two_holder;
static struct item *pick(struct shelf *shelf, int nth) { return shelf->first + nth; }
struct item *two(void) { return pick(&two_shelf, 1); }
