/* The third unit. It agrees with the first, and has a `struct hidden` that differs from that of
   the second. */
typedef long length;
struct item { struct item *next; int value; };
struct shelf { struct item *first; length size; };
struct hidden { long unknown; };
struct holder { struct hidden *hidden; };
struct box { struct hidden inside; };
struct item three_item;
struct shelf three_shelf;
struct hidden three_hidden;
struct holder three_holder;
struct box three_box;
int three(void) { return three_item.value; }
int main(void) { return three(); }
