#include "tests/support/reference.h"

#include "core/lower/lower.h"
#include "planner/baseline/baseline.h"
#include "planner/candidate/scorer.h"
#include "planner/exact/candidate.h"
#include "profiles/team.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 10, MICROBATCHES_MAX = 12 };
#define ALONE_SLACK 1.05

struct line { /* one pipeline: its devices in order, the last layer of each */
    int8_t n, device[MOST], last[MOST];
    int64_t alone[MICROBATCHES_MAX + 1]; /* by share; 0: not simulated yet */
};
struct lines {
    size_t n, capacity;
    struct line *items;
};
struct choice {
    struct line *line;
    int64_t alone_ns; /* or a bound of it */
};
struct looking {
    struct arena *arena;
    const struct unequal *x;
    struct space space;
    struct scorer *scorer;
    bool plain;
    int64_t most;
    struct lines lines[1 << MOST];
    int64_t fastest_ns[1 << MOST][MICROBATCHES_MAX + 1]; /* least of their lines */
    int32_t n_replicas, share[MOST];
    uint32_t mask[MOST];
    const struct line *line[MOST];
    struct reference *out;
};

/* --- what a pipeline takes at least --- */

static const struct stage_cost *cost_of(const struct looking *q, const struct line *x, int32_t i)
{
    return space_stage(&q->space, x->device[i], i ? x->last[i - 1] + 1 : 0, x->last[i]);
}

struct wire {
    int64_t there, back;       /* of one message, from its first byte to its arrival */
    int64_t there_ns, back_ns; /* of them, what no other message may use */
    bool half_duplex;
};

static struct wire wire_of(const struct looking *q, const struct line *x, int32_t i)
{
    const struct space *s = &q->space;
    int32_t from = x->device[i], to = x->device[i + 1];
    const struct cost_link *down = space_link(s, from, to), *up = space_link(s, to, from);
    const struct device_route *r = device_graph_route(s->devices, from, to, 0, 0);
    int64_t bytes = s->cut_bytes[x->last[i]];
    struct wire w = {.there_ns = cost_occupancy_ns(down, bytes),
                     .back_ns = cost_occupancy_ns(up, bytes)};
    w.there = w.there_ns + down->latency_ns, w.back = w.back_ns + up->latency_ns;
    w.half_duplex = r->n_hops == 1 && s->cluster->links[r->hop[0] / 2].half_duplex;
    return w;
}

/* A ring of n members sends (2n - 2) / n of the bytes from each, over all links of the device together at best. */
static int64_t sum_ns(const struct looking *q, const struct line *x)
{
    double all = 0;
    for (int32_t d = 0; d < q->space.n_devices; d++)
        if (space_linked(&q->space, x->device[0], d))
            all += space_link(&q->space, x->device[0], d)->bandwidth_Bps;
    return q->n_replicas > 1 ? (int64_t)((double)cost_of(q, x, 0)->parameter_bytes / all * 1e9) : 0;
}

static int64_t least_ns(const struct looking *q, const struct line *x, int32_t m)
{
    int64_t least = 0, path = cost_of(q, x, 0)->update_ns + sum_ns(q, x);
    bool whole = q->x->job.model.measured != NULL;
    for (int32_t i = 0; i < x->n; i++) {
        const struct stage_cost *c = cost_of(q, x, i);
        int64_t back = c->input_ns + c->weight_ns, work = m * (c->forward_ns + back);
        int64_t hidden = whole || i == 0 ? 0 : back;
        if (work + c->update_ns > least) least = work + c->update_ns;
        if (path + work - hidden > least) least = path + work - hidden;
        if (i + 1 == x->n) break;
        struct wire w = wire_of(q, x, i);
        int64_t more = w.there_ns > w.back_ns ? w.there_ns : w.back_ns;
        if (w.half_duplex) more = w.there_ns + w.back_ns;
        if (m * more > least) least = m * more;
        path += c->forward_ns + (whole ? w.there + w.back + back : 0);
    }
    return least;
}

static bool linked(const struct looking *q, const struct line *x)
{
    for (int32_t i = 0; i + 1 < x->n; i++)
        if (!space_linked(&q->space, x->device[i], x->device[i + 1]) ||
            !space_linked(&q->space, x->device[i + 1], x->device[i]))
            return false;
    return true;
}

