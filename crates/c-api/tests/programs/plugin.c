// A plugin that contains the library.
#include <unspool.h>

int use(void);

int use(void)
{
	void *addresses[16];

	unspool_prepare();
	if (unspool_prepare_thread())
		return 3;
	return unspool_backtrace(addresses, 16, NULL) < 3;
}
