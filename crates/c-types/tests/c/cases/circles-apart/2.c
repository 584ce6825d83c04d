struct a { struct b *b; };
struct b { struct c *c; };
struct c { struct a *a; long value; };
struct only_there { struct a *a; struct c inside[2]; };
struct only_there end;