/* --- plans --- */

static int64_t simulate(struct looking *q)
{
    struct plan p;
    struct error err = {0};
    int32_t n_stages[MOST];
    int64_t ns = 0;
    struct candidate trial;
    for (int32_t r = 0; r < q->n_replicas; r++) n_stages[r] = q->line[r]->n;
    plan_skeleton(scorer_arena(q->scorer), &q->space, "reference", q->n_replicas, n_stages, &p);
    p.job.global_batch = 0; /* of a replica alone: its part */
    for (int32_t r = 0; r < q->n_replicas; r++) {
        p.job.global_batch += q->share[r] * q->space.microbatch;
        p.replicas[r].microbatches = q->share[r];
        for (int32_t i = 0; i < n_stages[r]; i++) {
            struct plan_stage *stage = &p.replicas[r].stages[i];
            stage->device = q->line[r]->device[i];
            stage->first_layer = i ? q->line[r]->last[i - 1] + 1 : 0;
            stage->last_layer = q->line[r]->last[i];
        }
    }
    bool shaped = candidate_of(&p, &q->space, &trial);
    enum status st = scorer_fit(q->scorer, &q->space, &p, &ns, &err);
    if (st == ERR_INPUT && strstr(err.text, "no link")) return INT64_MAX; /* of a sum */
    ck_assert_msg(st == OK && shaped, "%s", err.text);
    q->out->simulated++;
    if (ns == INT64_MAX) return ns;
    if (candidate_bound(&trial) > ns) q->out->violations++;
    for (int32_t r = 0; r < q->n_replicas; r++)
        if (least_ns(q, q->line[r], q->share[r]) > ns) q->out->violations++;
    if (ns < q->out->least_ns && p.job.global_batch == q->x->job.global_batch)
        q->out->least_ns = ns;
    return ns;
}

static void whole_plan(struct looking *q, int64_t alone_ns)
{
    if (q->out->simulated >= q->most) {
        q->out->cut_short = true;
        return;
    }
    if (!q->plain && q->n_replicas > 1 &&
        (q->x->shared ? (double)alone_ns / ALONE_SLACK : (double)alone_ns) >=
            (double)q->out->best_ns)
        return;
    int64_t ns = q->n_replicas == 1 && alone_ns ? alone_ns : simulate(q);
    if (ns < q->out->best_ns) q->out->best_ns = ns;
}

static int64_t alone_of(struct looking *q, struct line *x, int32_t m)
{
    if (!x->alone[m]) {
        int32_t n = q->n_replicas, share = q->share[0];
        const struct line *line = q->line[0];
        q->n_replicas = 1, q->share[0] = m, q->line[0] = x;
        x->alone[m] = simulate(q);
        q->n_replicas = n, q->share[0] = share, q->line[0] = line;
    }
    return x->alone[m];
}

static int by_alone(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;
    return (x->alone_ns > y->alone_ns) - (x->alone_ns < y->alone_ns);
}

/* Pipelines of replica r that may be faster than the best, the fastest first. */
static struct choice *choices_of(struct looking *q, struct arena *a, int32_t r, size_t *n)
{
    struct lines *all = &q->lines[q->mask[r]];
    struct choice *out = ARENA_ARRAY(a, struct choice, all->n + 1);
    *n = 0;
    for (size_t i = 0; i < all->n; i++) {
        struct line *x = &all->items[i];
        int64_t ns = 0;
        if (!q->plain) {
            if (least_ns(q, x, q->share[r]) >= q->out->best_ns) continue;
            ns = alone_of(q, x, q->share[r]);
            if (ns == INT64_MAX) continue;
            double sure = q->x->shared ? (double)ns / ALONE_SLACK : (double)ns;
            if (q->n_replicas > 1 && sure >= (double)q->out->best_ns) continue;
        }
        out[(*n)++] = (struct choice){x, ns};
    }
    qsort(out, *n, sizeof *out, by_alone);
    return out;
}

static void combine(struct looking *q, struct choice *const *choices, const size_t *n, int32_t r,
                    int64_t alone_ns)
{
    if (r == q->n_replicas) {
        whole_plan(q, alone_ns);
        return;
    }
    for (size_t i = 0; i < n[r] && !q->out->cut_short; i++) {
        q->line[r] = choices[r][i].line;
        int64_t ns = choices[r][i].alone_ns;
        combine(q, choices, n, r + 1, ns > alone_ns ? ns : alone_ns);
    }
}

