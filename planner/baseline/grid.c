/* Grid families: cuts of layers, assignment of devices, estimates. The estimate of a setting is
 *   (m - 1) max t + sum of t + 2 c over one pipeline, plus the exposed part of the gradient all-reduces,
 * for a few of its replicas. It only selects the settings to simulate. */
#include "planner/baseline/baseline.h"

#include "core/base/arena.h"
#include "core/base/stop.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 4, MAX_COARSE = 16 };
#define MISS_COUNTS (INT64_C(1) << 60) /* larger than any number of missing bytes */

struct grid { /* a setting on its space */
    const struct baseline_task *k;
    const struct baseline_setting *x;
    const struct space *s;
    int32_t n_virtual;    /* stages · chunks */
    int32_t microbatches; /* of a replica, the largest share */
    int32_t *last;        /* (n_virtual) last layer of each */
    int64_t miss;         /* if infeasible: as in baseline_task */
};

/* The first GPU of a stage. */
static int32_t device_of(const struct grid *g, int32_t replica, int32_t stage)
{
    const struct baseline_setting *x = g->x;
    int32_t at = x->strided ? stage * x->replicas + replica : replica * x->stages + stage;
    return g->k->degrees[x->degree].first[at];
}

static const struct stage_cost *stage_of(const struct grid *g, int32_t device, int32_t first,
                                         int32_t last)
{
    return space_stage_type(g->s, baseline_type(g->k, g->x, device), first, last);
}

/* Replicas 0, …, spread evenly. */
static int32_t sample(const struct baseline_setting *x, int32_t k)
{
    return x->replicas <= SAMPLES ? k : (int32_t)((int64_t)k * (x->replicas - 1) / (SAMPLES - 1));
}
static int32_t samples(const struct baseline_setting *x)
{
    return x->replicas < SAMPLES ? x->replicas : SAMPLES;
}

/* --- cuts --- */

/* F + B of layers first … last on the slowest device of this stage. */
static int64_t slowest_sample_ns(const struct grid *g, int32_t stage, int32_t first, int32_t last)
{
    int64_t most = 0;
    for (int32_t k = 0; k < samples(g->x); k++) {
        const struct stage_cost *c =
            stage_of(g, device_of(g, sample(g->x, k), stage % g->x->stages), first, last);
        int64_t ns = c->forward_ns + c->input_ns + c->weight_ns;
        most = ns > most ? ns : most;
    }
    return most;
}

static void cut_evenly(const struct grid *g)
{
    int32_t n = g->n_virtual, layers = g->s->n_layers;
    for (int32_t i = 0, first = 0; i < n; i++) {
        first += layers / n + (i < layers % n);
        g->last[i] = first - 1;
    }
}

/* Whether stages of time at most `most` can take all layers, each at least one; fills last. */
static bool cut_within(const struct grid *g, int64_t most)
{
    int32_t n = g->n_virtual, layers = g->s->n_layers, first = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t low = first, high = layers - (n - i); /* the last layer that leaves one per remaining stage */
        if (slowest_sample_ns(g, i, first, first) > most) return false;
        while (low < high) {
            int32_t middle = low + (high - low + 1) / 2;
            if (slowest_sample_ns(g, i, first, middle) <= most)
                low = middle;
            else
                high = middle - 1;
        }
        g->last[i] = low;
        first = low + 1;
    }
    return first == layers;
}

static void cut_balanced(const struct grid *g)
{
    int64_t low = 0, high = 1;
    while (!cut_within(g, high)) high *= 2;
    while (low + 1 < high) {
        int64_t middle = low + (high - low) / 2;
        *(cut_within(g, middle) ? &high : &low) = middle;
    }
    cut_within(g, high);
}

