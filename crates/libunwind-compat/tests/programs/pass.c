/* Its callee may throw. */
static volatile int after;

void pass(void (*call)(void));

void pass(void (*call)(void)) {
    int kept = after;
    call();
    after = kept + 1;
}
