/* planner/spmd/ratio_alternate.c - a linear program about an answer, and search and program by turns.
 *
 * Coefficients are taken at the ratios of the answer: a device's time of a block over its share. Operators of one rule are
 * one block with a weight. Collectives that grow with the largest share are those that gather or deal out by ring, padded,
 * one tier for each hop; all others, and sums, take what they take (`rest`). Bytes are affine in a device's shares and the same
 * function on every device: two devices with unequal shares tell it.
 */
#include "planner/spmd/ratio.h"

#include "core/base/arena.h"

#include <math.h>
#include <string.h>

struct relaxed {
    struct arena *a;
    const struct spmd_question *q;
    const struct spmd_answer *x;
    int32_t n, n_vectors;
    double *share; /* (n_vectors, n) */
    struct ratio_problem *out;
    int32_t *tag; /* of each block */
    struct ratio_collective *collectives;
    double *bytes; /* bytes of each collective's unsharded tensor */
    size_t block_capacity, collective_capacity;
};

static const struct spmd_meaning *chosen(const struct spmd_answer *x, int32_t op)
{
    return spmd_meaning_of(x->tables, op, x->found.rule[op]);
}

/* --- blocks --- */

static void fill_block(struct relaxed *w, const struct spmd_meaning *m, double *fixed,
                       double *slope)
{
    enum op_index index = m->choice.index[0];
    bool dealt = index != INDEX_none && index != INDEX_partial;
    const double *share = w->share + m->choice.ratio[0] * w->n;
    double steepest = 0;
    for (int32_t k = 0; k < w->n && dealt; k++)
        if (share[k] > 0) steepest = fmax(steepest, (double)m->device_ns[k] / share[k]);
    for (int32_t k = 0; k < w->n; k++) {
        if (!dealt)
            fixed[k] = (double)m->device_ns[k];
        else if (share[k] > 0)
            slope[m->choice.ratio[0] * w->n + k] = (double)m->device_ns[k] / share[k];
        else
            slope[m->choice.ratio[0] * w->n + k] =
                steepest; /* it had no share: no better estimate */
    }
}

static void add_blocks(struct relaxed *w)
{
    const struct spmd_problem *p = &w->x->tables->problem;
    size_t n_ops = (size_t)p->n_ops, n = (size_t)w->n, v = (size_t)w->n_vectors;
    double *weight = ARENA_ARRAY(w->a, double, n_ops);
    double *fixed = ARENA_ARRAY(w->a, double, n_ops *n);
    double *slope = ARENA_ARRAY(w->a, double, n_ops *n *v);
    int32_t *tag = ARENA_ARRAY(w->a, int32_t, n_ops), blocks = 0;
    for (int32_t k = 0; k < p->n_ops; k++) {
        int32_t mine = p->ops[k].rules[w->x->found.rule[k]].tag, b = 0;
        while (b < blocks && tag[b] != mine) b++;
        weight[b]++;
        if (b < blocks) continue;
        tag[blocks++] = mine;
        fill_block(w, chosen(w->x, k), fixed + (size_t)b * n, slope + (size_t)b * v * n);
    }
    w->out->n_blocks = blocks;
    w->out->weight = weight, w->out->fixed_ns = fixed, w->out->slope_ns = slope;
}

/* --- collectives --- */

static double ring_ns(const struct ratio_collective *m, double largest)
{
    double ns = 0;
    for (int32_t i = 0; i < m->n_tiers; i++)
        ns = fmax(ns, m->tiers[i].alpha_ns + m->tiers[i].beta_ns * largest);
    return ns;
}

static struct ratio_collective ring_of(struct relaxed *w, int32_t vector, double bytes)
{
    struct ratio_tier *tiers = ARENA_ARRAY(w->a, struct ratio_tier, (size_t)w->n);
    struct ratio_collective m = {.vector = vector, .tiers = tiers, .weight = 1};
    double times = (double)(w->n - 1) * w->q->microbatches;
    for (int32_t d = 0; d < w->n; d++) {
        struct cost_link h = w->q->hop(w->q->of, d, (d + 1) % w->n);
        struct ratio_tier t = {times * (double)h.latency_ns, times * bytes / h.bandwidth_Bps * 1e9};
        bool known = false;
        for (int32_t i = 0; i < m.n_tiers; i++)
            known = known || (tiers[i].alpha_ns >= t.alpha_ns && tiers[i].beta_ns >= t.beta_ns);
        if (!known) tiers[m.n_tiers++] = t;
    }
    return m;
}

