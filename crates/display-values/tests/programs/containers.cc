// A program that is killed with containers of the C++ library on its stack.
#include <array>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

struct Person {
	std::string name;
	int age;
	unsigned is_here : 1;
	std::vector<std::string> tags;
};

// Names of the library with other members.
namespace mine {
template <typename T> struct vector {
	T first;
	T second;
};
struct optional {
	int payload;
};
}

__attribute__((noinline)) size_t last(const std::string &title, std::vector<int> numbers, Person &who,
				      std::string_view view)
{
	std::string brief = "hello";
	std::string longer(300, 'x');
	std::string quoted = "a \"b\"\n";
	std::vector<std::string> words{ "one", "two" };
	std::vector<Person> people{ { "Ann", 3, 1, { "a", "b" } }, { "Bob", 4, 0, {} } };
	std::vector<std::vector<int>> nested{ { 1 }, {}, { 2, 3 } };
	std::vector<int> none;
	std::vector<int> many(100, 7);
	std::map<std::string, int> ages{ { "a", 1 }, { "b", 2 } };
	std::set<int> some{ 1, 2, 3 };
	std::unordered_map<int, int> hash{ { 1, 2 } };
	std::list<int> chain{ 1, 2 };
	std::deque<int> queue{ 1, 2, 3 };
	std::deque<long> turns(1000, 5);
	turns.pop_front();
	std::unique_ptr<int> own(new int(5));
	std::unique_ptr<Person> nobody;
	std::shared_ptr<int> shared = std::make_shared<int>(1), other = shared, unset;
	std::optional<int> maybe = 7, nothing;
	std::optional<std::string> text = "yes";
	std::array<std::string, 2> two{ "x", "y" };
	std::pair<std::string, double> pair{ "p", 1.5 };
	mine::vector<int> vector{ 1, 2 };
	mine::optional optional{ 3 };
	std::string broken;
	std::memset(static_cast<void *>(&broken), 0x5a, sizeof broken);
	std::vector<int> backwards;
	std::memset(static_cast<void *>(&backwards), 0x5a, sizeof(void *));
	__builtin_trap();
	return title.size() + numbers.size() + who.age + view.size();
}

int main()
{
	Person who{ "Cid", 9, 1, { "t" } };
	return last("a title", { 1, 2, 3 }, who, "view of it") == 0;
}
