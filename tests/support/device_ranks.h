/* tests/support/device_ranks.h - forked ranks, each with a stand-in GPU of its own, that talk by a device transport.
 *
 * A test makes its program before it forks, so that all ranks have the same. In a rank nothing of Check may be called: NEED
 * prints what is wrong and ends it, which the launcher tells the test.
 */
#ifndef TESTS_SUPPORT_DEVICE_RANKS_H
#define TESTS_SUPPORT_DEVICE_RANKS_H

#include "core/base/arena.h"
#include "core/program/program.h"
#include "exec/clock.h"
#include "exec/comm/comm.h"
#include "exec/comm/launch_local.h"
#include "exec/device_transport/device_comm.h"
#include "exec/device_transport/device_transport.h"
#include "exec/plugin.h"

#include "tests/support/suites.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define NEED(condition, ...)                                                                       \
    do {                                                                                           \
        if (condition) break;                                                                      \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                            \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fputc('\n', stderr);                                                                       \
        fflush(stderr);                                                                            \
        _exit(1);                                                                                  \
    } while (0)

enum { DEVICE_RANKS_LIMIT_S = 100 * TEST_SLOWDOWN }; /* nobody comes near it, unless all is lost */

struct device_rank {
    struct arena *a;
    struct comm *comm;
    struct backend backend;
    const struct program *p;
    int32_t rank;
    struct lane_memory *memory;        /* (n_stages) */
    const struct lane_memory **places; /* (n_stages) NULL: another rank's */
    unsigned char *channel, *group;
    struct device_transport *t;
    struct error err;
};

/* What ranks read: where the stand-in's files are, and that every rank's GPU is another. */
static inline void device_ranks_environment(int32_t n)
{
    const char *b = getenv("BUILD");
    char path[PATH_MAX], text[16];
    if (!b || !*b) b = "build";
    snprintf(path, sizeof path, "%s/libmusher_cuda_standin.so", b);
    setenv("MUSHER_CUDA_PLUGIN", path, 1);
    char whole[PATH_MAX];
    snprintf(path, sizeof path, "%s/standin/libnccl.so.2", b);
    setenv("MUSHER_NCCL", realpath(path, whole) ? whole : path, 1);
    snprintf(text, sizeof text, "%" PRId32, n);
    setenv("STANDIN_DEVICES", text, 1);
}

static inline enum status device_rank_open(struct device_rank *r, struct arena *a,
                                           const struct program *p, int32_t gpu)
{
    *r = (struct device_rank){.a = a, .p = p};
    TRY(comm_open(a, p->n_devices, &r->comm, &r->err));
    r->rank = comm_rank(r->comm);
    TRY(plugin_open_backend("cuda", &r->backend, &r->err));
    TRY(r->backend.open(&r->backend, gpu < 0 ? r->rank : gpu, &r->err));
    r->memory = ARENA_ARRAY(a, struct lane_memory, (size_t)p->n_stages);
    r->places = ARENA_ARRAY(a, const struct lane_memory *, (size_t)p->n_stages);
    r->channel = ARENA_ARRAY(a, unsigned char, (size_t)p->n_channels + 1);
    r->group = ARENA_ARRAY(a, unsigned char, (size_t)p->n_collectives + 1);
    memset(r->channel, TRANSPORT_DEVICE, (size_t)p->n_channels);
    memset(r->group, TRANSPORT_DEVICE, (size_t)p->n_collectives);
    for (int32_t s = 0; s < p->n_stages; s++) {
        if (p->stages[s].device != r->rank) continue;
        TRY(lane_memory_open(&r->memory[s], a, p, s, &r->backend, true, &r->err));
        r->places[s] = &r->memory[s];
    }
    return OK;
}

static inline struct device_transport_options device_rank_options(const struct device_rank *r)
{
    return (struct device_transport_options){.backend = (struct backend *)(uintptr_t)&r->backend,
                                             .comm = r->comm,
                                             .p = r->p,
                                             .rank = r->rank,
                                             .channel = r->channel,
                                             .group = r->group,
                                             .memory = r->places,
                                             .steps = 4,
                                             .limit_ns = INT64_C(60000000000)};
}

static inline enum status device_rank_join(struct device_rank *r)
{
    struct device_transport_options o = device_rank_options(r);
    return device_transport_open(r->a, &o, &r->t, &r->err);
}

/* Until all that was asked of the device has ended, watching. */
static inline enum status device_rank_wait(struct device_rank *r)
{
    bool done = false;
    int32_t event;
    struct backend *b = &r->backend;
    TRY(b->event_make(b, false, &event, &r->err));
    TRY(b->event_record(b, event, STREAM_COMPUTE, &r->err));
    while (!done) {
        TRY(b->event_done(b, event, &done, &r->err));
        if (!done) TRY(device_transport_check(r->t, &r->err));
        if (!done) clock_sleep_until(clock_wall_ns() + 50000);
    }
    return OK;
}

static inline void device_rank_close(struct device_rank *r)
{
    device_transport_close(r->t);
    for (int32_t s = 0; r->memory && s < r->p->n_stages; s++) lane_memory_close(&r->memory[s]);
    if (r->backend.state) r->backend.close(&r->backend);
    comm_close(r->comm);
}

/* As many ranks as the program has devices; they must all be content. */
static inline void device_ranks_run(local_rank *body, const void *owner, int32_t n)
{
    struct error err = {.code = OK};
    device_ranks_environment(n);
    enum status status =
        launch_local(n, body, (void *)(uintptr_t)owner, DEVICE_RANKS_LIMIT_S, &err);
    ck_assert_msg(status == OK, "%s", err.text);
}

#endif
