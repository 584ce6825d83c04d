// Who threw what nobody catches? c++ -rdynamic terminate.cc $(pkg-config --cflags --libs unspool)
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <dlfcn.h>
#include <exception>
#include <stdexcept>
#include <unspool.h>

// An exception that nobody catches leaves the stack as it was when it was thrown.
[[noreturn]] static void on_terminate()
{
	void *addresses[64];
	std::size_t count = unspool_backtrace(addresses, 64, nullptr);

	std::fputs("terminated by\n", stderr);
	for (std::size_t i = 0; i < count; i++) {
		Dl_info info;
		if (!dladdr(static_cast<char *>(addresses[i]) - 1, &info) || !info.dli_sname)
			continue;
		char *name = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, nullptr);
		std::fprintf(stderr, "  %s\n", name ? name : info.dli_sname);
		std::free(name);
	}
	std::abort();
}

struct Account {
	void withdraw(int amount)
	{
		if (amount > 100)
			throw std::runtime_error("not enough");
	}
};

void business(Account &account)
{
	account.withdraw(1000);
}

int main()
{
	std::set_terminate(on_terminate);
	Account account;
	business(account);
}
