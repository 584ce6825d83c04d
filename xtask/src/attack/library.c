// A library that is large enough to be mapped. Its process spends most of its time in its function.
#define FUNCTION(n) __attribute__((noinline)) int filler_##n(int a) { return a * n + n; }
#define TEN(n) FUNCTION(n##0) FUNCTION(n##1) FUNCTION(n##2) FUNCTION(n##3) FUNCTION(n##4) \
               FUNCTION(n##5) FUNCTION(n##6) FUNCTION(n##7) FUNCTION(n##8) FUNCTION(n##9)
#define HUNDRED(n) TEN(n##0) TEN(n##1) TEN(n##2) TEN(n##3) TEN(n##4) TEN(n##5) TEN(n##6) TEN(n##7) TEN(n##8) TEN(n##9)
HUNDRED(1) HUNDRED(2) HUNDRED(3) HUNDRED(4) HUNDRED(5) HUNDRED(6) HUNDRED(7) HUNDRED(8) HUNDRED(9)

int spin(long rounds)
{
    volatile int sum = 0;
    for (long n = 0; n < rounds; n++)
#ifdef SECOND
        sum += filler_100((int)n) ^ filler_200((int)n);
#else
        sum += filler_100((int)n);
#endif
    return sum;
}