static void add_tensor_collective(struct relaxed *w, const struct spmd_event *e)
{
    struct spmd_price *y = w->x->tables->price;
    const struct tensor *t = &w->q->g->tensors[e->tensor];
    double ns = (double)(e->step.forward_ns + (e->partial ? e->step.back_partial_ns : e->step.back_ns));
    if (ns <= 0 || e->step.after < 0) return;
    const struct on_axis *from = &spmd_placement_of(y, e->from)->axis[0],
                         *to = &spmd_placement_of(y, e->step.after)->axis[0];
    if ((from->how == PLACED_SHARDED) == (to->how == PLACED_SHARDED)) return;
    const struct on_axis *sharding = from->how == PLACED_SHARDED ? from : to;
    double bytes = (double)(shape_elements(&t->shape) * dtype_bytes(t->dtype)), largest = 0;
    for (int32_t m = 0; m < w->out->n_collectives; m++)
        if (w->collectives[m].vector == sharding->ratio && w->bytes[m] == bytes) {
            w->collectives[m].weight++;
            return;
        }
    struct ratio_collective m = ring_of(w, sharding->ratio, bytes);
    for (int32_t k = 0; k < w->n; k++) largest = fmax(largest, w->share[sharding->ratio * w->n + k]);
    if (ns < 0.9 * ring_ns(&m, largest)) return; /* algorithm pairs */
    size_t same = w->collective_capacity;
    w->collectives =
        arena_grow(w->a, w->collectives, (size_t)w->out->n_collectives, &w->collective_capacity, sizeof m);
    w->bytes = arena_grow(w->a, w->bytes, (size_t)w->out->n_collectives, &same, sizeof *w->bytes);
    w->bytes[w->out->n_collectives] = bytes;
    w->collectives[w->out->n_collectives++] = m;
}

/* --- memory --- */

/* The program of the answer with vector v skewed and all others even: bytes of the devices with the least and the largest
 * share. */
static enum status add_memory(struct relaxed *w, struct error *err)
{
    size_t n = (size_t)w->n, v = (size_t)w->n_vectors;
    double *slope = ARENA_ARRAY(w->a, double, n *v), *fixed = ARENA_ARRAY(w->a, double, n);
    double *memory = ARENA_ARRAY(w->a, double, n), rest = 0;
    for (int32_t i = 0; i < w->n_vectors; i++) {
        double *ratios = ARENA_ARRAY(w->a, double, n *v);
        int64_t *bytes = ARENA_ARRAY(w->a, int64_t, n);
        for (size_t k = 0; k < n * v; k++) ratios[k] = 1;
        ratios[i * w->n] = w->n, ratios[(i + 1) * w->n - 1] = 0.5;
        double sum = w->n - 2 + w->n + 0.5, most = w->n / sum, least = 0.5 / sum;
        struct sharding s = *w->q->s;
        struct spmd_question q = *w->q;
        struct spmd_tables *t;
        s.ratios = ratios, q.s = &s;
        TRY(spmd_tables_new(w->a, &q, &t, err));
        w->out->work_ns += t->work_ns;
        if (spmd_choices_ns(w->a, t, &q, w->x->choices, w->x->gathered, bytes) == INT64_MAX)
            return OK;
        double mine = (double)(bytes[0] - bytes[n - 1]) / (most - least);
        for (size_t k = 0; k < n; k++) slope[(size_t)i * n + k] = mine;
        rest = (double)bytes[0] - mine * most; /* with all other vectors even */
        for (int32_t j = 0; j < i; j++) rest -= slope[(size_t)j * n] / w->n;
    }
    for (int32_t d = 0; d < w->n; d++) fixed[d] = rest, memory[d] = (double)w->q->memory_bytes[d];
    w->out->fixed_bytes = fixed, w->out->slope_bytes = slope, w->out->memory = memory;
    return OK;
}

/* --- the program --- */

