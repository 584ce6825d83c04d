static double state;
static double step(double by, int times) { return state += by * times; }
double second(void) { return step(1, 2) + step(2, 3); }
