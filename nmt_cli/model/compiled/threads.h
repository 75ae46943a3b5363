/* Computes the parts from ``first`` up to ``end`` of what ``context`` describes. Threads that do this at the same
   time have different numbers, from 0. */
typedef void Work(const void *context, long first, long end, int thread);

/* Computes ``count`` parts, by up to so many threads. What a part computes must not depend on its thread. */
void share_work(long count, int threads, Work *work, const void *context);
