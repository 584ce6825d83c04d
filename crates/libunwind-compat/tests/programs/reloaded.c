/* A library for reload.c, with a frame of a given size. */
int call(void (*function)(void)) {
    volatile char frame[FRAME];
    frame[0] = 1;
    function();
    return frame[0];
}
