#include "exec/cuda/timeline.h"

#include "exec/clock.h"

enum { TRIES = 8, RENEW_TRIES = 3, RENEW_NS = 1000000000 };

/* Over a shorter stretch the anchors' bounds (some 10 us) are less accurate than the oscillators' specification. */
#define RATE_FROM_NS 4e9

struct window { /* bounds of an event's instant */
    int64_t from_ns, to_ns;
};

/* Records an event on the idle stream and waits for it. */
static cudaError_t look(struct timeline *t, cudaEvent_t event, struct window *out)
{
    out->from_ns = clock_wall_ns();
    cudaError_t e = cudaEventRecord(event, t->stream);
    if (e == cudaSuccess) e = cudaEventSynchronize(event);
    out->to_ns = clock_wall_ns();
    return e;
}

/* The narrowest window of several tries; its event is spare[0]. */
static cudaError_t look_sharply(struct timeline *t, int tries, struct window *best)
{
    cudaError_t e = look(t, t->spare[0], best);
    for (int i = 1; i < tries && e == cudaSuccess; i++) {
        struct window w;
        e = look(t, t->spare[1], &w);
        if (w.to_ns - w.from_ns >= best->to_ns - best->from_ns) continue;
        cudaEvent_t better = t->spare[1];
        t->spare[1] = t->spare[0];
        t->spare[0] = better;
        *best = w;
    }
    return e;
}

static void become_anchor(struct timeline *t, int64_t at_ns)
{
    cudaEvent_t old = t->anchor;
    t->anchor = t->spare[0];
    t->spare[0] = old;
    t->at_ns = at_ns;
}

static cudaError_t elapsed(const struct timeline *t, cudaEvent_t event, double *out_ns)
{
    float ms = 0;
    cudaError_t e = cudaEventElapsedTime(&ms, t->anchor, event);
    *out_ns = 1e6 * (double)ms;
    return e;
}

static cudaError_t renew(struct timeline *t)
{
    struct window w;
    double passed = 0;
    cudaError_t e = look_sharply(t, RENEW_TRIES, &w);
    if (e == cudaSuccess) e = elapsed(t, t->spare[0], &passed);
    if (e != cudaSuccess) return e;
    int64_t at = t->at_ns + (int64_t)(passed * t->rate);
    if (at < w.from_ns) at = w.from_ns;
    if (at > w.to_ns) at = w.to_ns;
    t->device_ns += passed;
    become_anchor(t, at);
    if (t->device_ns > RATE_FROM_NS) t->rate = (double)(at - t->first_ns) / t->device_ns;
    return cudaSuccess;
}

cudaError_t timeline_open(struct timeline *t, int priority)
{
    struct window w = {0};
    pthread_mutex_init(&t->mutex, NULL);
    cudaEvent_t *const events[] = {&t->anchor, &t->spare[0], &t->spare[1]};
    cudaError_t e = cudaStreamCreateWithPriority(&t->stream, cudaStreamNonBlocking, priority);
    for (int i = 0; i < 3 && e == cudaSuccess; i++)
        e = cudaEventCreateWithFlags(events[i], cudaEventDefault);
    if (e == cudaSuccess) e = look_sharply(t, TRIES, &w);
    if (e != cudaSuccess) return e;
    t->rate = 1;
    become_anchor(t, w.from_ns + (w.to_ns - w.from_ns) / 2);
    t->first_ns = t->at_ns;
    return cudaSuccess;
}

void timeline_close(struct timeline *t)
{
    if (t->anchor) cudaEventDestroy(t->anchor);
    for (int i = 0; i < 2; i++)
        if (t->spare[i]) cudaEventDestroy(t->spare[i]);
    if (t->stream) cudaStreamDestroy(t->stream);
    *t = (struct timeline){0};
}

cudaError_t timeline_at(struct timeline *t, cudaEvent_t event, int64_t *out_ns)
{
    double passed = 0;
    pthread_mutex_lock(&t->mutex);
    cudaError_t e = cudaSuccess;
    if (clock_wall_ns() - t->at_ns > RENEW_NS) e = renew(t);
    if (e == cudaSuccess) e = elapsed(t, event, &passed);
    *out_ns = t->at_ns + (int64_t)(passed * t->rate);
    pthread_mutex_unlock(&t->mutex);
    return e;
}
