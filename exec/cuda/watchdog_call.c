#include "exec/cuda/watchdog_call.h"

#include "core/base/arena.h"
#include "exec/clock.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

struct errand { /* the last of the two threads frees it */
    struct arena *a;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    void (*body)(void *owner);
    void *owner;
    bool ended, left;
};

static void forget(struct errand *e)
{
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->mutex);
    arena_free(e->a);
}

static void *run(void *p)
{
    struct errand *e = p;
    e->body(e->owner);
    pthread_mutex_lock(&e->mutex);
    e->ended = true;
    bool left = e->left;
    pthread_cond_signal(&e->changed);
    pthread_mutex_unlock(&e->mutex);
    if (left) forget(e);
    return NULL;
}

static struct errand *make(void (*body)(void *owner), void *owner)
{
    struct arena *a = arena_new();
    struct errand *e = ARENA_ARRAY(a, struct errand, 1);
    pthread_condattr_t attr;
    e->a = a, e->body = body, e->owner = owner;
    pthread_mutex_init(&e->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&e->changed, &attr);
    pthread_condattr_destroy(&attr);
    return e;
}

bool watchdog_call(void (*body)(void *owner), void *owner, int64_t limit_ns)
{
    struct errand *e = make(body, owner);
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, e)) {
        forget(e);
        return false;
    }
    int64_t until_ns = clock_wall_ns() + limit_ns;
    const struct timespec until = {.tv_sec = until_ns / 1000000000,
                                   .tv_nsec = until_ns % 1000000000};
    pthread_mutex_lock(&e->mutex);
    while (!e->ended && pthread_cond_timedwait(&e->changed, &e->mutex, &until) != ETIMEDOUT)
        continue;
    bool ended = e->ended;
    e->left = !ended;
    pthread_mutex_unlock(&e->mutex);
    if (ended) {
        pthread_join(thread, NULL);
        forget(e);
    } else {
        pthread_detach(thread);
    }
    return ended;
}
