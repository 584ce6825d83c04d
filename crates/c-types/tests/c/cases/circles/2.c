struct a;
struct c { struct a *a; int value; };
struct b { struct c *c; };
struct a { struct b *b; };
struct c end;
