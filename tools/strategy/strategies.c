#include "tools/strategy/strategies.h"

#include "core/base/arena.h"
#include "core/base/nearest.h"
#include "core/base/units.h"
#include "profiles/team.h"
#include "sim/metrics.h"
#include "tools/options.h"
#include "tools/strategy/islands.h"
#include "tools/team/edit.h"
#include "tools/team/replan.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Steps between exchanges; DiLoCo's settings are those of Douillard et al. 2023, section 3. */
enum { LOCAL_EVERY = 8, DILOCO_EVERY = 500, STREAMING_EVERY = 100 };
static const struct outer_optimizer outer_average = {.every = LOCAL_EVERY, .kind = OUTER_AVERAGE, .fragments = 1};
static const struct outer_optimizer outer_streaming = {
    .every = STREAMING_EVERY, .kind = OUTER_NESTEROV, .lr = 0.7, .momentum = 0.9, .fragments = 4, .delay = 1, .alpha = 0.5};
static const struct outer_optimizer outer_diloco = {.every = DILOCO_EVERY, .kind = OUTER_NESTEROV, .lr = 0.7, .momentum = 0.9, .fragments = 1};

const char *const strategy_set_names[] = {
#define X(id, word, help) word,
    STRATEGY_SETS(X)
#undef X
        NULL};

double strategy_rate(const struct strategy_plan *x)
{
    return x->why ? 0 : x->progress * metrics_rate(&x->plan.job, x->iteration_ns).samples_per_s;
}

enum status strategy_sets(struct arena *a, const struct texts *words, uint32_t *out, struct error *err)
{
    char hint[NEAREST_HINT];
    *out = 0;
    for (size_t i = 0; i < words->count; i++)
        for (const char *at = words->items[i], *end; *at; at = end + (*end == ',')) {
            int set = 0;
            end = at + strcspn(at, ",");
            const char *word = arena_printf(a, "%.*s", (int)(end - at), at);
            while (set < STRATEGY_SET_COUNT && strcmp(strategy_set_names[set], word) != 0) set++;
            if (set == STRATEGY_SET_COUNT)
                return error_set(err, ERR_USAGE, "--allow: no strategies '%.40s'; known:"
#define X(id, name, help) " " name
                                 STRATEGY_SETS(X)
#undef X
                                 "%s", word, nearest_name_hint(word, strategy_set_names, hint));
            *out |= 1U << set;
        }
    return OK;
}

/* --- a plan for every island --- */

struct island {
    struct cluster part;
    double weight; /* of the batch */
    int64_t batch; /* its samples of a step */
    int32_t like;  /* an island before it that is alike and has as many samples, or itself */
    int32_t n_found;
    const struct search_plan *found; /* (n_found) the fastest first */
};
enum { ISLAND_PLANS = 12 }; /* of an island: those of them that fit beside the state of local SGD */

struct finding {
    struct arena *a;
    const struct job *job;
    const struct cluster *cluster;
    const struct profile *profile;
    const struct search_options *o;
    struct strategies *out;
};

struct island_division {
    struct islands by;
    bool whole;             /* islands are planned without ZeRO, beside the state that a strategy adds */
    struct island *islands; /* (by.n) */
    int32_t n_plans;        /* least number of plans of an island */
    const char *why;
    struct island_division *without_zero; /* NULL: not needed yet */
};

static double peak_of(const struct cluster *c, enum dtype t)
{
    double sum = 0;
    for (int32_t d = 0; d < c->n_devices; d++) sum += team_peak_flops(&c->types[c->devices[d].type], t);
    return sum > 0 ? sum : c->n_devices;
}

/* Shares of the batch in units of u samples, by largest remainders; u is the largest power of two that leaves an island eight units. */
static bool share_batch(const struct finding *f, struct island *x, int32_t n)
{
    int64_t batch = f->job->global_batch, unit = 1, given = 0;
    double all = 0;
    while (batch % (2 * unit) == 0 && batch / (2 * unit) >= 8 * (int64_t)n) unit *= 2;
    for (int32_t i = 0; i < n; i++) all += x[i].weight;
    for (int32_t i = 0; i < n; i++) given += x[i].batch = unit * (int64_t)floor((double)(batch / unit) * x[i].weight / all);
    for (; given < batch; given += unit) {
        int32_t most = 0;
        double lack = -INFINITY;
        for (int32_t i = 0; i < n; i++) {
            double own = (double)batch * x[i].weight / all - (double)x[i].batch;
            if (own > lack + 1e-9) lack = own, most = i;
        }
        x[most].batch += unit;
    }
    for (int32_t i = 0; i < n; i++)
        if (!x[i].batch) return false;
    return true;
}

