/* tests/standin/nccl_work.c - calls taken apart into transfers between two ranks.
 *
 * Every rank gives every other what that one needs of it, plainly, and sums are made by whoever needs them, in the order of
 * ranks: slow, and the same bits everywhere. Each transfer begins with a header that says what call it is of; where the
 * header is not the one expected, the pipe stands still for good, as the real library would.
 */
#include "tests/standin/nccl_work.h"

#include "tests/standin/narrow.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct header {
    uint32_t kind, type, root, weighs;
    uint64_t bytes;
};

struct transfer {
    struct header header;
    unsigned char *p;
    size_t done; /* bytes, the header's first */
    struct header came;
    struct transfer *next;
};

struct queue {
    struct transfer *first, **last;
    bool stuck;
};

struct running {
    struct wire *w;
    int n, rank;
    struct queue out[WIRE_RANKS_MAX], in[WIRE_RANKS_MAX];
};

size_t work_type_bytes(ncclDataType_t t)
{
    switch (t) {
    case ncclInt32:
    case ncclFloat32:
        return 4;
    case ncclFloat64:
        return 8;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    default:
        return 0;
    }
}

/* ---- numbers ---------------------------------------------------------------------------------- */

static double get(const unsigned char *p, ncclDataType_t t, size_t i)
{
    union {
        float f;
        double d;
        int32_t i;
        uint16_t h;
    } u;
    size_t size = work_type_bytes(t);
    memcpy(&u, p + i * size, size);
    switch (t) {
    case ncclInt32:
        return u.i;
    case ncclFloat32:
        return (double)u.f;
    case ncclFloat16:
        return (double)narrow_from_fp16(u.h);
    case ncclBfloat16:
        return (double)narrow_from_bf16(u.h);
    default:
        return u.d;
    }
}

static void put(unsigned char *p, ncclDataType_t t, size_t i, double v)
{
    union {
        float f;
        double d;
        int32_t i;
        uint16_t h;
    } u = {.d = v};
    size_t size = work_type_bytes(t);
    if (t == ncclInt32) u.i = (int32_t)v;
    if (t == ncclFloat32) u.f = (float)v;
    if (t == ncclFloat16) u.h = narrow_to_fp16((float)v);
    if (t == ncclBfloat16) u.h = narrow_to_bf16((float)v);
    memcpy(p + i * size, &u, size);
}

static void sum_terms(const struct nccl_work *x, int n)
{
    size_t bytes = x->n * work_type_bytes(x->type);
    for (size_t i = 0; i < x->n; i++) {
        double sum = get(x->terms, x->type, i);
        for (int r = 1; r < n; r++) {
            sum += get(x->terms + (size_t)r * bytes, x->type, i);
            if (x->type == ncclFloat32) sum = (double)(float)sum; /* each addition rounds */
        }
        put(x->out, x->type, i, sum);
    }
}

/* ---- a call's transfers ----------------------------------------------------------------------- */

static void add(struct queue *q, const struct nccl_work *x, unsigned char *p, size_t bytes)
{
    struct transfer *t = calloc(1, sizeof *t);
    if (!t) abort();
    bool between_two = x->kind == WORK_SEND || x->kind == WORK_RECV;
    t->header = (struct header){.kind = between_two ? WORK_SEND : x->kind,
                                .type = x->type,
                                .root = between_two ? 0 : (uint32_t)x->root,
                                .weighs = 0x6e636300U | x->weighs,
                                .bytes = bytes};
    t->p = p;
    if (!q->first) q->last = &q->first;
    *q->last = t;
    q->last = &t->next;
}

static bool sums(const struct nccl_work *x, int rank)
{
    return x->kind == WORK_ALL_REDUCE || x->kind == WORK_REDUCE_SCATTER ||
           (x->kind == WORK_REDUCE && x->root == rank);
}

static bool gives(const struct nccl_work *x, int rank, int to)
{
    switch (x->kind) {
    case WORK_SEND:
    case WORK_REDUCE:
        return x->root == to;
    case WORK_RECV:
        return false;
    case WORK_BROADCAST:
        return x->root == rank;
    default:
        return true;
    }
}

static bool takes(const struct nccl_work *x, int rank, int from)
{
    switch (x->kind) {
    case WORK_SEND:
        return false;
    case WORK_RECV:
    case WORK_BROADCAST:
        return x->root == from;
    case WORK_REDUCE:
        return x->root == rank;
    default:
        return true;
    }
}