enum status ratio_of_answer(struct arena *a, const struct spmd_question *q,
                            const struct spmd_answer *x, struct ratio_problem *out,
                            struct error *err)
{
    if (q->s->n_axes != 1)
        return error_set(err, ERR_INPUT, "ratios are optimised on meshes of one axis; this mesh has %d",
                         q->s->n_axes);
    struct relaxed w = {.a = a, .q = q, .x = x, .n = q->s->n_devices, .n_vectors = q->s->n_ratios};
    w.out = out;
    *out = (struct ratio_problem){.n_devices = w.n, .n_vectors = w.n_vectors};
    w.share = ARENA_ARRAY(a, double, (size_t)(w.n * w.n_vectors));
    for (int32_t v = 0; v < w.n_vectors; v++) {
        double sum = 0;
        for (int32_t k = 0; k < w.n; k++) sum += q->s->ratios[v * w.n + k];
        for (int32_t k = 0; k < w.n; k++) w.share[v * w.n + k] = q->s->ratios[v * w.n + k] / sum;
    }
    add_blocks(&w);
    struct spmd_event *events = NULL;
    int32_t n = spmd_events(a, &x->tables->problem, x->found.rule, &events);
    for (int32_t k = 0; k < n; k++)
        if (events[k].op < 0) add_tensor_collective(&w, &events[k]);
    out->collectives = w.collectives;
    out->rest_ns = (double)x->ns - ratio_ns(out, w.share);
    if (out->rest_ns < 0) out->rest_ns = 0; /* rounding of units */
    return q->memory_bytes ? add_memory(&w, err) : OK;
}

/* --- alternation --- */

struct turns {
    struct arena *a;
    const struct spmd_question *q;
    struct ratio_best *best;
    int64_t best_ns;
    bool begun;
};

/* One search with these ratios; kept if it is the best so far. */
static enum status try_ratios(struct turns *t, const double *ratios, struct spmd_question *q,
                              struct spmd_answer *x, struct error *err)
{
    struct sharding *s = arena_copy(t->a, t->q->s, sizeof *s);
    s->ratios = arena_copy(t->a, ratios, (size_t)(s->n_ratios * s->n_devices) * sizeof *ratios);
    *q = *t->q;
    q->s = s;
    TRY(spmd_best(t->a, q, x, err));
    t->best->work_ns += x->work_ns;
    if (!t->begun) t->best->first_ns = x->ns == INT64_MAX ? INFINITY : (double)x->ns;
    t->begun = true;
    if (x->ns >= t->best_ns) return OK;
    t->best_ns = x->ns;
    t->best->answer = *x;
    t->best->sharding = spmd_sharding(t->a, q, x);
    return OK;
}

/* Alternates from one vector until a round does not improve, at most SPMD_TURNS rounds. */
static enum status chain(struct turns *t, const double *start, struct error *err)
{
    size_t n = (size_t)(t->q->s->n_ratios * t->q->s->n_devices);
    double *ratios = arena_copy(t->a, start, n * sizeof *start);
    int64_t before = INT64_MAX;
    for (int turn = 0; turn < SPMD_TURNS; turn++) {
        struct spmd_question q;
        struct spmd_answer x;
        struct ratio_problem p;
        double ns;
        TRY(try_ratios(t, ratios, &q, &x, err));
        if (x.ns == INT64_MAX || x.ns >= before) return OK;
        before = x.ns;
        TRY(ratio_of_answer(t->a, &q, &x, &p, err));
        t->best->work_ns += p.work_ns;
        double *next = arena_copy(t->a, ratios, n * sizeof *ratios);
        TRY(ratio_solve(t->a, &p, next, &ns, err));
        if (!(ns < INFINITY)) return OK;
        ratios = next;
    }
    return OK;
}

/* Speeds from the time of each device for all work. */
static enum status speeds(const struct turns *t, double *out, struct error *err)
{
    struct spmd_tables *x;
    int32_t n = t->q->s->n_devices;
    TRY(spmd_tables_new(t->a, t->q, &x, err));
    t->best->work_ns += x->work_ns;
    for (int32_t d = 0; d < n; d++) {
        double ns = 1;
        for (int32_t k = x->n_entries; k < x->problem.n_ops; k++)
            ns += (double)x->meanings[x->problem.ops[k].rules[0].tag].device_ns[d];
        out[d] = 1 / ns;
    }
    return OK;
}

