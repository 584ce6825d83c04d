/* One structure of the cycle differs in the other unit, and each has a referring type that only
   it has. */
struct a { struct b *b; };
struct b { struct c *c; };
struct c { struct a *a; int value; };
struct only_here { struct b inside; };
struct only_here start;