/* What this rank gives is copied first: results may stand where operands do. */
static void take_copy(const struct running *r, struct nccl_work *x, size_t bytes)
{
    bool parts = x->kind == WORK_REDUCE_SCATTER;
    size_t n = x->n * (parts ? (size_t)r->n : 1), all = bytes * (parts ? (size_t)r->n : 1);
    bool any = false;
    for (int k = 0; k < r->n; k++) any |= gives(x, r->rank, k);
    if (!any || !all) return;
    x->mine = malloc(all);
    if (!x->mine) abort();
    memcpy(x->mine, x->in, all);
    for (size_t i = 0; x->weight != 1 && i < n; i++)
        put(x->mine, x->type, i, x->weight * get(x->mine, x->type, i));
}

static void split_call(struct running *r, struct nccl_work *x)
{
    size_t bytes = x->n * work_type_bytes(x->type);
    take_copy(r, x, bytes);
    if (sums(x, r->rank) && bytes) {
        x->terms = malloc(bytes * (size_t)r->n);
        if (!x->terms) abort();
    }
    for (int k = 0; k < r->n; k++) {
        size_t part = x->kind == WORK_REDUCE_SCATTER ? (size_t)k * bytes : 0,
               from = x->kind == WORK_ALL_GATHER ? (size_t)k * bytes : 0;
        if (gives(x, r->rank, k)) add(&r->out[k], x, x->mine ? x->mine + part : NULL, bytes);
        if (!takes(x, r->rank, k)) continue;
        unsigned char *to = x->terms ? x->terms + (size_t)k * bytes : (unsigned char *)x->out;
        add(&r->in[k], x, bytes ? to + from : NULL, bytes);
    }
}

/* ---- moving ----------------------------------------------------------------------------------- */

static void drop_first(struct queue *q)
{
    struct transfer *t = q->first;
    q->first = t->next;
    free(t);
}

/* true: some bytes went. */
static bool push(struct running *r, int to)
{
    struct queue *q = &r->out[to];
    struct transfer *t = q->first;
    size_t head = sizeof t->header, moved = 0;
    if (!t) return false;
    if (t->done < head)
        moved = wire_put(r->w, to, (unsigned char *)&t->header + t->done, head - t->done);
    else if (t->header.bytes > t->done - head)
        moved = wire_put(r->w, to, t->p + (t->done - head), t->header.bytes - (t->done - head));
    t->done += moved;
    if (t->done == head + t->header.bytes) {
        drop_first(q);
        return true;
    }
    return moved > 0;
}

static bool pull(struct running *r, int from)
{
    struct queue *q = &r->in[from];
    struct transfer *t = q->first;
    size_t head = sizeof t->header, moved = 0;
    if (!t || q->stuck) return false;
    if (t->done < head) {
        moved = wire_take(r->w, from, (unsigned char *)&t->came + t->done, head - t->done);
        t->done += moved;
        if (t->done == head && memcmp(&t->came, &t->header, head)) q->stuck = true;
    } else if (t->header.bytes > t->done - head) {
        moved = wire_take(r->w, from, t->p + (t->done - head), t->header.bytes - (t->done - head));
        t->done += moved;
    }
    if (!q->stuck && t->done == head + t->header.bytes) {
        drop_first(q);
        return true;
    }
    return moved > 0;
}

static bool all_done(const struct running *r)
{
    for (int k = 0; k < r->n; k++)
        if (r->out[k].first || r->in[k].first) return false;
    return true;
}

void work_run(struct wire *w, int n, int rank, struct nccl_work *list, const _Atomic int *stopped)
{
    struct running r = {.w = w, .n = n, .rank = rank};
    for (struct nccl_work *x = list; x; x = x->next) split_call(&r, x);
    while (!atomic_load(stopped) && !all_done(&r)) {
        uint32_t seen = wire_rung(w);
        bool moved = false;
        for (int k = 0; k < n; k++) {
            moved |= push(&r, k);
            moved |= pull(&r, k);
        }
        if (!moved && !atomic_load(stopped) && !all_done(&r)) wire_wait(w, seen);
    }
    bool done = all_done(&r);
    for (int k = 0; k < n; k++) {
        while (r.out[k].first) drop_first(&r.out[k]);
        while (r.in[k].first) drop_first(&r.in[k]);
    }
    for (struct nccl_work *x = list; x; x = x->next) {
        if (done && x->terms) sum_terms(x, n);
        free(x->mine);
        free(x->terms);
    }
}
