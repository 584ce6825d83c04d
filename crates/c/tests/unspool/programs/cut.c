// A library whose file is cut short while it runs.
void called(void (*back)(void));

static volatile int count;

void called(void (*back)(void))
{
	back();
	count++;
}
