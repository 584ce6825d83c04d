// Works in many functions of the C library, with callbacks and jumps between them.
#define _GNU_SOURCE
#include <math.h>
#include <regex.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEPT __attribute__((noipa))

static volatile double sink;
static jmp_buf back;

static KEPT int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static KEPT void sorts(long round)
{
    char *words[40];
    for (int i = 0; i < 40; i++)
        if (asprintf(&words[i], "%ld-%g-%s", round * i % 17, i / 7.0, "word") < 0)
            abort();
    qsort(words, 40, sizeof *words, compare);
    for (int i = 0; i < 40; i++) {
        sink += strtod(words[i], NULL) + pow(i, 0.3);
        free(words[i]);
    }
}

static KEPT void matches(long round)
{
    char text[64];
    regex_t pattern;
    snprintf(text, sizeof text, "round %ld of many", round);
    if (regcomp(&pattern, "([a-z]+) ([0-9]+) (of|off) [a-z]*y$", REG_EXTENDED))
        abort();
    sink += regexec(&pattern, text, 0, NULL, 0);
    regfree(&pattern);
}

static KEPT void jumps(long depth)
{
    time_t now = time(NULL) + depth;
    struct tm date;
    char text[64];
    sink += (double)strftime(text, sizeof text, "%A %d %B %Y", gmtime_r(&now, &date));
    if (depth == 0)
        longjmp(back, 1);
    jumps(depth - 1);
    sink++;
}

int main(void)
{
    for (volatile long round = 0;; round++) {
        sorts(round);
        matches(round);
        if (setjmp(back) == 0)
            jumps(round % 7);
    }
}
