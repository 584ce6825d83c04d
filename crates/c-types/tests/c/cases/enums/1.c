enum colour { RED = -1, GREEN, BLUE = 0x7fffffff } colour;
enum small { SMALL } __attribute__((packed));
enum small small;
typedef enum { LEFT, RIGHT } side;
side other(side of) { return !of; }
