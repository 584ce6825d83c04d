// A program with a bad stack: main SCENE wait|die. It says "ready" when it stands there, and waits; or it dies.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "scenes.h"

static void wait_here(void *context) {
	(void)context;
	if (write(1, "ready\n", 6) != 6)
		_exit(98);
	for (;;)
		pause();
}

static void die(void *context) {
	(void)context;
	__builtin_trap();
}

int main(int count, char **arguments) {
	int dies = count > 2 && !strcmp(arguments[2], "die");
	if (count > 1)
		run_scene(arguments[1], dies ? AT_FAULT : CALLED, dies ? die : wait_here);
	return 99;
}
