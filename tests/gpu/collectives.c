#include "tests/gpu/collectives.h"

#include "core/base/arena.h"
#include "core/graph/half.h"
#include "exec/clock.h"
#include "exec/comm/comm.h"
#include "exec/device_transport/device_comm.h"
#include "exec/device_transport/nccl_env.h"
#include "exec/plugin.h"
#include "tests/support/slowdown.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum kind { ALL_REDUCE, IN_PLACE, SCATTER, GATHER, BROADCASTS, REDUCES, PAIRS, KINDS };
static const char *const names[KINDS] = {
    "all-reduce",         "all-reduce in place", "reduce-scatter",  "all-gather",
    "grouped broadcasts", "grouped reductions",  "grouped messages"};
static const enum dtype types[] = {DTYPE_fp32, DTYPE_fp64, DTYPE_bf16, DTYPE_fp16, DTYPE_int32};
/* Of one element, of an odd number, and of what goes in several pieces. */
#define LIMIT_NS (INT64_C(1000000000) * LIMIT_S)
static const int64_t sizes[] = {1, 1003, 100003};
enum { N_TYPES = sizeof types / sizeof *types, N_SIZES = sizeof sizes / sizeof *sizes };
enum {
    GUARD = 8,
    REST_NS = 50000,
    LIMIT_S = 20 * TEST_SLOWDOWN
}; /* GUARD: elements behind an output; LIMIT_S: of one call */

struct peers {
    struct arena *a;
    struct comm *comm;
    struct backend b;
    void *communicator;
    int32_t n, rank, stream, event;
    char *in, *out;    /* the device's, of the largest call */
    char *told, *come; /* the same here */
    int64_t calls;
};

struct question {
    enum kind kind;
    enum dtype t;
    int64_t n; /* as device_comm counts; of what goes in parts, all parts */
    bool weighs;
};

/* --- what is said, and what must come --- */

static double value(int32_t rank, int64_t i) { return (double)((rank * 5 + i + i / 64) % 17 - 8); }

static double weight(const struct question *c, int32_t rank)
{
    return c->weighs ? (double)(rank + 1) / 4 : 0;
}

/* Of parts that are as unequal as 0, 1, 2, …: where the one of `rank` begins; of n ranks the n-th begins where all ends. */
static int64_t part_at(const struct peers *x, const struct question *c, int32_t rank)
{
    return c->n * rank * (rank - 1) / ((int64_t)x->n * (x->n - 1));
}

static int64_t part(const struct peers *x, const struct question *c, int32_t rank)
{
    return part_at(x, c, rank + 1) - part_at(x, c, rank);
}

static int64_t in_elements(const struct peers *x, const struct question *c)
{
    return c->kind == SCATTER ? c->n * x->n : c->n;
}

static int64_t out_elements(const struct peers *x, const struct question *c)
{
    if (c->kind == PAIRS) return part(x, c, x->rank) * x->n;
    return c->kind == GATHER ? c->n * x->n : c->n;
}

static double sum(const struct peers *x, const struct question *c, int64_t i)
{
    double s = 0;
    for (int32_t r = 0; r < x->n; r++) s += (c->weighs ? weight(c, r) : 1) * value(r, i);
    return s;
}

/* Element i of this rank's output; false: nothing is written there. */
static bool expected(const struct peers *x, const struct question *c, int64_t i, double *out)
{
    int64_t mine = part(x, c, x->rank), at = part_at(x, c, x->rank);
    int32_t from = 0;
    switch (c->kind) {
    case ALL_REDUCE:
    case IN_PLACE:
        *out = sum(x, c, i);
        return true;
    case SCATTER:
        *out = sum(x, c, x->rank * c->n + i);
        return true;
    case GATHER:
        *out = value((int32_t)(i / c->n), i % c->n);
        return true;
    case BROADCASTS:
        while (i >= part_at(x, c, from + 1)) from++;
        *out = value(from, i);
        return true;
    case REDUCES:
        *out = sum(x, c, i);
        return i >= at && i < at + mine;
    case PAIRS:
        from = (int32_t)(i / mine);
        *out = value(from, at + i % mine);
        return from != x->rank;
    case KINDS:
        break;
    }
    return false;
}

static void put(enum dtype t, char *p, int64_t i, double v)
{
    float f = (float)v;
    int32_t whole = (int32_t)v;
    uint16_t half = dtype_is_half(t) ? half_of(t, f) : 0;
    const void *from = t == DTYPE_fp32    ? (const void *)&f
                       : t == DTYPE_fp64  ? (const void *)&v
                       : t == DTYPE_int32 ? (const void *)&whole
                                          : (const void *)&half;
    memcpy(p + i * dtype_bytes(t), from, (size_t)dtype_bytes(t));
}

