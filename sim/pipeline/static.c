/* sim/pipeline/static.c - one pass over operations sorted by level. */
#include "core/base/units.h"
#include "sim/pipeline/static_internal.h"

#include "core/base/arena.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- the pass --- */

static void run(struct static_timer *t)
{
    const struct static_op *restrict ops = t->ops;
    const struct class_cost *restrict cost = t->cost;
    int64_t *restrict device_free = t->free, *restrict queue = t->queue,
                      *arrival = t->arrival, *restrict end = t->end;
    memset(device_free, 0, (size_t)t->s->n_devices * sizeof *device_free);
    memset(queue, 0, (size_t)t->n_stages * (CLASSES / 2) * sizeof *queue);
    for (uint32_t i = 0, n = t->n_ops; i < n; i++) {
        struct static_op o = ops[i];
        const struct class_cost *c = &cost[o.class];
        int64_t e = units_max(device_free[o.device], arrival[o.needs]) + c->ns;
        int64_t left = units_max(e, queue[o.class >> 1]) + c->occupancy_ns;
        device_free[o.device] = end[i] = e;
        queue[o.class >> 1] = left;
        arrival[i + 1] = left + c->latency_ns;
    }
}

/* --- a schedule, sorted --- */

static uint32_t class_of(enum phase phase)
{
    return phase == PHASE_F   ? CLASS_F
           : phase == PHASE_W ? CLASS_W
           : phase == PHASE_I ? CLASS_I
                              : CLASS_B;
}

/* The stage on another device or chunk whose F, or I or B, an operation waits for; -1: none. */
static int32_t source(const struct static_timer *t, int32_t stage, enum phase phase)
{
    if (phase == PHASE_F) return stage - 1;
    return phase == PHASE_W || stage + 1 == t->n_stages ? -1 : stage + 1;
}

struct sorting {
    struct arena *scratch;
    const int64_t *order; /* (n_ops) device-major indices, executable */
    struct static_op *op; /* (n_ops) by device-major index; needs: index of the producer + 1 */
    uint32_t *level;      /* (n_ops) length of its longest chain of predecessors */
    uint32_t n_levels;
};

/* Operations by device-major index, with the index of their input's producer. */
static void flatten(struct static_timer *t, struct sorting *z)
{
    const struct schedule *s = t->s;
    size_t n = (size_t)t->n_stages * (size_t)s->n_microbatches;
    uint32_t *maker[2] = {ARENA_ARRAY(z->scratch, uint32_t, n),
                          ARENA_ARRAY(z->scratch, uint32_t, n)};
    uint32_t k = 0;
    for (int32_t d = 0; d < s->n_devices; d++)
        for (int64_t i = 0; i < s->lanes[d].n_ops; i++) {
            const struct schedule_op *o = &s->lanes[d].ops[i];
            int32_t stage = s->stage[d * s->n_chunks + o->chunk];
            if (o->phase != PHASE_W)
                maker[o->phase != PHASE_F][(int64_t)stage * s->n_microbatches + o->microbatch] =
                    ++k;
            else
                k++;
        }
    k = 0;
    for (int32_t d = 0; d < s->n_devices; d++)
        for (int64_t i = 0; i < s->lanes[d].n_ops; i++, k++) {
            const struct schedule_op *o = &s->lanes[d].ops[i];
            int32_t stage = s->stage[d * s->n_chunks + o->chunk], from = source(t, stage, o->phase);
            z->op[k].class = (uint32_t)stage * CLASSES + class_of(o->phase);
            z->op[k].device = (uint32_t)d;
            if (from >= 0)
                z->op[k].needs =
                    maker[o->phase != PHASE_F][(int64_t)from * s->n_microbatches + o->microbatch];
        }
}

static void find_levels(const struct static_timer *t, struct sorting *z)
{
    uint32_t *of_device = ARENA_ARRAY(z->scratch, uint32_t, (size_t)t->s->n_devices);
    for (uint32_t i = 0; i < t->n_ops; i++) {
        const struct static_op *o = &z->op[z->order[i]];
        uint32_t level = of_device[o->device];
        if (o->needs && z->level[o->needs - 1] + 1 > level) level = z->level[o->needs - 1] + 1;
        z->level[z->order[i]] = level;
        of_device[o->device] = level + 1;
        if (level >= z->n_levels) z->n_levels = level + 1;
    }
}

/* By level, within one by device: neighbours in the array do not wait for each other. */
static void sort_by_level(struct static_timer *t, struct sorting *z)
{
    uint32_t *next = ARENA_ARRAY(z->scratch, uint32_t, (size_t)z->n_levels + 1);
    for (uint32_t k = 0; k < t->n_ops; k++) next[z->level[k] + 1]++;
    for (uint32_t l = 0; l < z->n_levels; l++) next[l + 1] += next[l];
    for (uint32_t k = 0; k < t->n_ops; k++) t->place_of[k] = next[z->level[k]]++;
    for (uint32_t k = 0; k < t->n_ops; k++) {
        struct static_op o = z->op[k];
        if (o.needs) o.needs = t->place_of[o.needs - 1] + 1;
        t->ops[t->place_of[k]] = o;
        uint32_t stage = o.class / CLASSES, kind = o.class % CLASSES;
        if (kind == CLASS_W || kind == CLASS_B) t->last[stage] = t->place_of[k];
    }
}

