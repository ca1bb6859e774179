/* core/plan/schedule_check.c - completeness of a schedule and freedom from deadlock.
 *
 * First every operation is entered once in a table by (device, chunk, microbatch); then the schedule is executed without
 * times: a device advances up to an operation whose input does not exist yet, and is woken by its producer.
 * Each operation waits for at most one other device, so waking costs O(1) and the check O(operations). The order
 * of execution is a topological order: sim/pipeline/static times a schedule along it.
 */
#include "core/plan/schedule_internal.h"

#include "core/base/arena.h"

#include <inttypes.h>
#include <string.h>

enum { FORWARD, BACK, WEIGHT, PARTS };

struct check {
    struct arena *a;
    const struct schedule *s;
    struct error *err;
    int32_t n_stages, *device_of, *chunk_of; /* (n_stages) */
    int32_t *at[PARTS];      /* (n_stages, m) place in its lane, from 1; 0: nowhere */
    uint8_t *done[2];        /* FORWARD, BACK: (n_stages, m) */
    int64_t *first;          /* (n_devices) index of a device's first operation */
    int32_t *taken;          /* (n_devices) operations taken */
    int32_t *woken, n_woken; /* devices that may go on */
    int64_t *order, n_order;
};

static int64_t place(const struct check *k, int32_t stage, int32_t microbatch)
{
    return (int64_t)stage * k->s->n_microbatches + microbatch;
}

static enum status check_stages(struct check *k)
{
    const struct schedule *s = k->s;
    k->device_of = ARENA_ARRAY(k->a, int32_t, (size_t)k->n_stages);
    k->chunk_of = ARENA_ARRAY(k->a, int32_t, (size_t)k->n_stages);
    memset(k->device_of, -1, (size_t)k->n_stages * sizeof *k->device_of);
    for (int32_t d = 0; d < s->n_devices; d++)
        for (int32_t c = 0; c < s->n_chunks; c++) {
            int32_t v = s->stage[d * s->n_chunks + c];
            if (v < 0 || v >= k->n_stages)
                return error_set(k->err, ERR_INPUT,
                                 "device %" PRId32 ", chunk %" PRId32 ": stage %" PRId32
                                 " of 0 … %" PRId32,
                                 d, c, v, k->n_stages - 1);
            if (k->device_of[v] >= 0)
                return error_set(k->err, ERR_INPUT,
                                 "stage %" PRId32 " is on device %" PRId32
                                 " and on device %" PRId32,
                                 v, k->device_of[v], d);
            k->device_of[v] = d, k->chunk_of[v] = c;
        }
    return OK;
}

/* Sizes are checked before allocation: a schedule with microbatch 9,999,999 must not allocate gigabytes before its error. */
static enum status check_counts(struct check *k)
{
    const struct schedule *s = k->s;
    if (s->n_devices < 1 || s->n_chunks < 1 || s->n_microbatches < 1)
        return error_set(k->err, ERR_INPUT,
                         "%" PRId32 " devices, %" PRId32 " chunks, %" PRId32
                         " microbatches: expected 1 or more of each",
                         s->n_devices, s->n_chunks, s->n_microbatches);
    int64_t stages = (int64_t)s->n_devices * s->n_chunks, ops = schedule_ops(s);
    if (stages > INT32_MAX / 4 || ops > 3 * SCHEDULE_MAX_OPS ||
        stages > (2 * ops + 1024) / s->n_microbatches)
        return error_set(k->err, ERR_INPUT,
                         "%" PRId64 " operations for %" PRId64 " stages and %" PRId32
                         " microbatches: expected F and B, or F, I and W, of each",
                         ops, stages, s->n_microbatches);
    k->n_stages = (int32_t)stages;
    return OK;
}

static bool is_part(enum phase phase, int part)
{
    return phase == (part == FORWARD ? 'F'
                     : part == BACK  ? 'I'
                                     : 'W') ||
           (phase == PHASE_B && part != FORWARD);
}

