/* Threads that are named after what they wait for, again and again, for half a second. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const struct timespec pause_time = { .tv_nsec = 20 * 1000 * 1000 };
static int ends[2], sockets[2];

static void wait_for(const char *what)
{
    char byte;
    if (!strcmp(what, "lock")) {
        static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
        static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += pause_time.tv_nsec;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_mutex_lock(&mutex);
        pthread_cond_timedwait(&never, &mutex, &until);
        pthread_mutex_unlock(&mutex);
    } else if (!strcmp(what, "time")) {
        nanosleep(&pause_time, NULL);
    } else if (!strcmp(what, "events")) {
        struct pollfd none = { .fd = -1 };
        poll(&none, 1, 20);
    } else if (!strcmp(what, "pipe")) {
        if (read(ends[0], &byte, 1) != 1)
            abort();
    } else if (!strcmp(what, "socket")) {
        recv(sockets[0], &byte, 1, 0);
    } else if (!strcmp(what, "process")) {
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_NAME, "child");
            nanosleep(&pause_time, NULL);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    } else if (!strcmp(what, "signal")) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigtimedwait(&set, NULL, &pause_time);
    }
}

static void *run(void *what)
{
    for (int n = 0; n < 20; n++)
        wait_for(what);
    return NULL;
}

int main(void)
{
    static char *names[] = { "lock", "time", "events", "pipe", "socket", "process", "signal" };
    enum { COUNT = sizeof names / sizeof *names };
    pthread_t threads[COUNT];
    if (pipe(ends) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
        return 1;
    for (int n = 0; n < COUNT; n++) {
        pthread_create(&threads[n], NULL, run, names[n]);
        pthread_setname_np(threads[n], names[n]);
    }
    for (int n = 0; n < 20; n++) {
        nanosleep(&pause_time, NULL);
        if (write(ends[1], "", 1) != 1 || send(sockets[1], "", 1, 0) != 1)
            return 1;
    }
    for (int n = 0; n < COUNT; n++)
        pthread_join(threads[n], NULL);
    return 0;
}
