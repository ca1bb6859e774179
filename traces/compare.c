/* A hash join: spans are grouped by (device, stage, phase, microbatch, stream, op, part), over all steps and both traces; a
 * group with durations of both sides is joined. Groups are in the order of their first occurrence, so that the result is
 * independent of the hash.
 */
#include "traces/compare.h"

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "traces/quantile.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum side { SIM, RUN, SIDES };

struct where {
    int32_t device, stage, microbatch, stream, op, part, phase;
};
struct joint {
    struct where where;
    const char *kind;
    size_t count[SIDES], first[SIDES]; /* durations of a side: [first, first + count) */
    int64_t ns[SIDES];                 /* medians */
};
struct join {
    struct arena *scratch;
    size_t n, capacity, n_places;
    struct joint *joints;
    /* open hash: index into joints + 1, 0 empty; n_places a power of two, at most half full */
    uint32_t *places;
    int64_t *durations[SIDES];
};

/* --- groups ---------------------------------------------------------------------------------- */

static struct where where_of(const struct span *s)
{
    return (struct where){s->device, s->stage, s->microbatch, (int32_t)s->stream,
                          s->op,     s->part,  s->phase};
}

static uint32_t *place_of(const struct join *j, const struct where *w)
{
    for (size_t at = (size_t)rng_hash_bytes(0, w, sizeof *w);; at++) {
        uint32_t *p = &j->places[at & (j->n_places - 1)];
        if (!*p || !memcmp(&j->joints[*p - 1].where, w, sizeof *w)) return p;
    }
}

static void grow_places(struct join *j)
{
    j->n_places *= 2;
    j->places = ARENA_ARRAY(j->scratch, uint32_t, j->n_places);
    for (size_t i = 0; i < j->n; i++) *place_of(j, &j->joints[i].where) = (uint32_t)i + 1;
}

static struct joint *joint_of(struct join *j, const struct span *s)
{
    struct where w = where_of(s);
    uint32_t *place = place_of(j, &w);
    if (*place) return &j->joints[*place - 1];
    j->joints = arena_grow(j->scratch, j->joints, j->n, &j->capacity, sizeof *j->joints);
    j->joints[j->n] = (struct joint){.where = w, .kind = span_title(s)};
    *place = (uint32_t)++j->n;
    if (2 * j->n > j->n_places) grow_places(j);
    return &j->joints[j->n - 1];
}

/* STEP spans are not joined, and a prediction has no kernels and no checkpoints. */
static bool has_partner(const struct span *s)
{
    return s->kind != SPAN_STEP && s->kind != SPAN_KERNEL && span_in_step(s);
}

static void collect(struct join *j, const struct trace *t, enum side side)
{
    int32_t from = trace_first_counted_step(t);
    size_t total = 0;
    for (size_t i = 0; i < t->n_spans; i++)
        if (has_partner(&t->spans[i]) && t->spans[i].step >= from)
            joint_of(j, &t->spans[i])->count[side]++;
    for (size_t g = 0; g < j->n; g++) {
        j->joints[g].first[side] = total;
        total += j->joints[g].count[side];
        j->joints[g].count[side] = 0;
    }
    j->durations[side] = ARENA_ARRAY(j->scratch, int64_t, total);
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i];
        if (!has_partner(s) || s->step < from) continue;
        struct joint *g = joint_of(j, s);
        j->durations[side][g->first[side] + g->count[side]++] = s->end_ns - s->begin_ns;
    }
    for (size_t g = 0; g < j->n; g++) {
        struct joint *x = &j->joints[g];
        x->ns[side] = quantile_median_ns(j->durations[side] + x->first[side], x->count[side]);
    }
}

/* --- kinds ----------------------------------------------------------------------------------- */

static bool joined(const struct joint *g) { return g->count[SIM] && g->count[RUN]; }