static enum status refuse_twice(struct check *k, int32_t d, const struct schedule_op *first,
                                const struct schedule_op *o)
{
    char one[32], other[32];
    schedule_op_text(one, k->s, first), schedule_op_text(other, k->s, o);
    if (first->phase == o->phase)
        return error_set(k->err, ERR_INPUT, "device %" PRId32 ": %s occurs twice", d, one);
    return error_set(k->err, ERR_INPUT, "device %" PRId32 ": %s and %s: B is I and W in one", d,
                     one, other);
}

static enum status note_op(struct check *k, int32_t d, int64_t i)
{
    const struct schedule *s = k->s;
    const struct schedule_op *o = &s->lanes[d].ops[i];
    if (!o->phase || !strchr("FBIW", o->phase))
        return error_set(k->err, ERR_INPUT,
                         "device %" PRId32 ", operation %" PRId64
                         ": letter %d: expected F, B, I or W",
                         d, i, o->phase);
    if (o->chunk < 0 || o->chunk >= s->n_chunks || o->microbatch < 0 ||
        o->microbatch >= s->n_microbatches) {
        char text[32];
        return error_set(k->err, ERR_INPUT,
                         "device %" PRId32 ": %s: expected chunks below %" PRId32
                         " and microbatches below %" PRId32,
                         d, schedule_op_text(text, s, o), s->n_chunks, s->n_microbatches);
    }
    int64_t at = place(k, s->stage[d * s->n_chunks + o->chunk], o->microbatch);
    for (int part = 0; part < PARTS; part++) {
        if (!is_part(o->phase, part)) continue;
        if (k->at[part][at]) return refuse_twice(k, d, &s->lanes[d].ops[k->at[part][at] - 1], o);
        k->at[part][at] = (int32_t)i + 1;
    }
    return OK;
}

/* F, then I, then W of one microbatch on its stage, none missing. */
static enum status check_microbatch(struct check *k, int32_t v, int32_t m)
{
    static const char *const missing[PARTS] = {"F", "B or I", "W"};
    const struct schedule *s = k->s;
    struct schedule_op o = {'?', k->chunk_of[v], m};
    int32_t d = k->device_of[v];
    int64_t at = place(k, v, m);
    char text[32], later[32];
    for (int part = 0; part < PARTS; part++)
        if (!k->at[part][at])
            return error_set(k->err, ERR_INPUT,
                             "device %" PRId32 ": %s is missing: no %s of microbatch %" PRId32 "%s",
                             d, schedule_op_text(text, s, &o), missing[part], m,
                             s->n_chunks > 1 ? " for this chunk" : "");
    for (int part = 1; part < PARTS; part++)
        if (k->at[part][at] < k->at[part - 1][at])
            return error_set(k->err, ERR_INPUT, "device %" PRId32 ": %s comes before %s", d,
                             schedule_op_text(later, s, &s->lanes[d].ops[k->at[part][at] - 1]),
                             schedule_op_text(text, s, &s->lanes[d].ops[k->at[part - 1][at] - 1]));
    return OK;
}

static enum status check_complete(struct check *k)
{
    const struct schedule *s = k->s;
    size_t n = (size_t)k->n_stages * (size_t)s->n_microbatches;
    for (int part = 0; part < PARTS; part++) k->at[part] = ARENA_ARRAY(k->a, int32_t, n);
    for (int32_t d = 0; d < s->n_devices; d++) {
        if (s->lanes[d].n_ops > INT32_MAX - 1)
            return error_set(k->err, ERR_INPUT, "device %" PRId32 ": too many operations", d);
        for (int64_t i = 0; i < s->lanes[d].n_ops; i++) TRY(note_op(k, d, i));
    }
    for (int32_t v = 0; v < k->n_stages; v++)
        for (int32_t m = 0; m < s->n_microbatches; m++) TRY(check_microbatch(k, v, m));
    return OK;
}

