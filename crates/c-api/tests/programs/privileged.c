// Prepares, walks, prints whether it has more rights than its caller, and crashes.
#include <stdio.h>
#include <sys/auxv.h>
#include <unspool.h>

int main(void)
{
	void *addresses[16];
	unspool_prepare();
	unspool_prepare_thread();
	size_t count = unspool_backtrace(addresses, 16, NULL);
	printf("%s %s\n", getauxval(AT_SECURE) ? "privileged" : "ordinary", count > 1 ? "walks" : "does not");
	fflush(stdout);
	int *volatile nowhere = NULL;
	*nowhere = 1;
	return 0;
}
