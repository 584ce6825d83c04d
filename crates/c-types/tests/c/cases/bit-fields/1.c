enum mode { OFF, ON, AUTO };
struct flags {
    int one : 1;
    unsigned seven : 7;
    int : 0;
    long many : 33;
    enum mode mode : 2;
    _Bool is_set : 1;
    unsigned char byte : 8;
} flags;