/* Connections from device to device with more than one sending stage. */
static void find_shared(struct static_timer *t, struct arena *scratch)
{
    int32_t n = t->n_stages, p = t->s->n_devices;
    int32_t *first = ARENA_ARRAY(scratch, int32_t, (size_t)p + 1),
            *list = ARENA_ARRAY(scratch, int32_t, 2 * (size_t)n);
    /* Connections by sending device; a device sends for n_chunks stages, forward and backward. */
    for (int32_t v = 0; v < n; v++) first[t->device_of[v] + 1] += 2;
    for (int32_t d = 0; d < p; d++) first[d + 1] += first[d];
    for (int32_t v = 0; v < n; v++) {
        int32_t at = first[t->device_of[v]]++;
        list[at] = 2 * v;
        first[t->device_of[v]]++;
        list[at + 1] = 2 * v + 1;
    }
    for (int32_t i = 0; i < 2 * n; i++)
        for (int32_t k = i + 1; k < 2 * n; k++) {
            int32_t v = list[i] / 2, u = list[k] / 2, back = list[i] % 2, too = list[k] % 2;
            if (t->device_of[u] != t->device_of[v]) break;
            int32_t to = v + (back ? -1 : 1), other = u + (too ? -1 : 1);
            if (to < 0 || to >= n || other < 0 || other >= n) continue;
            if (t->device_of[to] == t->device_of[other])
                t->shared[back][v] = t->shared[too][u] = true;
        }
}

static void allocate(struct static_timer *t, struct arena *a)
{
    size_t n = t->n_ops, classes = (size_t)t->n_stages * CLASSES, p = (size_t)t->s->n_devices;
    t->ops = ARENA_ARRAY(a, struct static_op, n), t->place_of = ARENA_ARRAY(a, uint32_t, n);
    t->last = ARENA_ARRAY(a, uint32_t, (size_t)t->n_stages);
    t->cost = ARENA_ARRAY(a, struct class_cost, classes);
    t->device_of = ARENA_ARRAY(a, int32_t, (size_t)t->n_stages);
    for (int i = 0; i < 2; i++) t->shared[i] = ARENA_ARRAY(a, bool, (size_t)t->n_stages);
    t->arrival = ARENA_ARRAY(a, int64_t, n + 1), t->end = ARENA_ARRAY(a, int64_t, n);
    t->free = ARENA_ARRAY(a, int64_t, p), t->queue = ARENA_ARRAY(a, int64_t, classes / 2);
}

static enum status sort(struct static_timer *t, struct arena *a, struct arena *scratch,
                        struct error *err)
{
    const struct schedule *s = t->s;
    struct sorting z = {.scratch = scratch};
    int64_t *order;
    TRY(schedule_check(scratch, s, &order, err));
    z.order = order;
    int64_t n = schedule_ops(s);
    if (n >= UINT32_MAX)
        return error_set(err, ERR_INPUT, "%" PRId64 " operations: too many to be timed", n);
    t->n_ops = (uint32_t)n, t->n_stages = s->n_devices * s->n_chunks;
    allocate(t, a);
    for (int32_t d = 0; d < s->n_devices; d++)
        for (int32_t c = 0; c < s->n_chunks; c++) t->device_of[s->stage[d * s->n_chunks + c]] = d;
    z.op = ARENA_ARRAY(scratch, struct static_op, (size_t)n);
    z.level = ARENA_ARRAY(scratch, uint32_t, (size_t)n);
    flatten(t, &z);
    find_levels(t, &z);
    sort_by_level(t, &z);
    find_shared(t, scratch);
    return OK;
}

enum status static_new(struct arena *a, const struct schedule *s, struct static_timer **out,
                       struct error *err)
{
    struct static_timer *t = ARENA_ARRAY(a, struct static_timer, 1);
    struct arena *scratch = arena_new();
    t->s = s;
    enum status st = sort(t, a, scratch, err);
    arena_free(scratch);
    if (st == OK) *out = t;
    return st;
}

/* --- prices --- */

#define MAX_SUM 4e18 /* of nanoseconds or bytes: less than half of int64's range */

static int64_t fused_ns(const struct pipeline_stage *x)
{
    return x->fused_ns ? x->fused_ns : x->input_ns + x->weight_ns;
}

static enum status check_stage(const struct pipeline_stage *x, int32_t v, struct error *err)
{
    const int64_t ns[] = {x->forward_ns, x->input_ns, x->weight_ns, x->fused_ns};
    static const char *const name[] = {"forward", "input gradient", "weight gradient", "backward"};
    for (int i = 0; i < 4; i++)
        if (ns[i] < 0 || ns[i] > PIPELINE_MAX_NS)
            return error_set(err, ERR_INPUT,
                             "stage %" PRId32 ": %s of %" PRId64 " ns: expected 0 … %" PRId64, v,
                             name[i], ns[i], PIPELINE_MAX_NS);
    return OK;
}

