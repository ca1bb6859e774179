/* Grid families: cuts of layers, assignment of devices, estimates. The estimate is that of the coarse search (planner/coarse/line.c), of one
 * pipeline for every sequence of device classes among the replicas; ZeRO 2 and 3 add what their collectives of a microbatch take beyond its
 * work. It orders the settings to simulate. */
#include "planner/baseline/baseline.h"

#include "core/base/arena.h"
#include "core/base/stop.h"
#include "core/base/units.h"
#include "planner/coarse/line.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_COARSE = 16,
    TEAMS_MAX = COARSE_CLASSES,
    SETTING_NS = 15 /* counted work of an estimate, a device: 43,300 settings on 3,072 to 4,088 GPUs took 2.2 CPU s (2026-11-27) */
};
#define MISS_COUNTS (INT64_C(1) << 60) /* larger than any number of missing bytes */

/* Replicas with the same classes of devices. */
struct team {
    int32_t replica, n, crossings; /* the one with the most messages between nodes; number of replicas */
};

struct grid { /* a setting on its space */
    const struct baseline_task *k;
    const struct baseline_setting *x;
    const struct space *s;
    int32_t n_virtual;    /* stages · chunks */
    int32_t microbatches; /* of a replica, the largest share */
    int32_t n_teams;
    struct team team[TEAMS_MAX];
    int32_t *last; /* (n_virtual) last layer of each */
    int64_t miss;  /* if infeasible: as in baseline_task */
    int64_t lacking; /* bytes on the fullest device, by estimate */
    enum recompute recompute; /* of a whole model on a device, where it needs it */
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

static bool same_classes(const struct grid *g, int32_t r, int32_t q)
{
    const int32_t *class_of = g->k->class_of;
    for (int32_t i = 0; i < g->x->stages; i++)
        if (class_of[device_of(g, r, i)] != class_of[device_of(g, q, i)]) return false;
    return true;
}

static int32_t crossings(const struct grid *g, int32_t r)
{
    const struct device *d = g->k->cluster->devices;
    int32_t n = 0;
    for (int32_t i = 0; i + 1 < g->x->stages; i++)
        n += d[device_of(g, r, i)].node != d[device_of(g, r, i + 1)].node;
    return n;
}

/* More sequences than TEAMS_MAX: the others are left out. O(replicas · stages · teams). */
static void find_teams(struct grid *g)
{
    for (int32_t r = 0; r < g->x->replicas; r++) {
        int32_t t = 0, n = crossings(g, r);
        while (t < g->n_teams && !same_classes(g, g->team[t].replica, r)) t++;
        if (t == TEAMS_MAX) continue;
        struct team *x = &g->team[t];
        if (t == g->n_teams) g->team[g->n_teams++] = (struct team){r, 0, n};
        if (n > x->crossings) x->replica = r, x->crossings = n;
        x->n++;
    }
}

/* --- cuts --- */

/* F + B of layers first … last on the slowest device of this stage. */
static int64_t slowest_ns(const struct grid *g, int32_t stage, int32_t first, int32_t last)
{
    int64_t most = 0;
    for (int32_t t = 0; t < g->n_teams; t++) {
        int32_t device = device_of(g, g->team[t].replica, stage % g->x->stages);
        const struct stage_cost *c = stage_of(g, device, first, last);
        most = units_max(most, c->forward_ns + c->input_ns + c->weight_ns);
    }
    return most;
}

static void cut_evenly(const struct grid *g, int32_t n)
{
    int32_t layers = g->s->n_layers;
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
        if (slowest_ns(g, i, first, first) > most) return false;
        while (low < high) {
            int32_t middle = low + (high - low + 1) / 2;
            if (slowest_ns(g, i, first, middle) <= most)
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
    int64_t all = slowest_ns(g, 0, 0, layers - 1);
    for (int32_t l = 0; l < layers && n < want; l++) {
        bool must = layers - 1 - l == want - 1 - n; /* one layer per remaining run */
        if (must || l == layers - 1 || slowest_ns(g, 0, 0, l) * want >= all * (n + 1)) end[n++] = l;
    }
    end[n - 1] = layers - 1;
    return n;
}

struct runs {
    int32_t n, p; /* runs, stages */
    int32_t end[MAX_COARSE];
    int64_t *ns; /* (p, n, n): stage, first run, last run */
};

/* Minimises the sum of t_i with no t_i above most; fills last. false: infeasible. */
static bool coarse_within(const struct grid *g, const struct runs *c, int64_t most,
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
    struct runs c = {.p = g->n_virtual};
    c.n = coarse_ends(g, c.end);
    size_t cells = (size_t)c.p * (size_t)c.n * (size_t)c.n, n = 0;
    int64_t best = INT64_MAX, at = -1, sum, *all = ARENA_ARRAY(a, int64_t, cells);
    c.ns = ARENA_ARRAY(a, int64_t, cells);
    for (int32_t i = 0; i < c.p; i++)
        for (int32_t j = 0; j < c.n; j++)
            for (int32_t k = j; k < c.n; k++)
                c.ns[(i * c.n + j) * c.n + k] = all[n++] =
                    slowest_ns(g, i, j ? c.end[j - 1] + 1 : 0, c.end[k]);
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

static enum status check(struct grid *g, struct error *err)
{
    const struct baseline_setting *x = g->x;
    int64_t layers = g->s->n_layers, m = g->s->microbatches;
    int64_t n_virtual = (int64_t)x->stages * x->chunks;
    g->miss = INT64_MAX;
    if (layers < n_virtual)
        return refuse(g, err, layers, "layer", "s", "cannot fill", n_virtual, "stages");
    if (x->stages > COARSE_LINE)
        return error_set(err, ERR_INFEASIBLE, "%d stages are more than %d", (int)x->stages,
                         COARSE_LINE);
    if (m < x->replicas)
        return refuse(g, err, m, "microbatch", "es", "cannot fill", x->replicas, "replicas");
    if ((x->zero > 1 || x->chunks > 1) && m % x->replicas)
        return refuse(g, err, m, "microbatch", "es", "cannot be divided equally among", x->replicas,
                      "replicas, as this baseline does");
    if (x->chunks > 1 && m / x->replicas % x->stages)
        return refuse(g, err, m / x->replicas, "microbatch", "es", "per replica, not a multiple of",
                      x->stages, "stages, as interleaved orders require");
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
    find_teams(g);
    if (x->cut == CUT_EVEN) cut_evenly(g, g->n_virtual);
    if (x->cut == CUT_BALANCED) cut_balanced(g);
    if (x->cut == CUT_COARSE) cut_coarsely(a, g);
    return OK;
}

/* --- estimates --- */

/* Buckets of ZeRO 2, gradients in two precisions; of ZeRO 3 also two of parameters. No bucket stated: a layer. */
static int64_t gathered_bytes(const struct grid *g)
{
    const struct baseline_setting *x = g->x;
    int64_t layers = g->s->n_layers, bucket = x->bucket_bytes;
    if (!bucket) bucket = stage_of(g, device_of(g, 0, 0), 0, (int32_t)layers - 1)->parameter_bytes / layers;
    return x->zero < 2 ? 0 : x->zero == 2 ? 2 * bucket : 4 * bucket;
}

/* The pipeline of a team. Interleaved chunks have contiguous layers here, as many as their device has. */
static enum status line_of(struct grid *g, const struct team *t, struct coarse_line *l,
                           struct error *err)
{
    const struct baseline_setting *x = g->x;
    const struct device *d = g->k->cluster->devices;
    *l = (struct coarse_line){.q = g->k->coarse,
                              .s = &g->k->coarse->spaces[x->size], /* of the cluster with priced types */
                              .replicas = t->n,
                              .shards = x->part ? x->part : x->replicas,
                              .zero = x->zero,
                              .n = x->stages,
                              .by_stage = x->strided,
                              .textbook = true,
                              .in_flight = x->gpipe ? g->microbatches : 0,
                              .chunks = x->chunks,
                              .gathered_bytes = gathered_bytes(g),
                              .recompute = x->recompute};
    for (int32_t i = 0; i < l->n; i++) {
        l->device[i] = device_of(g, t->replica, i);
        l->stage[i] = (struct coarse_stage){
            .of = g->k->class_of[l->device[i]],
            .degree = baseline_class_degree(g->k, x, l->device[i]),
            .first = i ? g->last[i - 1] + 1 : 0,
            .last = g->last[i]};
    }
    g->miss = INT64_MAX;
    int32_t at = coarse_line_routes(l);
    if (at >= 0)
        return error_set(err, ERR_INFEASIBLE, "no route from %s to %s", d[l->device[at]].name,
                         d[l->device[at + 1]].name);
    return OK;
}

/* Whether parameters, gradients and state fit; g->lacking: what activations lack beside them, *err: the reason. */
static enum status check_memory(struct grid *g, struct coarse_line *l, struct error *err)
{
    const struct cluster *c = g->s->cluster;
    for (int32_t i = 0; i < l->n; i++) {
        const struct coarse_stage *x = &l->stage[i];
        const struct device *d = &c->devices[l->device[i]];
        int64_t held = coarse_line_state_bytes(l, i, x->first, x->last),
                memory = c->types[d->type].memory_bytes, lacking = coarse_line_missing(l, i);
        g->miss = held - memory;
        if (held > memory)
            return error_set(
                err, ERR_INFEASIBLE, "%s: parameters, gradients and state take %.4g GiB of %.4g GiB",
                d->name, (double)held / 0x1p30, (double)memory / 0x1p30);
        if (l->n == 1 && !lacking) g->recompute = x->recompute > g->recompute ? x->recompute : g->recompute;
        if (lacking <= g->lacking) continue;
        g->lacking = lacking;
        (void)error_set(err, OK, "%s: %d layers need about %.4g GiB of %.4g GiB", d->name,
                        (int)(x->last - x->first + 1), (double)(memory + lacking) / 0x1p30,
                        (double)memory / 0x1p30);
    }
    return OK;
}

/* What a stage's collectives of ZeRO take of each microbatch beyond its work, an eighth of them in any case; and what remains of its gradient
 * all-reduce behind the last backward. */
static int64_t collect_ns(const struct grid *g, struct coarse_line *l, int32_t i)
{
    struct coarse_stage *x = &l->stage[i];
    const struct stage_cost *c = stage_of(g, l->device[i], x->first, x->last);
    int64_t back = c->input_ns + c->weight_ns, half = x->reduce_ns / 2;
    if (g->x->zero < 2 && !g->x->bucket_bytes) x->lead_ns = units_max(0, x->lead_ns - back / 2);
    if (g->x->zero < 2) return 0;
    x->reduce_ns = g->x->zero == 2 ? half : 0;
    if (g->x->zero == 2) return units_max(0, half - back) + half / 8;
    return units_max(0, half - c->forward_ns) + units_max(0, 2 * half - back) + half / 8;
}

/* Of one team, without its tail. */
static enum status time_team(struct grid *g, struct arena *a, const struct team *t,
                             struct coarse_template *out, struct error *err)
{
    struct coarse_line *l = ARENA_ARRAY(a, struct coarse_line, 1);
    int64_t collect = 0;
    TRY(line_of(g, t, l, err));
    TRY(check_memory(g, l, err));
    coarse_line_measure(l, out);
    for (int32_t i = 0; i < l->n; i++) {
        if (l->stage[i].reduce_ns > INT64_MAX / 8) l->stage[i].reduce_ns = 0; /* a ring may have other routes */
        collect = units_max(collect, collect_ns(g, l, i));
    }
    out->pace_ns += collect;
    return OK;
}

static enum status time_grid(struct baseline_task *k, struct arena *a, struct baseline_setting *x,
                             struct grid *g, struct error *err)
{
    struct coarse_template team[TEAMS_MAX];
    const struct coarse_template *with[TEAMS_MAX];
    TRY(lay_grid(k, x, a, g, err));
    if (x->chunks > 1) cut_evenly(g, x->stages);
    for (int32_t t = 0; t < g->n_teams; t++) {
        TRY(time_team(g, a, &g->team[t], &team[t], err));
        with[t] = &team[t];
    }
    int64_t tail = coarse_tail_ns(k->coarse, with, g->n_teams, x->replicas);
    for (int32_t t = 0; t < g->n_teams; t++)
        x->estimate_ns = units_max(
            x->estimate_ns, team[t].fill_ns + (g->microbatches - 1) * team[t].pace_ns + tail);
    return OK;
}

static enum status estimate(struct baseline_task *k, struct baseline_setting *x, struct error *err)
{
    struct arena *scratch = arena_new();
    struct grid g = {.miss = INT64_MAX};
    enum status st = time_grid(k, scratch, x, &g, err);
    arena_free(scratch);
    x->fits = !g.lacking;
    if (g.recompute == RECOMPUTE_BLOCKS) x->recompute = g.recompute;
    if (st == OK && g.lacking) g.miss = g.lacking;
    if ((st != ERR_INFEASIBLE && !g.lacking) || (*k->why && g.miss >= k->miss)) return st;
    k->miss = g.miss;
    snprintf(k->why, sizeof k->why, "%s", err->text);
    return st;
}

static bool same_setting(const struct baseline_setting *a, const struct baseline_setting *b)
{
    return a->degree == b->degree && a->size == b->size && a->stages == b->stages &&
           a->replicas == b->replicas && a->chunks == b->chunks && a->coarse == b->coarse &&
           a->cut == b->cut && a->strided == b->strided && a->gpipe == b->gpipe &&
           a->recompute == b->recompute && a->zero == b->zero && a->hierarchical == b->hierarchical && a->part == b->part && a->bucket_bytes == b->bucket_bytes;
}

enum status baseline_add(struct baseline_task *k, struct baseline_setting x, struct error *err)
{
    struct error why = {0};
    for (int32_t i = k->n_settings; i-- > 0;)
        if (same_setting(&k->settings[i], &x)) return OK;
    x.number = k->n_settings;
    TRY(stop_check(err));
    if (k->idle) scorer_charge(k->t->scorer, SETTING_NS * (int64_t)k->degrees[0].n); /* of the presets on all devices only simulations count */
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
    out->sharding = baseline_sharding(g->k, g->x, out->device);
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
        stage->hybrid_shard = x->part > 0;
        if (x->hierarchical) stage->all_reduce = ALGORITHM_HIERARCHICAL;
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