/* --- several vectors --- */

/* The vectors used by some operator of the answer, renumbered. */
static void drop_unused(struct arena *a, const struct spmd_question *q, struct ratio_best *x)
{
    struct sharding *s = x->sharding;
    int32_t n = 0, *number = ARENA_ARRAY(a, int32_t, (size_t)s->n_ratios);
    double *ratios = ARENA_ARRAY(a, double, (size_t)(s->n_ratios * s->n_devices));
    for (int32_t v = 0; v < s->n_ratios; v++) number[v] = -1;
    for (int32_t i = 0; i < q->g->n_forward; i++) {
        struct op_choice *c = &x->answer.choices[i];
        bool dealt = c->index[0] != INDEX_none && c->index[0] != INDEX_partial;
        int32_t v = dealt ? c->ratio[0] : 0;
        if (dealt && number[v] < 0) {
            memcpy(ratios + n * s->n_devices, s->ratios + v * s->n_devices,
                   (size_t)s->n_devices * sizeof *ratios);
            number[v] = n++;
        }
        c->ratio[0] = dealt ? number[v] : 0;
    }
    if (!n) memcpy(ratios, s->ratios, (size_t)s->n_devices * sizeof *ratios), n = 1;
    s->n_ratios = n, s->ratios = ratios;
    sharding_set_choices(a, s, q->g, x->answer.choices, x->answer.gathered);
}

/* Offers the best, even and proportional vectors together. Each operator uses one of them, and tensors between different vectors are
 * resharded. Only results better than one vector are kept. */
static enum status by_segments(struct turns *t, const double *even, const double *fast,
                               struct error *err)
{
    size_t n = (size_t)t->q->s->n_devices;
    const struct spmd_question *one = t->q;
    struct spmd_question several = *one;
    struct sharding *s = arena_copy(t->a, one->s, sizeof *s);
    double *ratios = ARENA_ARRAY(t->a, double, 3 * n);
    int64_t before = t->best_ns;
    if (before == INT64_MAX) return OK;
    memcpy(ratios, t->best->sharding->ratios, n * sizeof *ratios);
    memcpy(ratios + n, even, n * sizeof *ratios), memcpy(ratios + 2 * n, fast, n * sizeof *ratios);
    s->n_ratios = 3, s->ratios = ratios;
    several.s = s, several.limits.enough_ns = before;
    t->q = &several;
    TRY(chain(t, ratios, err));
    t->q = one;
    if (t->best_ns < before) drop_unused(t->a, one, t->best);
    return OK;
}

static bool equal_speeds(const double *speed, int32_t n)
{
    for (int32_t k = 1; k < n; k++)
        if (speed[k] != speed[0]) return false;
    return true;
}

enum status ratio_alternate(struct arena *a, const struct spmd_question *q, struct ratio_best *out,
                            struct error *err)
{
    int32_t n = q->s->n_devices, v = q->s->n_ratios;
    struct turns t = {.a = a, .q = q, .best = out, .best_ns = INT64_MAX};
    double *even = ARENA_ARRAY(a, double, (size_t)(n * v)),
           *fast = ARENA_ARRAY(a, double, (size_t)(n * v));
    double *speed = ARENA_ARRAY(a, double, (size_t)n), sum = 0;
    *out = (struct ratio_best){.answer.ns = INT64_MAX};
    if (q->s->n_axes != 1)
        return error_set(err, ERR_INPUT, "ratios are optimised on meshes of one axis; this mesh has %d",
                         q->s->n_axes);
    TRY(speeds(&t, speed, err));
    for (int32_t k = 0; k < n; k++) sum += speed[k];
    for (int32_t i = 0; i < v; i++) /* with several vectors, one starts as a copy of the other */
        for (int32_t k = 0; k < n; k++) {
            even[i * n + k] = i % 2 ? speed[k] / sum : 1.0 / n;
            fast[i * n + k] = i % 2 ? 1.0 / n : speed[k] / sum;
        }
    TRY(chain(&t, q->s->ratios, err));
    TRY(chain(&t, even, err));
    TRY(chain(&t, fast, err));
    return v > 1 || q->one_vector || equal_speeds(speed, n) ? OK : by_segments(&t, even, fast, err);
}