static double get(enum dtype t, const char *p, int64_t i)
{
    union {
        float f;
        double d;
        int32_t whole;
        uint16_t half;
    } u;
    memcpy(&u, p + i * dtype_bytes(t), (size_t)dtype_bytes(t));
    return t == DTYPE_fp32    ? (double)u.f
           : t == DTYPE_fp64  ? u.d
           : t == DTYPE_int32 ? (double)u.whole
                              : (double)half_value(t, u.half);
}

/* --- one call --- */

static enum status query_parts(struct peers *x, const struct question *c, struct error *err)
{
    const struct device_comm *lib = x->b.comm;
    int64_t bytes = dtype_bytes(c->t), mine = part(x, c, x->rank);
    TRY(lib->group_begin(&x->b, err));
    for (int32_t k = 0; k < x->n; k++) {
        int64_t n = part(x, c, k), at = part_at(x, c, k) * bytes;
        if (c->kind == PAIRS && k == x->rank) continue;
        if (c->kind == PAIRS && n)
            TRY(lib->send(&x->b, x->communicator, x->stream, x->in + at, n, c->t, k, err));
        if (c->kind == PAIRS && mine)
            TRY(lib->receive(&x->b, x->communicator, x->stream, x->out + k * mine * bytes, mine, c->t, k,
                             err));
        if (c->kind == BROADCASTS && n)
            TRY(lib->broadcast(&x->b, x->communicator, x->stream, x->in + at, x->out + at, n, c->t, k,
                               err));
        if (c->kind == REDUCES && n)
            TRY(lib->reduce(&x->b, x->communicator, x->stream, x->in + at,
                            k == x->rank ? x->out + at : x->in + at, n, c->t, weight(c, x->rank), k,
                            err));
    }
    return lib->group_end(&x->b, err);
}

static enum status ask(struct peers *x, const struct question *c, struct error *err)
{
    const struct device_comm *lib = x->b.comm;
    double w = weight(c, x->rank);
    struct backend *b = &x->b;
    switch (c->kind) {
    case ALL_REDUCE:
        return lib->all_reduce(b, x->communicator, x->stream, x->in, x->out, c->n, c->t, w, err);
    case IN_PLACE:
        return lib->all_reduce(b, x->communicator, x->stream, x->out, x->out, c->n, c->t, w, err);
    case SCATTER:
        return lib->reduce_scatter(b, x->communicator, x->stream, x->in, x->out, c->n, c->t, w, err);
    case GATHER:
        return lib->all_gather(b, x->communicator, x->stream, x->in, x->out, c->n, c->t, err);
    case BROADCASTS:
    case REDUCES:
    case PAIRS:
        return query_parts(x, c, err);
    case KINDS:
        break;
    }
    return OK;
}

static enum status wait_for(struct peers *x, struct error *err)
{
    int64_t until_ns = clock_wall_ns() + LIMIT_NS;
    bool done = false;
    TRY(x->b.event_record(&x->b, x->event, x->stream, err));
    for (;;) {
        TRY(x->b.event_done(&x->b, x->event, &done, err));
        if (done) return OK;
        TRY(x->b.comm->check(&x->b, x->communicator, err));
        if (clock_wall_ns() > until_ns)
            return error_set(err, ERR_RANK, "it has not ended after %d s", LIMIT_S);
        clock_sleep_until(clock_wall_ns() + REST_NS);
    }
}

static enum status compare(const struct peers *x, const struct question *c, struct error *err)
{
    int64_t bytes = dtype_bytes(c->t), n = out_elements(x, c);
    for (int64_t i = 0; i < n + GUARD; i++) {
        char want[8];
        double v = 0;
        bool written = i < n && expected(x, c, i, &v);
        memset(want, 0xff, sizeof want);
        if (written) put(c->t, want, 0, v);
        if (!memcmp(want, x->come + i * bytes, (size_t)bytes)) continue;
        if (!written)
            return error_set(err, ERR_TOLERANCE,
                             "rank %" PRId32 ": element %" PRId64 " of %" PRId64
                             " is not as it was",
                             x->rank, i, n);
        return error_set(err, ERR_TOLERANCE,
                         "rank %" PRId32 ": element %" PRId64 " of %" PRId64 " is %g, expected %g",
                         x->rank, i, n, get(c->t, x->come, i), v);
    }
    return OK;
}

