// Functions with symbols that use most of the grammar of names. Each is emitted.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#define KEEP __attribute__((noinline, used))

enum class Color { red = 2 };
struct Empty {};

template <class A, class... Rest> struct Packed {
    KEEP static long run(long n) { return n; }
};
template <long N> KEEP long constant(long n) { return n + N; }
template <unsigned N, bool B, char C, Color E, short S> KEEP int literals() { return N; }
template <class T> KEEP auto trailing(T n) -> decltype(n + 1) { return n + 1; }
template <class T> KEEP typename std::enable_if<std::is_integral<T>::value, T>::type only(T n) { return n; }
template <class T> KEEP typename std::enable_if<!std::is_integral<T>::value && sizeof(T) == 8>::type only(T) {}
template <void (*F)(int), int Empty::*M> KEEP void pointers() {}
template <template <class...> class T> KEEP void of_template(T<int> *) {}
template <class... T> KEEP void expand(std::tuple<T...> *, T &&...) {}
template <class... T> KEEP auto fold(T... t) -> decltype((t + ... + 0)) { return (t + ... + 0); }
template <class T> KEEP void forward(T &&) {}
KEEP int (*choose(int n))(long) { return reinterpret_cast<int (*)(long)>(n); }
template <class T> KEEP int (*choose_by(T))[3] { return nullptr; }
KEEP void arrays(int (&)[5], const char (*)[2][3], int (*)(int (*)(int), ...)) {}
KEEP void a_callee(int) {}

namespace outer {
inline namespace v1 {
struct Vector {
    int at = 0;
    KEEP Vector() {}
    KEEP ~Vector() {}
    KEEP Vector operator+(const Vector &) const { return {}; }
    KEEP bool operator<(const Vector &) const & { return true; }
    template <class T> KEEP bool operator<(T) && { return true; }
    KEEP explicit operator bool() const { return true; }
    KEEP operator int Empty::*() { return nullptr; }
    template <class T> KEEP operator T *() const { return nullptr; }
    KEEP void *operator new(size_t n) { return ::operator new(n); }
    KEEP void operator()(int) volatile {}
    KEEP int operator[](int) const { return 0; }
    KEEP Vector *operator->() { return this; }
    KEEP void member(std::string, const std::map<int, std::string> &, std::ostream *) const {}
};
}
KEEP Vector operator""_v(const char *, size_t) { return {}; }
namespace {
KEEP void hidden(Vector *) {}
struct Hidden {
    template <class T> KEEP void go(T) {
        struct Local {
            KEEP int operator()(int n) { return n; }
        } local;
        local(1);
        []<class A, int N>(A (&a)[N], T b) KEEP { return a[N - 1] < b; }("ab", T());
        [](auto a, T b) KEEP { return a < b; }(1, T());
        [this] KEEP { return this; }();
    }
};
}
struct Base { virtual ~Base() {} virtual Base *clone() { return this; } };
struct Side { virtual void side() {} };
struct Derived : Side, virtual Base { Derived *clone() override { return this; } void side() override {} };
template <class F> KEEP void call(F f) { f(1); }
KEEP void use() {
    hidden(nullptr);
    Hidden().go(2.0);
    static std::string text = "static";
    call([](int) KEEP {});
    call([](auto) KEEP {});
    std::function<void(int)> f = [](int n) { a_callee(n); };
    call(f);
    auto p = std::make_shared<Derived>();
    p->clone();
}
}

int main() {
    Packed<Empty>::run(1);
    Packed<Empty, int, char>::run(1);
    constant<5>(1), constant<-5>(1);
    literals<7, true, 'x', Color::red, -3>();
    trailing(1L), only(1), only(1.0);
    pointers<a_callee, nullptr>();
    of_template<std::tuple>(nullptr);
    int n = 0;
    std::tuple<> none;
    std::tuple<int, Empty &> *some = nullptr;
    expand<>(&none), expand<int, Empty &>(some, 1, *new Empty);
    fold(1, 2L), fold();
    forward(n), forward(1);
    choose(1), choose_by(1.0);
    outer::Vector v;
    v + v, v < v, outer::Vector() < 1, bool(v), static_cast<int *>(v), v(1);
    using namespace outer;
    ""_v;
    outer::use();
}