/* Upper bounds of the schedule's times and memory: all operations in sequence; all allocations without releases. In doubles,
 * whose sums cannot overflow. */
static enum status check_sums(const struct pipeline *p, const struct schedule *s, struct error *err)
{
    double ns = 0, most_bytes = 0;
    for (int32_t v = 0; v < p->n_stages; v++) {
        const struct pipeline_stage *x = &p->stages[v];
        const struct pipeline_link *l = p->links && v + 1 < p->n_stages ? &p->links[v] : NULL;
        ns += (double)x->forward_ns + (double)x->input_ns + (double)x->weight_ns +
              (double)x->fused_ns;
        for (int k = 0; l && k < 2; k++)
            ns += (double)l->occupancy_ns[k] + (double)l->latency_ns[k];
    }
    for (int32_t d = 0; d < p->n_devices; d++) {
        double bytes = 0;
        for (int32_t c = 0; c < s->n_chunks; c++) {
            const struct pipeline_stage *x = &p->stages[s->stage[d * s->n_chunks + c]];
            bytes += fabs((double)x->forward_bytes) + fabs((double)x->input_bytes) +
                     fabs((double)x->weight_bytes);
        }
        bytes *= s->n_microbatches;
        if (p->devices) bytes += fabs((double)p->devices[d].resident_bytes);
        if (bytes > most_bytes) most_bytes = bytes;
    }
    if (ns * s->n_microbatches > MAX_SUM || most_bytes > MAX_SUM)
        return error_set(
            err, ERR_INPUT,
            "the %s of all %" PRId32 " microbatches add up to %.3g: expected at most %.3g",
            most_bytes > MAX_SUM ? "bytes of a device" : "nanoseconds", s->n_microbatches,
            most_bytes > MAX_SUM ? most_bytes : ns * s->n_microbatches, MAX_SUM);
    return OK;
}

enum status pipeline_check(const struct pipeline *p, const struct schedule *s, struct error *err)
{
    if (p->n_devices != s->n_devices || p->n_stages != s->n_devices * s->n_chunks)
        return error_set(err, ERR_INPUT,
                         "a pipeline of %" PRId32 " devices and %" PRId32
                         " stages cannot follow a schedule of %" PRId32 " devices and %" PRId32
                         " chunks each",
                         p->n_devices, p->n_stages, s->n_devices, s->n_chunks);
    for (int32_t v = 0; v < p->n_stages; v++) TRY(check_stage(&p->stages[v], v, err));
    for (int32_t v = 0; p->links && v + 1 < p->n_stages; v++)
        for (int k = 0; k < 4; k++) {
            const struct pipeline_link *l = &p->links[v];
            int64_t ns = k < 2 ? l->occupancy_ns[k] : l->latency_ns[k - 2];
            if (ns < 0 || ns > PIPELINE_MAX_NS)
                return error_set(err, ERR_INPUT,
                                 "link %" PRId32 ": %s of %" PRId64 " ns: expected 0 … %" PRId64, v,
                                 k < 2 ? "occupancy" : "latency", ns, PIPELINE_MAX_NS);
        }
    return check_sums(p, s, err);
}

/* Fills the table of classes. false: a shared connection is occupied. */
static bool price(struct static_timer *t, const struct pipeline *p)
{
    for (int32_t v = 0; v < t->n_stages; v++) {
        const struct pipeline_stage *x = &p->stages[v];
        struct class_cost *c = &t->cost[(size_t)v * CLASSES];
        memset(c, 0, CLASSES * sizeof *c);
        c[CLASS_F].ns = x->forward_ns, c[CLASS_I].ns = x->input_ns;
        c[CLASS_W].ns = x->weight_ns, c[CLASS_B].ns = fused_ns(x);
        for (int back = 0; back < 2 && p->links; back++) {
            int32_t to = v + (back ? -1 : 1);
            if (to < 0 || to >= t->n_stages || t->device_of[to] == t->device_of[v]) continue;
            const struct pipeline_link *l = &p->links[back ? to : v];
            if (t->shared[back][v] && l->occupancy_ns[back] > 0) return false;
            for (int k = back ? CLASS_I : CLASS_F; k <= (back ? CLASS_B : CLASS_F); k++)
                c[k].occupancy_ns = l->occupancy_ns[back], c[k].latency_ns = l->latency_ns[back];
        }
    }
    return true;
}

bool static_time(struct static_timer *t, const struct pipeline *p, int64_t *makespan_ns)
{
    if (!price(t, p)) return false;
    run(t);
    *makespan_ns = 0;
    for (int32_t d = 0; d < t->s->n_devices; d++)
        *makespan_ns = units_max(*makespan_ns, t->free[d]);
    return true;
}
