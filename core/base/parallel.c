/* Threads share only the next free index. */
#include "core/base/parallel.h"

#include "core/base/arena.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

struct crew {
    int64_t n;
    atomic_int_fast64_t next;
    void (*work)(void *user, int64_t index, int32_t thread);
    void *user;
};
struct hand {
    struct crew *crew;
    int32_t thread;
    pthread_t id;
    bool started;
};

static void *labour(void *p)
{
    struct hand *h = p;
    struct crew *c = h->crew;
    for (;;) {
        int64_t i = atomic_fetch_add(&c->next, 1);
        if (i >= c->n) return NULL;
        c->work(c->user, i, h->thread);
    }
}

void parallel_each(int64_t n, int32_t threads,
                   void (*work)(void *user, int64_t index, int32_t thread), void *user)
{
    struct arena *a = arena_new();
    struct crew crew = {.n = n, .work = work, .user = user};
    atomic_init(&crew.next, 0);
    if (threads > n) threads = (int32_t)n;
    if (threads < 1) threads = 1;
    struct hand *hands = ARENA_ARRAY(a, struct hand, (size_t)threads);
    for (int32_t i = 1; i < threads; i++) {
        hands[i] = (struct hand){.crew = &crew, .thread = i};
        hands[i].started = pthread_create(&hands[i].id, NULL, labour, &hands[i]) == 0;
    }
    hands[0] = (struct hand){.crew = &crew};
    labour(&hands[0]);
    for (int32_t i = 1; i < threads; i++)
        if (hands[i].started) pthread_join(hands[i].id, NULL);
    arena_free(a);
}

int32_t parallel_processors(void)
{
    cpu_set_t allowed;
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) n = CPU_COUNT(&allowed);
    return n > 1 ? (int32_t)n : 1;
}
