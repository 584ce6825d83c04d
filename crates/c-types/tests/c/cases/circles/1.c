/* A cycle through three structures, equal in both units. The other unit enters it elsewhere. */
struct a { struct b *b; };
struct b { struct c *c; };
struct c { struct a *a; int value; };
struct a start;
