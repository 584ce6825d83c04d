/* Threads register and cancel unwind information at the same time, while another looks it up and
 * a child is forked. Prints the content of the lists then. Usage: registering */
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Not declared in any header. */
unw_word_t _U_dyn_info_list_addr(void);

enum { THREADS = 4, EACH = 50000, FORKS = 40 };

static unw_dyn_info_t infos[THREADS][EACH];
/* Always registered, far down the list. */
static unw_dyn_info_t lasting = {.start_ip = 8, .end_ip = 16};
static volatile int is_over;

/* Leaves every other one. */
static void *registers(void *own) {
    unw_dyn_info_t *info = own;
    for (int i = 0; i < EACH; i++) {
        info[i].start_ip = 1, info[i].end_ip = 2;
        _U_dyn_register(&info[i]);
        if (i % 2)
            _U_dyn_cancel(&info[i - 1]);
    }
    return NULL;
}

static void *looks_up(void *unused) {
    while (!is_over) {
        unw_proc_info_t info;
        if (unw_get_proc_info_by_ip(unw_local_addr_space, 12, &info, NULL) != 0)
            abort();
    }
    return NULL;
}

static void print_list(const char *whose) {
    const unw_dyn_info_list_t *list = (unw_dyn_info_list_t *)_U_dyn_info_list_addr();
    const unw_dyn_info_t *before = NULL;
    int count = 0;
    for (const unw_dyn_info_t *info = list->first; info; before = info, info = info->next) {
        if (info->prev != before)
            abort();
        count++;
    }
    printf("%s: %d, %d changes\n", whose, count, (int)list->generation);
}

/* Only the child changes its list, independent of the parent's threads. */
static void fork_child(void) {
    pid_t child = fork();
    if (child == 0) {
        static unw_dyn_info_t own[3];
        alarm(10);
        for (int i = 0; i < 3; i++)
            _U_dyn_register(&own[i]);
        _U_dyn_cancel(&own[1]);
        const unw_dyn_info_list_t *list = (unw_dyn_info_list_t *)_U_dyn_info_list_addr();
        _exit(list->first != &own[2] || own[2].next != &own[0] || own[0].prev != &own[2]);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        abort();
}

int main(void) {
    pthread_t threads[THREADS], reader;
    _U_dyn_register(&lasting);
    pthread_create(&reader, NULL, looks_up, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, registers, infos[i]);
    for (int i = 0; i < FORKS; i++)
        fork_child();
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    is_over = 1;
    pthread_join(reader, NULL);
    print_list("all");
    for (int i = 0; i < THREADS; i++)
        for (int j = 1; j < EACH; j += 2)
            _U_dyn_cancel(&infos[i][j]);
    print_list("lasting");
    return 0;
}
