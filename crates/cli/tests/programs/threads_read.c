/* Two threads read a word all the time. Prints, on SIGUSR1, how often they have read each of two values, and
 * anything else. Then waits. */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "ready.h"

enum { FIRST, SECOND, OTHER };
volatile uint64_t word = 0x1111111111111111;
static volatile uint64_t counts[2][3];

static void *read_word(void *counted)
{
    volatile uint64_t *of = counted;
    for (;;) {
        const uint64_t value = word;
        of[value == 0x1111111111111111 ? FIRST : value == 0x2222222222222222 ? SECOND : OTHER]++;
    }
    return NULL;
}

static void print(int number)
{
    (void)number;
    for (int of = FIRST; of <= OTHER; of++)
        printf("%" PRIu64 " ", counts[0][of] + counts[1][of]);
    puts("");
    fflush(stdout);
}

int main(void)
{
    pthread_t threads[2];
    signal(SIGUSR1, print);
    for (int n = 0; n < 2; n++)
        pthread_create(&threads[n], NULL, read_word, (void *)counts[n]);
    ready();
    for (;;)
        pause();
}