/* What operation o of device d waits for on another stage: *part is FORWARD or BACK. -1: on nothing. */
static int32_t needs(const struct check *k, int32_t d, const struct schedule_op *o, int *part)
{
    int32_t v = k->s->stage[d * k->s->n_chunks + o->chunk];
    *part = o->phase == PHASE_F ? FORWARD : BACK;
    if (o->phase == PHASE_F) return v - 1;
    if (o->phase == PHASE_W) return -1; /* its own I stands before it */
    return v + 1 < k->n_stages ? v + 1 : -1;
}

static bool ready(const struct check *k, int32_t d, const struct schedule_op *o)
{
    int part;
    int32_t from = needs(k, d, o, &part);
    return from < 0 || k->done[part][place(k, from, o->microbatch)];
}

/* A device advances as far as possible and wakes the neighbours that wait for its outputs. */
static void advance(struct check *k, int32_t d)
{
    const struct schedule_lane *l = &k->s->lanes[d];
    for (; k->taken[d] < l->n_ops && ready(k, d, &l->ops[k->taken[d]]); k->taken[d]++) {
        const struct schedule_op *o = &l->ops[k->taken[d]];
        k->order[k->n_order++] = k->first[d] + k->taken[d];
        if (o->phase == PHASE_W) continue;
        int part = o->phase == PHASE_F ? FORWARD : BACK;
        int32_t v = k->s->stage[d * k->s->n_chunks + o->chunk], to = v + (part == FORWARD ? 1 : -1);
        k->done[part][place(k, v, o->microbatch)] = 1;
        if (to < 0 || to >= k->n_stages) continue;
        int32_t e = k->device_of[to];
        /* Does device e stand at the very operation that this one feeds? Then it has not been woken for it yet. */
        if (e != d && k->at[part][place(k, to, o->microbatch)] == k->taken[e] + 1)
            k->woken[k->n_woken++] = e;
    }
}

static enum status blocked(struct check *k)
{
    const struct schedule *s = k->s;
    char text[400];
    size_t n = 0;
    int32_t more = 0;
    for (int32_t d = 0; d < s->n_devices; d++) {
        if (k->taken[d] == s->lanes[d].n_ops) continue;
        const struct schedule_op *o = &s->lanes[d].ops[k->taken[d]];
        int part;
        int32_t from = needs(k, d, o, &part), e = k->device_of[from];
        const struct schedule_op *x =
            &s->lanes[e].ops[k->at[part][place(k, from, o->microbatch)] - 1];
        char mine[32], other[32];
        if (n > sizeof text - 100) {
            more++;
            continue;
        }
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "%sdevice %" PRId32 " at %s (waits for %s of device %" PRId32 ")",
                              n ? ", " : "", d, schedule_op_text(mine, s, o),
                              schedule_op_text(other, s, x), e);
    }
    if (more) snprintf(text + n, sizeof text - n, " and %" PRId32 " more", more);
    return error_set(k->err, ERR_INPUT, "deadlock: %s", text);
}

enum status schedule_check(struct arena *a, const struct schedule *s, int64_t **order,
                           struct error *err)
{
    struct check k = {.a = a, .s = s, .err = err};
    TRY(check_counts(&k));
    TRY(check_stages(&k));
    TRY(check_complete(&k));
    size_t devices = (size_t)s->n_devices, n = (size_t)k.n_stages * (size_t)s->n_microbatches;
    int64_t ops = 0;
    for (int part = FORWARD; part <= BACK; part++) k.done[part] = arena_alloc(a, n, 1);
    k.first = ARENA_ARRAY(a, int64_t, devices);
    k.taken = ARENA_ARRAY(a, int32_t, devices);
    for (size_t d = 0; d < devices; d++) k.first[d] = ops, ops += s->lanes[d].n_ops;
    k.order = ARENA_ARRAY(a, int64_t, (size_t)ops);
    k.woken = ARENA_ARRAY(a, int32_t, (size_t)ops + devices);
    for (int32_t d = 0; d < s->n_devices; d++) {
        advance(&k, d);
        while (k.n_woken) advance(&k, k.woken[--k.n_woken]);
    }
    if (k.n_order < ops) return blocked(&k);
    if (order) *order = k.order;
    return OK;
}