static void find_alike(const struct finding *f, struct island *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        x[i].like = i;
        for (int32_t k = 0; k < i && x[i].like == i; k++)
            if (x[k].batch == x[i].batch && islands_alike(f->a, &x[k].part, &x[i].part)) x[i].like = k;
    }
}

/* *why: there is no plan. microbatch 0: the search chooses. */
static enum status search_island(const struct finding *f, struct island *x, int64_t microbatch, bool whole, const char **why,
                                 struct error *err)
{
    struct job j = *f->job;
    struct search_options o = *f->o;
    struct search_result r;
    struct error refused = {0};
    j.global_batch = x->batch;
    if (microbatch) j.n_microbatches_sizes = 1, j.microbatch_sizes[0] = microbatch;
    int32_t n_sizes = j.n_microbatches_sizes;
    j.n_microbatches_sizes = 0;
    for (int32_t i = 0; i < n_sizes; i++)
        if (x->batch % j.microbatch_sizes[i] == 0) j.microbatch_sizes[j.n_microbatches_sizes++] = j.microbatch_sizes[i];
    if (n_sizes && !j.n_microbatches_sizes) {
        *why = arena_printf(f->a, "an island's share of the batch, %" PRId64 " samples, is no multiple of the microbatch size", x->batch);
        return OK;
    }
    struct cluster part = x->part;
    if (whole) { /* the outer optimizer's anchor and velocity, two of seven parts of the state in half precision */
        part.types = arena_copy(f->a, part.types, (size_t)part.n_types * sizeof *part.types);
        for (int32_t t = 0; t < part.n_types; t++) part.types[t].reserve_bytes += part.types[t].memory_bytes / 10 * 3;
    }
    o.no_zero = whole;
    o.baseline = NULL, o.from = NULL, o.top = ISLAND_PLANS, o.objective = OBJECTIVE_TIME, o.min_rate = o.max_cost = 0;
    enum status st = search_plans(f->a, &j, &part, f->profile, &o, &r, &refused);
    if (st == ERR_INFEASIBLE || st == ERR_INPUT) {
        *why = arena_printf(f->a, "an island of %" PRId32 " devices alone: %s", x->part.n_devices, refused.text);
        return OK;
    }
    if (st != OK) {
        if (err) *err = refused;
        return st;
    }
    x->found = r.plans, x->n_found = r.n_plans;
    f->out->evaluated += r.evaluated;
    return OK;
}

/* The fastest island first, whose microbatch size the others take. */
static enum status search_islands(const struct finding *f, struct island *x, int32_t n, bool whole, const char **why, struct error *err)
{
    int32_t first = 0;
    find_alike(f, x, n);
    for (int32_t i = 1; i < n; i++)
        if (x[i].weight > x[first].weight) first = i;
    first = x[first].like;
    TRY(search_island(f, &x[first], 0, whole, why, err));
    for (int32_t i = 0; i < n && !*why; i++)
        if (i != first && x[i].like == i) TRY(search_island(f, &x[i], x[first].found[0].plan.microbatch, whole, why, err));
    for (int32_t i = 0; i < n && !*why; i++) x[i].found = x[x[i].like].found, x[i].n_found = x[x[i].like].n_found;
    return OK;
}

static bool all_alike(const struct island *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (x[i].like) return false;
    return true;
}

/* The replicas of all islands in one plan, the k-th of each. zero: as they are, or without ZeRO, which local SGD and codes do not have. false: the
 * microbatch sizes differ. */
