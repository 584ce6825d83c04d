/* Functions and data with equal names and different types. */
static int state;
static int step(int by) { return state += by; }
int first(void) { return step(1) + step(2); }
