struct value {
    enum { NUMBER, TEXT } kind;
    union {
        struct { long low, high; };
        char text[16];
        union { float f; double d; } number;
    };
} value;
union { int i; struct value *v; } unnamed;