static bool unite(const struct finding *f, const struct island_division *d, int32_t k, bool zero, struct plan *p, const int32_t **of)
{
    int32_t n_replicas = 0, at = 0, n = d->by.n;
    const struct island *x = d->islands;
    for (int32_t i = 0; i < n; i++) n_replicas += x[i].found[k].plan.n_replicas;
    *p = x[0].found[k].plan;
    p->job = *f->job, p->cluster = *f->cluster, p->name = "islands", p->file = NULL;
    p->replicas = ARENA_ARRAY(f->a, struct plan_replica, (size_t)n_replicas);
    int32_t *island = ARENA_ARRAY(f->a, int32_t, (size_t)n_replicas);
    for (int32_t i = 0; i < n; i++) {
        struct plan own = x[i].found[k].plan, there;
        const char *missing;
        own.cluster = x[i].part; /* of an island that it is like */
        replan_carry(f->a, &own, f->cluster, &there, &missing);
        if (own.microbatch != p->microbatch) return false;
        for (int32_t r = 0; r < there.n_replicas; r++, at++) {
            p->replicas[at] = there.replicas[r], island[at] = i;
            for (int32_t s = 0; s < there.replicas[r].n_stages && !zero; s++)
                p->replicas[at].stages[s].zero = 0, p->replicas[at].stages[s].hybrid_shard = false;
        }
    }
    p->n_replicas = n_replicas, *of = island;
    return true;
}

