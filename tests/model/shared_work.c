/* Several callers share their work at the same time, before and after a fork; the exit status is 1 if a part was
   computed twice or never. */

#include "threads.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALLERS 3

static void add_squares(const void *context, long first, long end, int thread) {
    (void)thread;
    for (long i = first; i < end; i++) (*(long *const *)context)[i] += i * i;
}

static void *call(void *unused) {
    (void)unused;
    for (int round = 0; round < 3000; round++) {
        long count = 1 + round % 97, *sums = calloc(count, sizeof *sums);
        share_work(count, 1 + round % 8, add_squares, &sums);
        for (long i = 0; i < count; i++)
            if (sums[i] != i * i) _exit(1);
        free(sums);
        if (round % 500 == 0) usleep(1000); /* the threads fall asleep */
    }
    return NULL;
}

int main(int argc, char **argv) {
    (void)argv;
    pthread_t callers[CALLERS];
    for (int i = 0; i < CALLERS; i++) pthread_create(callers + i, NULL, call, NULL);
    for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
    if (argc > 1) return 0; /* ThreadSanitizer has no threads after a fork */
    int status = 0, child = fork();
    if (child) waitpid(child, &status, 0);
    call(NULL);
    if (!child) _exit(0);
    return status != 0;
}
