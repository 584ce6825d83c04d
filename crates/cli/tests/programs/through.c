// A library without dependencies. Each FRAME has another layout.
long before(long number)
{
    volatile long values[FRAME] = { number };
    return values[number % FRAME] + FRAME;
}

long through(long (*next)(long), long number)
{
    volatile long values[FRAME] = { number };
    return next(values[0]) + values[number % FRAME];
}
