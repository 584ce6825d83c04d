// Threads that wait in each of the ways that the C++ library has, below templates, virtual
// functions, lambdas and a catch clause. Another is in a destructor that a thrown
// exception runs, the last in the terminate handler of an uncaught exception.
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>
#include <pthread.h>
#include "ready.h"

namespace work {

#define KEPT __attribute__((noinline, noclone))

static pthread_barrier_t all;
static std::mutex held, free_to_take;
static std::condition_variable never;
static std::promise<int> broken;
static volatile long sink;

struct Shape {
    virtual ~Shape() = default;
    virtual long wait(int depth, const std::vector<double> &values) const = 0;
};

template <typename T> struct Box final : Shape {
    T value;
    explicit Box(T value) : value(value) {}
    KEPT long wait(int depth, const std::vector<double> &values) const override
    {
        std::unique_lock<std::mutex> lock(free_to_take);
        never.wait(lock, [&] { return depth == 0 && values.empty(); });
        return sink += static_cast<long>(value);
    }
};

template <int N> KEPT long descend(const Shape &shape, double a, long b)
{
    std::vector<double> values(N + 1, a);
    if constexpr (N == 0)
        sink += shape.wait(3, values);
    else
        sink += descend<N - 1>(shape, a * 1.5, b + N);
    return sink + b;
}

struct Guard {
    int number;
    KEPT ~Guard()
    {
        pthread_barrier_wait(&all);
        while (number)
            pause();
    }
};

KEPT void thrower(int number)
{
    Guard guard{number};
    if (number)
        throw std::runtime_error("thrown");
}

KEPT void lock_held()
{
    pthread_barrier_wait(&all);
    std::lock_guard<std::mutex> lock(held);
    sink++;
}

KEPT void catcher()
{
    try {
        throw 7;
    } catch (int number) {
        pthread_barrier_wait(&all);
        std::this_thread::sleep_for(std::chrono::hours(number));
        sink++;
    }
}

KEPT void nobody_catches() noexcept
{
    thrower(0);
    throw std::logic_error("for the terminate handler");
}

[[noreturn]] KEPT void on_terminate()
{
    for (;;)
        pause();
}

} // namespace work

int main()
{
    using namespace work;
    std::set_terminate(on_terminate);
    held.lock();
    pthread_barrier_init(&all, nullptr, 7);
    std::vector<std::thread> threads;
    threads.emplace_back([] {
        pthread_barrier_wait(&all);
        Box<float> box(1.5f);
        descend<6>(box, 2.5, 1);
    });
    threads.emplace_back(lock_held);
    threads.emplace_back(catcher);
    threads.emplace_back([] { try { thrower(1); } catch (const std::exception &) { sink++; } });
    threads.emplace_back(nobody_catches);
    threads.emplace_back([future = broken.get_future()]() mutable {
        pthread_barrier_wait(&all);
        sink += future.get();
    });
    pthread_barrier_wait(&all);
    ready();
    std::function<void()> join = [&] { for (auto &thread : threads) thread.join(); };
    join();
}