/* Ends of at most `coarse` runs of layers of about equal cost on the first device. */
static int32_t coarse_ends(const struct grid *g, int32_t end[MAX_COARSE])
{
    int32_t n = 0, layers = g->s->n_layers, want = g->x->coarse;
    int64_t all = slowest_sample_ns(g, 0, 0, layers - 1);
    for (int32_t l = 0; l < layers && n < want; l++) {
        bool must = layers - 1 - l == want - 1 - n; /* one layer per remaining run */
        if (must || l == layers - 1 || slowest_sample_ns(g, 0, 0, l) * want >= all * (n + 1)) end[n++] = l;
    }
    end[n - 1] = layers - 1;
    return n;
}

struct coarse {
    int32_t n, p; /* runs, stages */
    int32_t end[MAX_COARSE];
    int64_t *ns; /* (p, n, n): stage, first run, last run */
};

/* Minimises the sum of t_i with no t_i above most; fills last. false: infeasible. */
static bool coarse_within(const struct grid *g, const struct coarse *c, int64_t most,
                          int64_t *sum_ns)
{
    int64_t best[MAX_COARSE + 1][MAX_COARSE + 1];
    int32_t from[MAX_COARSE + 1][MAX_COARSE + 1];
    for (int32_t i = 0; i <= c->p; i++)
        for (int32_t j = 0; j <= c->n; j++) best[i][j] = INT64_MAX;
    best[0][0] = 0;
    for (int32_t i = 0; i < c->p; i++)
        for (int32_t j = i; j < c->n; j++)
            for (int32_t k = j + 1; best[i][j] != INT64_MAX && k <= c->n; k++) {
                int64_t ns = c->ns[(i * c->n + j) * c->n + k - 1];
                if (ns > most) break;
                if (best[i][j] + ns >= best[i + 1][k]) continue;
                best[i + 1][k] = best[i][j] + ns;
                from[i + 1][k] = j;
            }
    *sum_ns = best[c->p][c->n];
    if (*sum_ns == INT64_MAX) return false;
    for (int32_t i = c->p, k = c->n; i > 0; k = from[i][k], i--) g->last[i - 1] = c->end[k - 1];
    return true;
}

