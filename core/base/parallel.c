/* Threads share only the next free index. */
#include "core/base/parallel.h"

#include "core/base/arena.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

struct loop {
    int64_t n;
    atomic_int_fast64_t next;
    void (*work)(void *user, int64_t index, int32_t thread);
    void *user;
};
struct worker {
    struct loop *loop;
    int32_t thread;
    pthread_t id;
    bool started;
};

static void *run_worker(void *p)
{
    struct worker *w = p;
    struct loop *l = w->loop;
    for (;;) {
        int64_t i = atomic_fetch_add(&l->next, 1);
        if (i >= l->n) return NULL;
        l->work(l->user, i, w->thread);
    }
}

void parallel_each(int64_t n, int32_t threads,
                   void (*work)(void *user, int64_t index, int32_t thread), void *user)
{
    struct arena *a = arena_new();
    struct loop loop = {.n = n, .work = work, .user = user};
    atomic_init(&loop.next, 0);
    if (threads > n) threads = (int32_t)n;
    if (threads < 1) threads = 1;
    struct worker *workers = ARENA_ARRAY(a, struct worker, (size_t)threads);
    for (int32_t i = 1; i < threads; i++) {
        workers[i] = (struct worker){.loop = &loop, .thread = i};
        workers[i].started = pthread_create(&workers[i].id, NULL, run_worker, &workers[i]) == 0;
    }
    workers[0] = (struct worker){.loop = &loop};
    run_worker(&workers[0]);
    for (int32_t i = 1; i < threads; i++)
        if (workers[i].started) pthread_join(workers[i].id, NULL);
    arena_free(a);
}

int32_t parallel_processors(void)
{
    cpu_set_t allowed;
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) n = CPU_COUNT(&allowed);
    return n > 1 ? (int32_t)n : 1;
}
