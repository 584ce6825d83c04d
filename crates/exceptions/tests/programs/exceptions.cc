/* What C++ and C expect of an unwinder; prints what happened. */
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <unwind.h>

struct Noisy {
    const char *name;
    explicit Noisy(const char *name) : name(name) {}
    ~Noisy() { printf("~%s\n", name); }
};

static __attribute__((noinline)) int thrower(int depth) {
    Noisy noisy(depth % 2 ? "odd" : "even");
    if (depth == 0)
        throw std::runtime_error("deep");
    return thrower(depth - 1) + 1;
}

static __attribute__((noinline)) void rethrower() {
    Noisy noisy("rethrower");
    try {
        thrower(3);
    } catch (const std::logic_error &) {
        printf("wrong\n");
    } catch (const std::runtime_error &error) {
        printf("caught %s, again\n", error.what());
        throw;
    }
}

static void throws() {
    try {
        rethrower();
    } catch (const std::exception &error) {
        printf("caught %s\n", error.what());
    }
    try {
        throw 5;
    } catch (int number) {
        printf("caught %d\n", number);
    }
    try {
        try {
            throw std::string("first");
        } catch (const std::string &) {
            throw std::string("second");
        }
    } catch (const std::string &text) {
        printf("caught %s\n", text.c_str());
    }
}

static void pointers() {
    std::exception_ptr pointer;
    try {
        thrower(1);
    } catch (...) {
        pointer = std::current_exception();
    }
    try {
        std::rethrow_exception(pointer);
    } catch (const std::runtime_error &error) {
        printf("caught %s by pointer\n", error.what());
    }
}

static _Unwind_Reason_Code stop_at(int, _Unwind_Action actions, _Unwind_Exception_Class,
                                   _Unwind_Exception *, _Unwind_Context *, void *argument) {
    if (actions & _UA_END_OF_STACK) {
        printf("end of stack\n");
        pthread_exit(argument);
    }
    return _URC_NO_REASON;
}

static __attribute__((noinline)) void forced(int depth) {
    Noisy noisy("forced");
    if (depth > 0)
        return forced(depth - 1);
    static _Unwind_Exception exception;
    _Unwind_ForcedUnwind(&exception, stop_at, nullptr);
}

static void *forced_thread(void *) {
    try {
        forced(2);
    } catch (...) {
        printf("passing through\n");
        throw;
    }
    return nullptr;
}

static void *exiting_thread(void *) {
    Noisy noisy("exiting");
    pthread_exit(nullptr);
}

static void *cancelled_thread(void *) {
    Noisy noisy("cancelled");
    for (;;)
        pause();
}

static void run(void *(*function)(void *), bool is_cancelled) {
    pthread_t thread;
    pthread_create(&thread, nullptr, function, nullptr);
    if (is_cancelled)
        pthread_cancel(thread);
    pthread_join(thread, nullptr);
}

static _Unwind_Reason_Code count_frame(_Unwind_Context *context, void *argument) {
    int is_exact = 0;
    _Unwind_Ptr ip = _Unwind_GetIPInfo(context, &is_exact);
    /* libgcc shows the end of the stack, too. */
    if (ip != 0 && ip == _Unwind_GetIP(context) && !is_exact)
        ++*static_cast<int *>(argument);
    return _URC_NO_REASON;
}

static __attribute__((noinline)) void count_frames(int depth) {
    if (depth > 0) {
        count_frames(depth - 1);
        asm volatile("");
        return;
    }
    int count = 0;
    int end = _Unwind_Backtrace(count_frame, &count);
    printf("%d frames, %d\n", count, end);
}

static void uncaught() {
    std::set_terminate([] {
        printf("terminated\n");
        fflush(stdout);
        _exit(3);
    });
    throw 1;
}

int main() {
    setvbuf(stdout, nullptr, _IONBF, 0);
    Dl_info info = {};
    dladdr(reinterpret_cast<void *>(_Unwind_RaiseException), &info);
    printf("unwinder %s\n", info.dli_fname);
    throws();
    pointers();
    count_frames(10);
    run(exiting_thread, false);
    run(cancelled_thread, true);
    run(forced_thread, false);
    uncaught();
}