static int by_time(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

/* Alpa's inter-operator pass: minimises sum of t_i + (B - 1) max t_i by a dynamic program for every possible maximum. */
static void cut_coarsely(struct arena *a, const struct grid *g)
{
    struct coarse c = {.p = g->n_virtual};
    c.n = coarse_ends(g, c.end);
    size_t cells = (size_t)c.p * (size_t)c.n * (size_t)c.n, n = 0;
    int64_t best = INT64_MAX, at = -1, sum, *all = ARENA_ARRAY(a, int64_t, cells);
    c.ns = ARENA_ARRAY(a, int64_t, cells);
    for (int32_t i = 0; i < c.p; i++)
        for (int32_t j = 0; j < c.n; j++)
            for (int32_t k = j; k < c.n; k++)
                c.ns[(i * c.n + j) * c.n + k] = all[n++] =
                    slowest_sample_ns(g, i, j ? c.end[j - 1] + 1 : 0, c.end[k]);
    qsort(all, n, sizeof *all, by_time);
    for (size_t i = 0; i < n && (at < 0 || all[i] * (g->microbatches - 1) < best); i++) {
        if (i && all[i] == all[i - 1]) continue;
        if (!coarse_within(g, &c, all[i], &sum)) continue;
        if (sum + all[i] * (g->microbatches - 1) >= best) continue;
        best = sum + all[i] * (g->microbatches - 1), at = all[i];
    }
    if (!coarse_within(g, &c, at, &sum)) BUG("no cut of %d coarse layers", (int)c.n);
}

/* --- feasibility --- */

/* "1 microbatch cannot fill 3 replicas". miss: distance to the next multiple, larger than any number of missing bytes. */
static enum status refuse(struct grid *g, struct error *err, int64_t count, const char *one,
                          const char *more, const char *then, int64_t of, const char *whom)
{
    int64_t over = count % of;
    g->miss = MISS_COUNTS + (count < of ? of - count : over < of - over ? over : of - over);
    return error_set(err, ERR_INFEASIBLE, "%" PRId64 " %s%s %s %" PRId64 " %s", count, one,
                     count == 1 ? "" : more, then, of, whom);
}

/* Permanent bytes of a GPU: parameters, gradients, optimizer state, sharded by the ZeRO stage. */
static int64_t resident_bytes(const struct baseline_setting *x, const struct stage_cost *c)
{
    int64_t n = x->replicas;
    return (x->zero >= 3 ? c->parameter_bytes / n : c->parameter_bytes) +
           (x->zero >= 2 ? c->gradient_bytes / n : c->gradient_bytes) +
           (x->zero >= 1 ? c->state_bytes / n : c->state_bytes);
}

static enum status check(struct grid *g, struct error *err)
{
    const struct baseline_setting *x = g->x;
    int64_t layers = g->s->n_layers, m = g->s->microbatches;
    int64_t n_virtual = (int64_t)x->stages * x->chunks;
    if (layers < n_virtual)
        return refuse(g, err, layers, "layer", "s", "cannot fill", n_virtual, "stages");
    if (m < x->replicas)
        return refuse(g, err, m, "microbatch", "es", "cannot fill", x->replicas, "replicas");
    if ((x->zero > 1 || x->chunks > 1) && m % x->replicas)
        return refuse(g, err, m, "microbatch", "es", "cannot be divided equally among", x->replicas,
                      "replicas");
    if (x->chunks > 1 && m / x->replicas % x->stages)
        return refuse(g, err, m / x->replicas, "microbatch", "es", "per replica, not a multiple of",
                      x->stages, "stages");
    const struct baseline_degree *devices = &g->k->degrees[x->degree];
    for (int32_t i = 0; devices->tp > 1 && i < devices->n; i++)
        if (baseline_type(g->k, x, devices->first[i]) < 0)
            return error_set(err, ERR_INFEASIBLE, "no rules shard the model over %d GPUs",
                             (int)devices->tp);
    if (x->cut == CUT_COARSE && x->coarse < n_virtual)
        return refuse(g, err, x->coarse, "coarse layer", "s", "cannot fill", n_virtual, "stages");
    return OK;
}

static enum status lay_grid(struct baseline_task *k, const struct baseline_setting *x, struct arena *a,
                            struct grid *g, struct error *err)
{
    struct space *s;
    TRY(baseline_space(k, x->size, &s, err));
    *g = (struct grid){.k = k, .x = x, .s = s, .n_virtual = x->stages * x->chunks};
    TRY(check(g, err));
    g->microbatches = (s->microbatches + x->replicas - 1) / x->replicas;
    g->last = ARENA_ARRAY(a, int32_t, (size_t)g->n_virtual);
    if (x->cut == CUT_EVEN) cut_evenly(g);
    if (x->cut == CUT_BALANCED) cut_balanced(g);
    if (x->cut == CUT_COARSE) cut_coarsely(a, g);
    return OK;
}

/* --- estimates --- */

struct timing { /* of one replica */
    int64_t forward_ns, backward_ns, slowest_ns, sum_ns, update_ns, transfer_ns;
};

/* Time of all chunks of a device, with recomputation if it does not fit otherwise. */
static enum status time_device(struct grid *g, int32_t replica, int32_t stage, struct timing *t,
                               struct error *err)
{
    const struct baseline_setting *x = g->x;
    int32_t device = device_of(g, replica, stage);
    int64_t forward = 0, backward = 0, again = 0, held = 0, kept = 0;
    int64_t memory = g->s->cluster->types[g->s->cluster->devices[device].type].memory_bytes;
    int64_t in_flight = x->gpipe ? g->microbatches : x->stages - stage;
    if (in_flight > g->microbatches) in_flight = g->microbatches;
    for (int32_t c = 0; c < x->chunks; c++) {
        int32_t v = c * x->stages + stage, first = v ? g->last[v - 1] + 1 : 0;
        const struct stage_cost *cost = stage_of(g, device, first, g->last[v]);
        forward += cost->forward_ns, backward += cost->input_ns + cost->weight_ns;
        again += cost->recompute_ns, t->update_ns += cost->update_ns / (x->zero ? x->replicas : 1);
        held += resident_bytes(x, cost), kept += cost->activation_bytes;
        if (v + 1 < g->n_virtual) {
            int32_t next = device_of(g, replica, (v + 1) % x->stages);
            g->miss = INT64_MAX;
            if (next != device && !space_linked(g->s, device, next))
                return error_set(err, ERR_INFEASIBLE, "no route from %s to %s",
                                 g->s->cluster->devices[device].name,
                                 g->s->cluster->devices[next].name);
            if (next != device) t->transfer_ns += space_transfer_ns(g->s, device, next, g->last[v]);
        }
    }
    g->miss = held - memory;
    if (held > memory)
        return error_set(
            err, ERR_INFEASIBLE, "%s: parameters, gradients and state take %.4g GiB of %.4g GiB",
            g->s->cluster->devices[device].name, (double)held / 0x1p30, (double)memory / 0x1p30);
    bool recompute = x->recompute != RECOMPUTE_NONE || held + kept * in_flight > memory;
    if (x->recompute == RECOMPUTE_SELECTIVE && held + kept * in_flight <= memory) again /= 10;
    backward += recompute ? again : 0;
    t->forward_ns = forward > t->forward_ns ? forward : t->forward_ns;
    t->backward_ns = backward > t->backward_ns ? backward : t->backward_ns;
    t->sum_ns += forward + backward;
    if (forward + backward > t->slowest_ns) t->slowest_ns = forward + backward;
    return OK;
}

/* Half a ring all-reduce (n - 1 steps of an n-th) between the replicas' stages, on the slowest of a few hops. */
static int64_t half_ring_ns(const struct grid *g, int32_t stage)
{
    const struct baseline_setting *x = g->x;
    int64_t bytes = 0, n = x->replicas, most = 0;
    for (int32_t c = 0; c < x->chunks; c++) {
        int32_t v = c * x->stages + stage;
        bytes += stage_of(g, device_of(g, 0, stage), v ? g->last[v - 1] + 1 : 0, g->last[v])
                     ->parameter_bytes;
    }
    for (int32_t k = 0; n > 1 && k < samples(x); k++) {
        int32_t r = sample(x, k), other = (r + 1) % x->replicas;
        const struct cost_link *l =
            space_link(g->s, device_of(g, r, stage), device_of(g, other, stage));
        int64_t ns = l ? cost_occupancy_ns(l, bytes / n) + l->latency_ns : 0;
        most = ns > most ? ns : most;
    }
    return most * (n - 1);
}

/* Exposed time of a device's gradient all-reduces. */
static int64_t exposed_ns(const struct grid *g, const struct timing *t)
{
    int64_t most = 0, m = g->microbatches;
    for (int32_t s = 0; s < g->x->stages; s++) {
        int64_t half = half_ring_ns(g, s), ns = 2 * half;
        if (g->x->zero < 2 && g->x->bucket_bytes)
            ns -= t->backward_ns < half ? t->backward_ns : half;
        if (g->x->zero == 2) {
            int64_t extra = half > t->backward_ns ? half - t->backward_ns : 0;
            ns = half + m * (extra + half / 8);
        }
        if (g->x->zero == 3) {
            int64_t forward = half > t->forward_ns ? half - t->forward_ns : 0,
                    back = 2 * half > t->backward_ns ? 2 * half - t->backward_ns : 0;
            ns = m * (forward + back + half / 8);
        }
        most = ns > most ? ns : most;
    }
    return most;
}

static enum status estimate(struct baseline_task *k, struct baseline_setting *x, struct error *err)
{
    struct arena *scratch = arena_new();
    struct grid g = {.miss = INT64_MAX};
    int64_t most = 0;
    enum status st = lay_grid(k, x, scratch, &g, err);
    for (int32_t i = 0; st == OK && i < samples(x); i++) {
        struct timing t = {0};
        for (int32_t s = 0; s < x->stages && st == OK; s++)
            st = time_device(&g, sample(x, i), s, &t, err);
        if (st != OK) break;
        int64_t fill = (t.sum_ns - t.slowest_ns) / x->chunks;
        int64_t ns = g.microbatches * t.slowest_ns + fill + 2 * t.transfer_ns + t.update_ns +
                     exposed_ns(&g, &t);
        most = ns > most ? ns : most;
    }
    x->estimate_ns = most;
    arena_free(scratch);
    if (st != ERR_INFEASIBLE || (*k->why && g.miss >= k->miss)) return st;
    k->miss = g.miss;
    snprintf(k->why, sizeof k->why, "%s", err->text);
    return st;
}

static bool same_setting(const struct baseline_setting *a, const struct baseline_setting *b)
{
    return a->degree == b->degree && a->size == b->size && a->stages == b->stages &&
           a->replicas == b->replicas && a->chunks == b->chunks && a->coarse == b->coarse &&
           a->cut == b->cut && a->strided == b->strided && a->gpipe == b->gpipe &&
           a->recompute == b->recompute && a->zero == b->zero && a->bucket_bytes == b->bucket_bytes;
}

enum status baseline_add(struct baseline_task *k, struct baseline_setting x, struct error *err)
{
    struct error why = {0};
    for (int32_t i = k->n_settings; i-- > 0;)
        if (same_setting(&k->settings[i], &x)) return OK;
    x.number = k->n_settings;
    TRY(stop_check(err));
    enum status st = estimate(k, &x, &why);
    if (st == ERR_INFEASIBLE) return OK; /* k->why */
    if (st != OK) {
        if (err) *err = why;
        return st;
    }
    k->settings =
        arena_grow(k->arena, k->settings, (size_t)k->n_settings, &k->capacity, sizeof *k->settings);
    k->settings[k->n_settings++] = x;
    return OK;
}

/* --- plans --- */

/* GPUs of a stage of several. */
static void put_shards(struct arena *a, const struct grid *g, struct plan_stage *out)
{
    int32_t tp = g->k->degrees[g->x->degree].tp;
    if (tp == 1) return;
    int32_t *devices = ARENA_ARRAY(a, int32_t, (size_t)tp);
    for (int32_t i = 0; i < tp; i++) devices[i] = out->device + i;
    out->n_shards = tp, out->devices = devices;
    out->sharding = g->k->options->sharding[baseline_type(g->k, g->x, out->device)];
}

static void fill_replica(struct arena *a, const struct grid *g, int32_t replica,
                         struct plan_replica *out)
{
    const struct baseline_setting *x = g->x;
    int32_t m = g->s->microbatches;
    out->microbatches = m / x->replicas + (replica < m % x->replicas);
    if (x->chunks > 1) out->schedule = "interleaved";
    for (int32_t v = 0; v < g->n_virtual; v++) {
        struct plan_stage *stage = &out->stages[v];
        stage->device = device_of(g, replica, v % x->stages);
        stage->first_layer = v ? g->last[v - 1] + 1 : 0;
        stage->last_layer = g->last[v];
        stage->recompute = x->recompute;
        stage->zero = x->zero;
        stage->bucket_bytes = x->bucket_bytes;
        if (x->gpipe) stage->warmup = out->microbatches;
        put_shards(a, g, stage);
    }
}

enum status baseline_make(struct baseline_task *k, const struct baseline_setting *x, const char *name,
                          struct arena *a, struct plan *out, struct error *err)
{
    struct grid g;
    TRY(lay_grid(k, x, a, &g, err));
    int32_t *n = ARENA_ARRAY(a, int32_t, (size_t)x->replicas);
    for (int32_t r = 0; r < x->replicas; r++) n[r] = g.n_virtual;
    plan_skeleton(a, g.s, name, x->replicas, n, out);
    for (int32_t r = 0; r < x->replicas; r++) fill_replica(a, &g, r, &out->replicas[r]);
    return OK;
}