static int by_kind(const void *a, const void *b)
{
    const struct joint *x = *(const struct joint *const *)a, *y = *(const struct joint *const *)b;
    int order = strcmp(x->kind, y->kind);
    return order ? order : x < y ? -1 : x > y;
}

static int by_time(const void *a, const void *b)
{
    const struct compare_kind *x = a, *y = b;
    if (x->run_ns != y->run_ns) return x->run_ns > y->run_ns ? -1 : 1;
    return strcmp(x->kind, y->kind);
}

/* A span of zero duration has no relative error: it counts in the totals and not in the quantiles. */
static struct compare_kind summary(struct arena *scratch, struct joint *const *g, size_t n)
{
    struct compare_kind k = {.kind = g[0]->kind, .joined = (int64_t)n};
    double *biases = ARENA_ARRAY(scratch, double, n), *absolute = ARENA_ARRAY(scratch, double, n);
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        k.sim_ns += g[i]->ns[SIM];
        k.run_ns += g[i]->ns[RUN];
        if (!g[i]->ns[RUN]) continue;
        biases[m] = (double)(g[i]->ns[SIM] - g[i]->ns[RUN]) / (double)g[i]->ns[RUN];
        absolute[m] = fabs(biases[m]);
        m++;
    }
    k.bias = quantile_median_double(biases, m);
    k.median = quantile_median_double(absolute, m);
    k.p95 = quantile(absolute, m, 0.95);
    return k;
}

static void summarise(struct arena *a, struct join *j, struct comparison *out)
{
    struct joint **g = ARENA_ARRAY(j->scratch, struct joint *, j->n);
    size_t n = 0, capacity = 0;
    for (size_t i = 0; i < j->n; i++) {
        if (joined(&j->joints[i]))
            g[n++] = &j->joints[i];
        else
            *(j->joints[i].count[SIM] ? &out->only_sim : &out->only_run) += 1;
    }
    out->joined = (int64_t)n;
    if (n) qsort(g, n, sizeof *g, by_kind);
    for (size_t first = 0, end = 0; first < n; first = end) {
        for (end = first + 1; end < n && !strcmp(g[first]->kind, g[end]->kind); end++) {
        }
        struct compare_kind k = summary(j->scratch, g + first, end - first);
        k.kind = arena_strdup(a, k.kind);
        out->kinds = arena_grow(a, out->kinds, out->n_kinds, &capacity, sizeof *out->kinds);
        out->kinds[out->n_kinds++] = k;
    }
    if (out->n_kinds) qsort(out->kinds, out->n_kinds, sizeof *out->kinds, by_time);
}

enum status compare_traces(struct arena *a, const struct trace *sim, const struct trace *run,
                           struct comparison *out, struct error *err)
{
    if (trace_folded(sim) || trace_folded(run))
        return error_set(
            err, ERR_INPUT,
            "a trace of '%s' is folded (one device represents several): simulate without "
            "--fold to compare",
            sim->plan);
    if (sim->plan_hash != run->plan_hash || sim->n_devices != run->n_devices)
        return error_set(err, ERR_INPUT,
                         "the traces are of different plans: '%s' (%016" PRIx64
                         ") and '%s' (%016" PRIx64 ")",
                         sim->plan, sim->plan_hash, run->plan, run->plan_hash);
    if (run->iteration_ns <= 0)
        return error_set(err, ERR_INPUT, "the measured trace of '%s' has no complete step", run->plan);
    *out = (struct comparison){.sim_iteration_ns = sim->iteration_ns,
                               .run_iteration_ns = run->iteration_ns};
    out->iteration_bias =
        (double)(sim->iteration_ns - run->iteration_ns) / (double)run->iteration_ns;
    out->iteration_error = fabs(out->iteration_bias);
    struct join j = {.scratch = arena_new(), .n_places = 1024};
    j.places = ARENA_ARRAY(j.scratch, uint32_t, j.n_places);
    collect(&j, sim, SIM);
    collect(&j, run, RUN);
    summarise(a, &j, out);
    arena_free(j.scratch);
    return OK;
}
