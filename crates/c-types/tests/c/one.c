/* The first of two units that disagree on `struct item`, on `length` and on types that refer to
   them, and agree on the rest. */
typedef long length;
struct item { struct item *next; int value; };
struct shelf { struct item *first; length size; };
struct common { struct common *self; struct plain *plain; };
struct plain { int a, b; };
struct hidden;
struct holder { struct hidden *hidden; };
struct item one_item;
struct shelf one_shelf;
struct common one_common;
struct plain one_plain;
struct holder one_holder;
static struct item *pick(struct shelf *shelf) { return shelf->first; }
struct item *one(void) { return pick(&one_shelf); }
