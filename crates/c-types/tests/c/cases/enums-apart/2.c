enum colour { GREEN, RED };
enum tree { PEAR, OAK } tree;
struct paint { enum colour colour; } can;
