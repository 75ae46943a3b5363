/* Threads that share the work of a caller. They are started when they are first needed, and sleep when nothing
   comes for a while. A process that was forked starts its own.

   This is compiled once, for all levels of CPU. */

#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#define MOST_THREADS 256
#define PARTS_OF_THREAD 4 /* so that a thread that is slow or starts late gets fewer */
/* looks for new work before a thread sleeps, 20 to 50 us: the products of a step follow each other sooner, and
   to wake a thread takes as long */
#define LOOKS 1000

const char *sources_of_library(void) { return SOURCES; }

/* held while the work of a caller is shared; other callers compute alone */
static pthread_mutex_t is_shared = PTHREAD_MUTEX_INITIALIZER;

/* the shared work; changes only while the gate is closed and no thread is inside */
static struct {
    Work *work;
    const void *context;
    long count, size_of_parts;
    atomic_long next;
} shared;

/* The number of the newest work, times MOST_THREADS, plus the number of threads that may help the caller. */
static atomic_ulong announced;
/* The number of the work whose threads may enter, OPEN unless it ends, and how many are inside. */
static atomic_ulong gate;
#define OPEN MOST_THREADS
#define GATE_OF(number) ((number) * 2 * MOST_THREADS)

static atomic_int num_sleeping;
static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t new_work = PTHREAD_COND_INITIALIZER;

static int num_started;                                 /* threads besides the callers */
static unsigned long announced_at_start[MOST_THREADS]; /* of each thread */

static void pause_briefly(void) {
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

static void compute_parts(int thread) {
    long size = shared.size_of_parts, first;
    while ((first = atomic_fetch_add(&shared.next, size)) < shared.count)
        shared.work(shared.context, first, first + size < shared.count ? first + size : shared.count, thread);
}

/* returns what is announced after ``seen`` */
static unsigned long wait_for_work(unsigned long seen) {
    unsigned long found;
    for (int i = 0; i < LOOKS; i++, pause_briefly())
        if ((found = atomic_load(&announced)) != seen) return found;
    pthread_mutex_lock(&sleep_lock);
    atomic_fetch_add(&num_sleeping, 1);
    while ((found = atomic_load(&announced)) == seen) pthread_cond_wait(&new_work, &sleep_lock);
    atomic_fetch_sub(&num_sleeping, 1);
    pthread_mutex_unlock(&sleep_lock);
    return found;
}

/* whether this thread entered in time; it must leave then */
static int enters(unsigned long number) {
    unsigned long found = atomic_load(&gate);
    while (found / MOST_THREADS == GATE_OF(number) / MOST_THREADS + 1)
        if (atomic_compare_exchange_weak(&gate, &found, found + 1)) return 1;
    return 0;
}

static void *help(void *number) {
    int thread = (int)(long)number;
    for (unsigned long seen = announced_at_start[thread];;) {
        seen = wait_for_work(seen);
        if (thread > (int)(seen % MOST_THREADS) || !enters(seen / MOST_THREADS)) continue;
        compute_parts(thread);
        atomic_fetch_sub(&gate, 1);
    }
    return NULL;
}

/* only the thread that forked lives on in the new process */
static void forget_threads(void) {
    num_started = 0;
    atomic_store(&gate, 0);
    atomic_store(&num_sleeping, 0);
    pthread_mutex_init(&is_shared, NULL);
    pthread_mutex_init(&sleep_lock, NULL);
    pthread_cond_init(&new_work, NULL);
}

static void forget_threads_in_forks(void) { pthread_atfork(NULL, NULL, forget_threads); }

/* starts what is missing of so many threads; returns how many of these there are */
static int start_threads(int wanted) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    sigset_t all, before;
    if (wanted > MOST_THREADS - 1) wanted = MOST_THREADS - 1;
    if (num_started >= wanted) return wanted;
    pthread_once(&once, forget_threads_in_forks);
    sigfillset(&all); /* signals interrupt the threads of Python only */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (pthread_t thread; num_started < wanted; num_started++) {
        long number = num_started + 1;
        announced_at_start[number] = atomic_load(&announced);
        if (pthread_create(&thread, NULL, help, (void *)number)) break;
        pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return num_started;
}

static void announce(int helpers) {
    unsigned long number = atomic_load(&announced) / MOST_THREADS + 1;
    atomic_store(&gate, GATE_OF(number) + OPEN);
    atomic_store(&announced, number * MOST_THREADS + helpers);
    if (!atomic_load(&num_sleeping)) return;
    pthread_mutex_lock(&sleep_lock);
    pthread_cond_broadcast(&new_work);
    pthread_mutex_unlock(&sleep_lock);
}

static void wait_for_helpers(void) {
    unsigned long found = atomic_fetch_sub(&gate, OPEN) - OPEN;
    for (int i = 0; found % MOST_THREADS; i++, found = atomic_load(&gate))
        if (i < LOOKS) pause_briefly();
        else sched_yield(); /* a helper may wait for this core */
}

void share_work(long count, int threads, Work *work, const void *context) {
    int helpers = count < threads ? (int)count - 1 : threads - 1;
    if (helpers < 1 || pthread_mutex_trylock(&is_shared)) {
        work(context, 0, count, 0);
        return;
    }
    helpers = start_threads(helpers);
    shared.work = work, shared.context = context, shared.count = count;
    shared.size_of_parts = (count - 1) / ((helpers + 1) * PARTS_OF_THREAD) + 1;
    atomic_store(&shared.next, 0);
    announce(helpers);
    compute_parts(0);
    wait_for_helpers();
    pthread_mutex_unlock(&is_shared);
}
