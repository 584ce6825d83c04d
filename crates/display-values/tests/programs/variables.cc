// A program that is killed with objects on its stack.
#include <cstdlib>

volatile int sink;

namespace shapes {

struct Point {
	int x;
	int y;
};

class Shape {
public:
	explicit Shape(int id) : id(id) {}
	virtual ~Shape() {}
	virtual int area(const Point &scale, long times) = 0;
	int id;
};

class Square : public Shape {
public:
	Square(int id, int side) : Shape(id), side(side) {}
	int area(const Point &scale, long times) override;

private:
	short side;
};

template <typename T> struct Holder {
	T value;
	bool is_full;
	const Holder<T> *next;
};

template <typename T> __attribute__((noinline)) int measured(const Holder<T> &holder, T limit)
{
	unsigned char tries = 200;
	for (T count = 0; count < limit; count++)
		sink = count + tries;
	auto add = [&](int more) { return more + holder.value; };
	int sum = add(4);
	if (holder.is_full)
		abort();
	return sum + sink;
}

__attribute__((noinline)) int Square::area(const Point &scale, long times)
{
	Holder<int> last{ side, true, nullptr };
	Holder<int> holder{ side * scale.x, times > 1, &last };
	int found = measured(holder, 3);
	sink = holder.value;
	return found + scale.y + last.value;
}

}

__attribute__((noinline)) int reach(shapes::Shape &shape, shapes::Point &&point)
{
	int &x = point.x;
	x += 2;
	int area = shape.area(point, 2);
	sink = x + shape.id;
	return area + x;
}

int main()
{
	shapes::Square square(7, 5);
	int shapes::Shape::*member = &shapes::Shape::id;
	int (shapes::Shape::*method)(const shapes::Point &, long) = &shapes::Shape::area;
	__asm__ volatile("" : : "r"(&member), "r"(&method) : "memory");
	int reached = reach(square, { 1, 2 });
	sink = square.*member + (method != nullptr);
	return reached;
}