static enum status do_call(struct peers *x, const struct question *c, struct error *err)
{
    int64_t bytes = dtype_bytes(c->t), in = in_elements(x, c), out = out_elements(x, c) + GUARD;
    for (int64_t i = 0; i < in; i++) put(c->t, x->told, i, value(x->rank, i));
    memset(x->come, 0xff, (size_t)(out * bytes));
    if (c->kind == IN_PLACE) memcpy(x->come, x->told, (size_t)(in * bytes));
    TRY(x->b.upload(&x->b, x->in, x->told, in * bytes, err));
    TRY(x->b.upload(&x->b, x->out, x->come, out * bytes, err));
    TRY(ask(x, c, err));
    TRY(wait_for(x, err));
    TRY(x->b.download(&x->b, x->come, x->out, out * bytes, err));
    x->calls++;
    return compare(x, c, err);
}

/* --- all of them --- */

/* A wrong element is told at the end, so that peers who have no wrong one do not wait for this rank: the first of them. */
static enum status all_calls(struct peers *x, struct error *err)
{
    enum status worst = OK;
    for (int t = 0; t < N_TYPES; t++)
        for (int s = 0; s < N_SIZES; s++)
            for (int k = 0; k < KINDS; k++)
                for (int weighs = 0; weighs < 2; weighs++) {
                    struct question c = {(enum kind)k, types[t], sizes[s], weighs};
                    struct error why = {0};
                    bool sums = k != GATHER && k != BROADCASTS && k != PAIRS;
                    if (weighs && (!sums || (c.t != DTYPE_fp32 && c.t != DTYPE_fp64))) continue;
                    enum status st = do_call(x, &c, &why);
                    if (st != OK && worst == OK)
                        worst =
                            error_set(err, st, "%s%s of %" PRId64 " %s: %s", names[k],
                                      weighs ? ", weighted," : "", c.n, dtype_name(c.t), why.text);
                    if (st != OK && st != ERR_TOLERANCE) return worst;
                }
    return worst;
}

static enum status join(struct peers *x, struct error *err)
{
    unsigned char id[DEVICE_COMM_ID_BYTES] = {0};
    bool joined = false;
    const struct communicator_options o = {
        .id = id, .n = x->n, .rank = x->rank, .limit_ns = LIMIT_NS, .name = "collectives"};
    if (!x->b.comm) {
        const struct plugin *plugin;
        TRY(plugin_of("cuda", &plugin, err));
        x->b.comm = plugin->comm(err);
    }
    TRY(comm_agree(x->comm, x->b.comm ? OK : err->code, err));
    TRY(comm_agree(x->comm, x->rank ? OK : x->b.comm->make_id(id, err), err));
    comm_broadcast(x->comm, id, sizeof id);
    TRY(comm_agree(x->comm, x->b.comm->open(&x->b, &o, &x->communicator, err), err));
    while (!joined) {
        TRY(x->b.comm->joined(&x->b, x->communicator, &joined, err));
        if (!joined) clock_sleep_until(clock_wall_ns() + REST_NS);
    }
    return OK;
}

static enum status open_mine(struct peers *x, const struct program *p, struct error *err)
{
    int64_t bytes = (sizes[N_SIZES - 1] * x->n + GUARD) * 8;
    TRY(plugin_open_backend("cuda", &x->b, err));
    TRY(x->b.open(&x->b, p->devices[x->rank].index, err));
    TRY(x->b.stream_make(&x->b, &x->stream, err));
    TRY(x->b.event_make(&x->b, false, &x->event, err));
    TRY(x->b.allocate(&x->b, bytes, (void **)&x->in, err));
    TRY(x->b.allocate(&x->b, bytes, (void **)&x->out, err));
    x->told = arena_alloc(x->a, (size_t)bytes, 1);
    x->come = arena_alloc(x->a, (size_t)bytes, 1);
    return OK;
}

static enum status run(struct peers *x, const struct program *p, struct error *err)
{
    TRY(comm_open(x->a, p->n_devices, &x->comm, err));
    x->n = comm_size(x->comm), x->rank = comm_rank(x->comm);
    nccl_env_set(p, x->rank);
    TRY(comm_agree(x->comm, open_mine(x, p, err), err));
    TRY(join(x, err));
    return comm_agree(x->comm, all_calls(x, err), err);
}

enum status collectives_check(const struct program *p, int64_t *calls, struct error *err)
{
    struct peers x = {.a = arena_new()};
    enum status st = run(&x, p, err);
    *calls = x.calls;
    if (x.communicator && st != OK) x.b.comm->give_up(&x.b, &x.communicator, 1);
    if (x.communicator) x.b.comm->close(&x.b, x.communicator);
    if (x.b.state) x.b.close(&x.b);
    if (x.comm) comm_close(x.comm);
    arena_free(x.a);
    return st;
}
