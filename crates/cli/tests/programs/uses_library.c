// Waits in a function of a library.
int waits(void);

static volatile int sink;

int main(void)
{
    sink = waits();
    return 0;
}
