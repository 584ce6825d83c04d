// Recurses through virtual calls, callbacks of the standard library, and frames of several sizes, and works
// there; occasionally through an exception.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

static volatile unsigned long sink;

struct Node {
	virtual ~Node() = default;
	virtual unsigned long walk(int depth) = 0;
};

static std::unique_ptr<Node> make(int depth);

template <int Size> struct Sized : Node {
	unsigned long walk(int depth) override
	{
		volatile char room[Size] = {};
		room[depth % Size] = 1;
		if (depth == 0) {
			std::map<std::string, int> words;
			for (int i = 0; i < 200; i++)
				words[std::to_string(i * 7919 % 1000)]++;
			sink = sink + words.size();
			return sink;
		}
		std::vector<int> order(4);
		for (int i = 0; i < 4; i++)
			order[i] = depth * i % 5;
		unsigned long found = 0;
		std::function<void(int)> next = [&](int) { found = make(depth - 1)->walk(depth - 1); };
		std::for_each(order.begin(), order.begin() + 1, next);
		std::sort(order.begin(), order.end(), [](int a, int b) { return a < b; });
		return found + room[0];
	}
};

static std::unique_ptr<Node> make(int depth)
{
	switch (depth % 3) {
	case 0:
		return std::make_unique<Sized<24>>();
	case 1:
		return std::make_unique<Sized<200>>();
	default:
		return std::make_unique<Sized<72>>();
	}
}

int main(int count, char **words)
{
	int depth = count > 1 ? std::atoi(words[1]) : 40;
	for (int round = 0; round < 15000; round++) {
		sink = sink + make(depth)->walk(depth);
		try {
			if (round % 3 == 0)
				throw std::runtime_error("a round");
		} catch (const std::exception &) {
			sink = sink + 1;
		}
	}
	return 0;
}