static void all_lines(struct looking *q)
{
    struct choice *choices[MOST];
    size_t n[MOST];
    struct arena *scratch = arena_new();
    bool some = true;
    for (int32_t r = 0; r < q->n_replicas && some; r++) {
        choices[r] = choices_of(q, scratch, r, &n[r]);
        some = n[r] > 0;
    }
    if (some) combine(q, choices, n, 0, 0);
    arena_free(scratch);
}

/* Of a replica among others or alone: sums are not in it. */
static void find_fastest(struct looking *q)
{
    q->n_replicas = 1;
    for (uint32_t mask = 1; mask < 1u << q->space.n_devices; mask++)
        for (int32_t m = 1; m <= q->space.microbatches; m++) {
            int64_t *fastest = &q->fastest_ns[mask][m];
            *fastest = INT64_MAX;
            for (size_t i = 0; i < q->lines[mask].n; i++) {
                int64_t ns = q->plain ? 0 : least_ns(q, &q->lines[mask].items[i], m);
                if (ns < *fastest) *fastest = ns;
            }
        }
    q->n_replicas = 0;
}

/* The next replica: its lowest device is above that of the one before. */
static void replicas(struct looking *q, uint32_t unused, int32_t left)
{
    int32_t r = q->n_replicas;
    uint32_t above = r ? ~0u << (__builtin_ctz(q->mask[r - 1]) + 1) : ~0u;
    if (left == 0) {
        all_lines(q);
        return;
    }
    for (uint32_t mask = unused; mask && !q->out->cut_short; mask = (mask - 1) & unused) {
        if (!(1u << __builtin_ctz(mask) & above)) continue;
        for (int32_t m = 1; m <= left; m++) {
            if (q->fastest_ns[mask][m] >= q->out->best_ns) continue;
            q->mask[r] = mask, q->share[r] = m, q->n_replicas = r + 1;
            replicas(q, unused & ~mask, left - m);
        }
    }
    q->n_replicas = r;
}

/* --- all pipelines --- */

static void extend(struct looking *q, struct line *x, uint32_t mask, int32_t first)
{
    int32_t last_layer = q->space.n_layers - 1;
    for (int32_t d = 0; d < q->space.n_devices; d++) {
        if (mask >> d & 1) continue;
        for (int32_t last = first; last <= last_layer; last++) {
            uint32_t with = mask | 1u << d;
            struct line y = *x;
            y.device[y.n] = (int8_t)d;
            y.last[y.n++] = (int8_t)last;
            if (last < last_layer) {
                extend(q, &y, with, last + 1);
            } else if (linked(q, &y)) {
                struct lines *l = &q->lines[with];
                l->items = arena_grow(q->arena, l->items, l->n, &l->capacity, sizeof *l->items);
                l->items[l->n++] = y;
            }
        }
    }
}

void reference_search(struct arena *a, const struct unequal *x, int64_t below_ns, bool plain,
                      int64_t most, struct reference *out)
{
    struct error err = {0};
    struct lower_options lower = {.check_memory = true};
    ck_assert_int_eq(team_fused(a, &x->cluster, &lower, &err), OK);
    struct cost *cost = cost_new(a, &x->profile, &x->cluster);
    *out = (struct reference){.best_ns = below_ns, .least_ns = INT64_MAX};
    for (int32_t i = 0; i < x->job.n_microbatches_sizes; i++) {
        struct looking *q = ARENA_ARRAY(a, struct looking, 1);
        *q = (struct looking){
            .arena = arena_new(), .x = x, .plain = plain, .most = most, .out = out};
        enum status st = space_make(q->arena, &x->job, &x->cluster, cost,
                                    x->job.microbatch_sizes[i], &lower, &q->space, &err);
        ck_assert_msg(st == OK, "%s", err.text);
        ck_assert(q->space.n_devices <= MOST && q->space.microbatches <= MICROBATCHES_MAX);
        q->scorer = scorer_new(&lower);
        struct line none = {0};
        extend(q, &none, 0, 0);
        find_fastest(q);
        replicas(q, (1u << q->space.n_devices) - 1, q->space.microbatches);
        scorer_free(q->scorer);
        arena_free(q->arena);
    }
}
