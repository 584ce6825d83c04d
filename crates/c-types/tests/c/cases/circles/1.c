/* A circle through three structures, the same in both units, of which the other sees it from another end. */
struct a { struct b *b; };
struct b { struct c *c; };
struct c { struct a *a; int value; };
struct a start;