static enum status fill_division(const struct finding *f, struct island_division *d, struct error *err)
{
    int32_t n = d->by.n;
    struct island *x = d->islands = ARENA_ARRAY(f->a, struct island, (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        islands_part(f->a, f->cluster, &d->by, i, &x[i].part);
        x[i].weight = peak_of(&x[i].part, f->job->precision);
    }
    for (int round = 0; round < 2 && !d->why; round++) {
        if (!share_batch(f, x, n)) d->why = arena_printf(f->a, "%" PRId32 " islands and a batch of %" PRId64, n, f->job->global_batch);
        if (!d->why) TRY(search_islands(f, x, n, d->whole, &d->why, err));
        if (d->why || all_alike(x, n)) break;
        for (int32_t i = 0; i < n; i++) x[i].weight = (double)x[i].batch / (double)x[i].found[0].iteration_ns;
    }
    d->n_plans = ISLAND_PLANS;
    for (int32_t i = 0; i < n && !d->why; i++) d->n_plans = (int32_t)units_min(d->n_plans, x[i].n_found);
    return OK;
}

/* --- strategies --- */

/* Simulates the plan, and keeps it if it is the fastest so far. Otherwise *why. */
static enum status try_plan(const struct finding *f, const struct plan *p, struct strategy_plan *x, const char **why, struct error *err)
{
    struct plan made, named = *p;
    int64_t ns;
    named.name = x->name;
    *why = NULL;
    TRY(replan_as_it_stands(f->a, &named, f->job, f->cluster, f->profile, &made, &ns, why, err));
    f->out->evaluated++;
    if (ns > 0 && (x->why || ns < x->iteration_ns)) x->plan = made, x->iteration_ns = ns, x->why = NULL;
    return OK;
}

/* What a strategy adds to a plan. */
struct change {
    const struct outer_optimizer *outer;
    struct compressor sums;
    bool zero; /* ZeRO may stay */
};

static void apply(const struct change *x, struct plan *p, int32_t n_islands, const int32_t *island)
{
    if (x->outer) p->local_sgd = (struct plan_local_sgd){.outer = *x->outer, .n_islands = n_islands, .island = island};
    p->compression.gradients = x->sums;
}

/* The first plans of the islands that fit beside what the strategy keeps. */
static enum status try_islands(const struct finding *f, const struct island_division *d, const struct change *change,
                               struct strategy_plan *x, struct error *err)
{
    const char *why = d->why;
    for (int32_t k = 0; !d->why && k < d->n_plans; k++) {
        struct plan p;
        const int32_t *island;
        if (!unite(f, d, k, change->zero, &p, &island)) continue;
        apply(change, &p, d->by.n, island);
        TRY(try_plan(f, &p, x, &why, err));
        if (!why) return OK;
    }
    if (x->why) x->why = why ? why : "the islands have no plans of one microbatch size";
    return OK;
}

/* The synchronous plan with other sums. */
static enum status try_sync(const struct finding *f, const struct search_plan *sync, const struct change *change,
                            struct strategy_plan *x, struct error *err)
{
    const char *why, *missing;
    struct plan p;
    replan_carry(f->a, &sync->plan, f->cluster, &p, &missing);
    if (missing) return OK;
    for (int32_t r = 0; r < p.n_replicas && !change->zero; r++)
        for (int32_t s = 0; s < p.replicas[r].n_stages; s++)
            p.replicas[r].stages[s].zero = 0, p.replicas[r].stages[s].hybrid_shard = false;
    apply(change, &p, 0, NULL);
    TRY(try_plan(f, &p, x, &why, err));
    if (why && x->why) x->why = why;
    return OK;
}

static enum status try_strategy(const struct finding *f, enum strategy_id id, struct island_division *d, int32_t n,
                                const struct search_plan *sync, struct strategy_plan *x, struct error *err)
{
    static const struct change changes[STRATEGY_COUNT] = {
        [STRATEGY_local_sgd] = {.outer = &outer_average},
        [STRATEGY_diloco] = {.outer = &outer_diloco},
        [STRATEGY_streaming_diloco] = {.outer = &outer_streaming},
        [STRATEGY_bf16_sums] = {.sums = {.kind = COMPRESSION_BF16}, .zero = true},
        [STRATEGY_fp16_sums] = {.sums = {.kind = COMPRESSION_FP16}, .zero = true},
        [STRATEGY_int8_sums] = {.sums = {.kind = COMPRESSION_INT8, .stochastic = true, .block = 256}},
        [STRATEGY_power_sgd] = {.sums = {.kind = COMPRESSION_POWER_SGD, .feedback = FEEDBACK_EF, .rank = 4}}};
    const struct change *change = &changes[id];
    enum dtype job = f->job->precision;
    if (change->zero && (change->sums.kind == COMPRESSION_FP16 ? dtype_is_half(job) : job == DTYPE_bf16)) {
        x->why = arena_printf(f->a, "messages of gradients of a job in %s have 16 bits anyway", dtype_name(job));
        return OK;
    }
    if (change->outer && job == DTYPE_fp16) {
        x->why = "local SGD of a job in fp16 would need one loss scale for all islands; bf16 and fp32 need none";
        return OK;
    }
    x->why = "no links divide the cluster into islands";
    for (int32_t i = 0; i < n; i++)
        if (!d[i].islands) TRY(fill_division(f, &d[i], err));
    if (!change->outer) TRY(try_sync(f, sync, change, x, err));
    for (int32_t i = 0; i < n; i++) TRY(try_islands(f, &d[i], change, x, err));
    for (int32_t i = 0; i < n && x->why && change->outer; i++) {
        struct island_division *whole = d[i].without_zero;
        if (!whole) {
            whole = d[i].without_zero = ARENA_ARRAY(f->a, struct island_division, 1);
            whole->by = d[i].by, whole->whole = true;
            TRY(fill_division(f, whole, err));
        }
        TRY(try_islands(f, whole, change, x, err));
    }
    return OK;
}

enum status strategies_find(struct arena *a, const struct job *j, const struct cluster *c, const struct profile *p,
                            const struct search_options *o, uint32_t sets, const struct search_plan *sync,
                            struct strategies *out, struct error *err)
{
    static const struct {
        enum strategy_set set;
        const char *name, *help, *source;
        double progress;
    } rows[] = {
#define X(id, set, name, help, progress, source) {STRATEGY_SET_##set, name, help, source, progress},
        STRATEGIES(X)
#undef X
    };
    struct cluster stated = *c;
    struct islands *by;
    TRY(team_state_links(a, p, &stated, err));
    struct finding f = {a, j, c, p, o, out};
    int32_t n = islands_divisions(a, &stated, &by);
    struct island_division *d = ARENA_ARRAY(a, struct island_division, (size_t)n + 1);
    *out = (struct strategies){.list = ARENA_ARRAY(a, struct strategy_plan, STRATEGY_COUNT)};
    for (int32_t i = 0; i < n; i++) d[i].by = by[i];
    for (int id = 0; id < STRATEGY_COUNT; id++) {
        if (!(sets >> rows[id].set & 1)) continue;
        struct strategy_plan *x = &out->list[out->n++];
        *x = (struct strategy_plan){
            .name = rows[id].name, .help = rows[id].help, .source = rows[id].source, .progress = rows[id].progress};
        TRY(try_strategy(&f, (enum strategy_id)id, d, n, sync, x, err));
    }
    return OK;
}
