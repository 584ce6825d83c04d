// Functions that exceptions land in: to clean up, to catch, in parts that are kept elsewhere, from calls with arguments
// on the stack, and from frames whose size is known at run time only.
#include <alloca.h>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct Counted {
	static int alive;
	int number;
	__attribute__((noinline)) explicit Counted(int number) : number(number)
	{
		alive++;
		if (number == 13)
			throw std::runtime_error("unlucky");
	}
	__attribute__((noinline)) ~Counted() { alive--; }
};
int Counted::alive = 0;

__attribute__((noinline)) int many(int a, int b, int c, int d, int e, int f, int g, int h, const Counted &i)
{
	if (a == b)
		throw std::out_of_range("equal");
	return c + d + e + f + g + h + i.number;
}

__attribute__((noinline)) int cleaned(int n)
{
	Counted first(n);
	Counted second(n + 1);
	return many(n, 3, 1, 2, 3, 4, 5, 6, second) + first.number;
}

__attribute__((noinline)) int caught(int n)
{
	try {
		return cleaned(n);
	} catch (const std::out_of_range &error) {
		std::puts(error.what());
		return 1;
	} catch (const std::exception &error) {
		Counted third(n + 2);
		return third.number + Counted::alive;
	}
}

__attribute__((noinline)) int unlikely(int n, const std::string &text)
{
	std::vector<std::string> all;
	for (int i = 0; i < n; i++)
		all.push_back(text + std::to_string(i));
	if (__builtin_expect(n > 100, 0)) {
		std::string message = "too many: " + text;
		Counted counted(n);
		throw std::length_error(message + std::to_string(counted.number));
	}
	return static_cast<int>(all.size());
}

__attribute__((noinline)) int sized(int n)
{
	char *room = static_cast<char *>(alloca(static_cast<size_t>(n) + 1));
	std::snprintf(room, static_cast<size_t>(n) + 1, "%d", n);
	Counted counted(n);
	return caught(n) + std::atoi(room);
}

struct Shape {
	virtual ~Shape() = default;
	virtual int area(int n) = 0;
};

struct Square : Shape {
	std::unique_ptr<Counted> counted;
	int area(int n) override
	{
		Counted other(n);
		counted = std::make_unique<Counted>(n * n);
		return cleaned(n) + counted->number;
	}
};

struct Circle : Shape {
	int area(int n) override
	{
		try {
			return 3 * cleaned(n) * n;
		} catch (...) {
			return unlikely(n, "circle");
		}
	}
};

int main(int argc, char **argv)
{
	std::vector<std::unique_ptr<Shape>> shapes;
	shapes.push_back(std::make_unique<Square>());
	shapes.push_back(std::make_unique<Circle>());
	int sum = sized(argc) + unlikely(argc, argv[0]);
	for (auto &shape : shapes)
		sum += shape->area(argc);
	std::printf("%d %d\n", sum, Counted::alive);
	return 0;
}
