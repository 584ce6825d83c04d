/* A debugger steps over a call that throws. */
static void thrower() { throw 7; }

int main() {
    int caught = 0;
    try {
        thrower();
        caught = 1;
    } catch (int number) {
        caught = number;
    }
    return caught;
}
