/* Enumerators of one name in different enumerations, and one enumeration with different values. */
enum colour { RED, GREEN };
enum fruit { APPLE, PEAR } fruit;
struct paint { enum colour colour; } paint;
