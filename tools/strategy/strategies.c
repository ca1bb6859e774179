#include "tools/strategy/strategies.h"

#include "core/base/arena.h"
#include "core/base/nearest.h"
#include "core/base/units.h"
#include "core/program/period.h"
#include "profiles/team.h"
#include "sim/metrics.h"
#include "tools/objective.h"
#include "tools/options.h"
#include "tools/strategy/served_plans.h"
#include "tools/strategy/unflushed_plans.h"
#include "tools/team/replan.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Steps between exchanges; DiLoCo's settings are those of Douillard et al. 2023, section 3. */
enum { LOCAL_EVERY = 8, DILOCO_EVERY = 500, STREAMING_EVERY = 100 };
enum { DILOCO_ISLANDS = 8 }; /* that are compared with synchronous training of as many samples; section 3 */
enum { SSP_BOUND = 3 }; /* steps; a worker that pauses for less delays no other */
static const struct outer_optimizer outer_average = {.every = LOCAL_EVERY, .kind = OUTER_AVERAGE, .fragments = 1};
static const struct outer_optimizer outer_streaming = {
    .every = STREAMING_EVERY, .kind = OUTER_NESTEROV, .lr = 0.7, .momentum = 0.9, .fragments = 4, .delay = 1, .alpha = 0.5};
static const struct outer_optimizer outer_diloco = {.every = DILOCO_EVERY, .kind = OUTER_NESTEROV, .lr = 0.7, .momentum = 0.9, .fragments = 1};

const char *const strategy_set_names[] = {
#define X(id, word, help) word,
    STRATEGY_SETS(X)
#undef X
        NULL};

struct search_plan strategy_effective(const struct strategy_plan *x)
{
    return (struct search_plan){.iteration_ns = llround((double)x->iteration_ns / x->progress),
                                .cost = plan_cost(&x->plan, x->iteration_ns) / x->progress};
}

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
    return words->count && !*out ? error_set(err, ERR_USAGE, "--allow: names no strategy; e.g. %s", strategy_set_names[0]) : OK;
}

/* Adds a reason why there is no plan: "2 islands: …; 4 islands: …". */
static void note(struct island_task *f, const char *of, const char *why, struct strategy_plan *x)
{
    if (!x->why || strstr(x->why, why)) return;
    x->why = arena_printf(f->a, "%s%s%s: %s", x->why, *x->why ? "; " : "", of, why);
}

static bool is_beyond(const struct strategy_plan *x, const struct plan *p)
{
    return x->covered && p->local_sgd.outer.every && p->local_sgd.n_islands > x->covered;
}

/* Simulates the plan, and keeps it if it is the best so far. Otherwise *why. */
static enum status try_plan(struct island_task *f, const struct plan *p, struct strategy_plan *x, const char **why, struct error *err)
{
    struct plan named = *p;
    struct strategy_plan made = *x;
    named.name = x->name;
    *why = NULL;
    struct server_counts staleness = {0};
    TRY(replan_as_it_stands(f->a, &named, f->job, f->cluster, f->profile, &made.plan, &made.iteration_ns, &staleness, why, err));
    f->evaluated++;
    if (made.iteration_ns <= 0) return OK;
    if (p->servers.rule.n) made.progress = served_plans_progress(&p->servers.rule, p->n_replicas, &staleness);
    made.synchronous = p->servers.rule.n && !parameter_server_by_arrival(&p->servers.rule);
    made.staleness = staleness.pushes ? (double)staleness.staleness / (double)staleness.pushes : 0;
    struct search_plan now = strategy_effective(&made), before = {0};
    if (!x->why) before = strategy_effective(x);
    made.why = NULL, made.outside = !objective_better(f->o, &now, NULL);
    if (is_beyond(x, p) && (!x->beyond.islands || made.iteration_ns < x->beyond.iteration_ns))
        made.beyond = x->beyond = (struct strategy_beyond){p->local_sgd.n_islands, made.iteration_ns};
    bool same = x->why || is_beyond(x, p) == is_beyond(x, &x->plan);
    if (x->why || (same ? objective_precedes(f->o, &now, &before) : !is_beyond(x, p))) *x = made;
    return OK;
}

/* What a strategy adds to a plan. */
struct change {
    const struct outer_optimizer *outer;
    struct compressor sums;
    bool zero; /* ZeRO may stay */
    int32_t covered; /* as a strategy's */
    const struct parameter_server *servers;
    bool unflushed; /* pipelines without a flush */
};
static const struct parameter_server by_ssp = {.mode = SERVER_SSP, .bound = SSP_BOUND, .drop_above = -1};
static const struct parameter_server by_asp = {.mode = SERVER_ASP, .drop_above = -1}, by_bsp = {.mode = SERVER_BSP, .drop_above = -1};
static const struct change changes[STRATEGY_COUNT] = {
    [STRATEGY_local_sgd] = {.outer = &outer_average},
    [STRATEGY_diloco] = {.outer = &outer_diloco, .covered = DILOCO_ISLANDS},
    [STRATEGY_streaming_diloco] = {.outer = &outer_streaming, .covered = DILOCO_ISLANDS},
    [STRATEGY_bf16_sums] = {.sums = {.kind = COMPRESSION_BF16}, .zero = true},
    [STRATEGY_fp16_sums] = {.sums = {.kind = COMPRESSION_FP16}, .zero = true},
    [STRATEGY_int8_sums] = {.sums = {.kind = COMPRESSION_INT8, .stochastic = true, .block = 256}},
    [STRATEGY_power_sgd] = {.sums = {.kind = COMPRESSION_POWER_SGD, .feedback = FEEDBACK_EF, .rank = 4}},
    [STRATEGY_ssp] = {.servers = &by_ssp},
    [STRATEGY_asp] = {.servers = &by_asp},
    [STRATEGY_pipedream_2bw] = {.unflushed = true},
    [STRATEGY_bsp] = {.servers = &by_bsp}};

static void apply(const struct change *x, struct plan *p, int32_t n_islands, const int32_t *island)
{
    if (x->outer) p->local_sgd = (struct plan_local_sgd){.outer = *x->outer, .n_islands = n_islands, .island = island};
    for (int32_t r = 0; r < p->n_replicas && x->outer; r++) /* shards are of an island */
        for (int32_t s = 0; s < p->replicas[r].n_stages; s++) p->replicas[r].stages[s].hybrid_shard = false;
    p->compression.gradients = x->sums;
}

/* Why no plan of the job has the change; NULL: some may. */
static const char *refused(struct arena *a, const struct change *x, const struct job *j)
{
    enum dtype job = j->precision;
    if (x->servers && dtype_is_half(job)) return arena_printf(a, "parameter servers take jobs in fp32 or fp64; this one is in %s", dtype_name(job));
    if (x->servers && j->model.measured) return "parameter servers hold parameters by name; measured layers have none";
    if (x->zero && (x->sums.kind == COMPRESSION_FP16 ? dtype_is_half(job) : job == DTYPE_bf16))
        return arena_printf(a, "messages of gradients of a job in %s have 16 bits anyway", dtype_name(job));
    if (x->unflushed && job == DTYPE_fp16) return "the loss scale of a job in fp16 may skip an update; bf16 and fp32 need none";
    if (x->outer && job == DTYPE_fp16)
        return "local SGD of a job in fp16 would need one loss scale for all islands; bf16 and fp32 need none";
    return NULL;
}

/* Whether all exchanges start and are applied in multiples of so many steps. */
static bool suits(const struct outer_optimizer *o, int32_t steps)
{
    bool all = o->every % steps == 0;
    for (int32_t f = 0; f < o->fragments && all; f++) all = period_first(o, f) % steps == 0 && (period_first(o, f) + o->delay) % steps == 0;
    return all;
}

/* The island of the most samples a step updates in every step, another one in every k-th, with the k that brings the samples of its update
 * nearest to those. */
static void set_updates(struct island_task *f, const struct island_division *d, struct outer_optimizer *o)
{
    int32_t n = d->by.n, *updates = ARENA_ARRAY(f->a, int32_t, (size_t)n);
    int64_t most = 0;
    for (int32_t i = 0; i < n; i++) most = d->islands[i].batch > most ? d->islands[i].batch : most;
    for (int32_t i = 0; i < n; i++) {
        double ratio = (double)most / (double)d->islands[i].batch;
        int32_t steps = 1;
        for (int32_t k = 2; k <= o->every; k++)
            if (suits(o, k) && fabs(log(k / ratio)) < fabs(log(steps / ratio))) steps = k;
        updates[i] = o->every / steps;
        if (steps > 1) o->n_updates = n, o->updates = updates;
    }
}

static bool has_zero(const struct plan *p)
{
    bool any = false;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t s = 0; s < p->replicas[r].n_stages; s++) any |= p->replicas[r].stages[s].zero > 0;
    return any;
}

/* The k-th plans of the islands with their ZeRO or without. *why: there is none; *zero: they have some. */
static enum status try_united(struct island_task *f, const struct island_division *d, int32_t k, const struct change *change, bool *zero,
                              struct strategy_plan *x, const char **why, struct error *err)
{
    struct plan p;
    const int32_t *island;
    *why = "the islands have no plans of one microbatch size";
    if (!island_plans_unite(f, d, k, *zero, &p, &island)) return OK;
    *zero = has_zero(&p);
    apply(change, &p, d->by.n, island);
    if (change->outer) set_updates(f, d, &p.local_sgd.outer);
    return try_plan(f, &p, x, why, err);
}

/* The first plans of the islands that fit beside what the strategy keeps, of local SGD with ZeRO and without; else the reason of the first without. */
static enum status try_islands(struct island_task *f, const struct island_division *d, const struct change *change,
                               struct strategy_plan *x, struct error *err)
{
    const char *why = d->why, *first = d->why;
    bool found = false;
    for (int32_t k = 0; !d->why && k < d->n_plans && !found; k++) {
        bool zero = change->zero || change->outer;
        TRY(try_united(f, d, k, change, &zero, x, &why, err));
        found = !why;
        if (zero && change->outer) {
            zero = false;
            TRY(try_united(f, d, k, change, &zero, x, &why, err));
            found |= !why;
        }
        if (!first) first = why;
    }
    if (found) return OK;
    note(f, arena_printf(f->a, "%" PRId32 " islands%s%s%s", d->by.n, d->beside ? " with room for anchors" : "", f->base ? " of " : "", f->base ? f->base : ""),
         first, x);
    return OK;
}

/* The synchronous plan with other sums. */
static enum status try_sync(struct island_task *f, const struct search_plan *sync, const struct change *change,
                            struct strategy_plan *x, struct error *err)
{
    const char *why, *missing;
    struct plan p;
    replan_carry(f->a, &sync->plan, f->cluster, &p, &missing);
    if (missing) return OK;
    for (int32_t r = 0; r < p.n_replicas && !change->zero; r++)
        for (int32_t s = 0; s < p.replicas[r].n_stages; s++)
            p.replicas[r].stages[s].zero = 0, p.replicas[r].stages[s].hybrid_shard = false,
            p.replicas[r].stages[s].all_reduce = ALGORITHM_RING;
    apply(change, &p, 0, NULL);
    TRY(try_plan(f, &p, x, &why, err));
    if (why) note(f, f->base ? f->base : "the synchronous plan", why, x);
    return OK;
}

/* With parameter servers: the best of the plans that are made from this one. */
static enum status try_served(struct island_task *f, const struct search_plan *sync, const struct change *change, struct strategy_plan *x,
                              struct error *err)
{
    const char *why, *first = NULL;
    struct plan *plans, carried;
    struct parameter_server rule = *change->servers;
    int32_t n;
    if (rule.mode != SERVER_BSP) rule.rate = served_plans_rate(&f->job->optimizer);
    replan_carry(f->a, &sync->plan, f->cluster, &carried, &why);
    if (why) return OK;
    TRY(served_plans(f, &carried, &rule, &plans, &n, &first, err));
    for (int32_t i = 0; i < n; i++) {
        TRY(try_plan(f, &plans[i], x, &why, err));
        if (!first) first = why;
    }
    if (first) note(f, f->base ? f->base : "the synchronous plan", first, x);
    return OK;
}

static enum status try_unflushed(struct island_task *f, const struct search_plan *sync, struct strategy_plan *x, struct error *err)
{
    const char *why, *first = NULL;
    struct plan carried, plans[UNFLUSHED_PLANS];
    replan_carry(f->a, &sync->plan, f->cluster, &carried, &why);
    if (why) return OK;
    int32_t n = unflushed_plans(f->a, &carried, plans, &first);
    for (int32_t i = 0; i < n; i++) {
        TRY(try_plan(f, &plans[i], x, &why, err));
        if (!first) first = why;
    }
    if (first) note(f, f->base ? f->base : "the synchronous plan", first, x);
    return OK;
}

/* The best setting of the textbook plan f->base; *why: there is none. */
static enum status find_textbook(struct island_task *f, struct search_plan *out, const char **why, struct error *err)
{
    struct search_options o = *f->o;
    struct search_result r;
    struct error none = {0};
    o.baseline = f->base, o.from = NULL, o.top = 1, o.objective = OBJECTIVE_TIME, o.min_rate = o.max_cost = 0;
    enum status st = search_plans(f->a, f->job, f->cluster, f->profile, &o, &r, &none);
    if (st == ERR_INFEASIBLE || st == ERR_INPUT) *why = arena_strdup(f->a, none.text);
    if (*why) return OK;
    if (st != OK) {
        if (err) *err = none;
        return st;
    }
    f->evaluated += r.evaluated;
    *out = r.plans[0];
    return OK;
}

static enum status try_stale(struct island_task *f, const struct search_plan *sync, const struct change *change, struct strategy_plan *x,
                             struct error *err)
{
    return change->servers ? try_served(f, sync, change, x, err) : try_unflushed(f, sync, x, err);
}

/* The synchronous plan, and a textbook plan: a replica on every device, which a search leaves out where the slow ones would delay all; or a
 * pipeline, which a search leaves out for its bubble. */
static enum status try_stale_plans(struct island_task *f, const struct search_plan *sync, const struct change *change, struct strategy_plan *x,
                                   struct error *err)
{
    struct search_plan textbook;
    const char *why = NULL;
    TRY(try_stale(f, sync, change, x, err));
    f->base = change->servers ? "data-parallel" : "gpipe";
    TRY(find_textbook(f, &textbook, &why, err));
    if (why) note(f, f->base, why, x);
    if (!why) TRY(try_stale(f, &textbook, change, x, err));
    f->base = NULL;
    return OK;
}

static enum status fill_once(struct island_task *f, struct island_division *d, struct error *err)
{
    return d->islands ? OK : island_plans_fill(f, d, err);
}

/* Of a strategy that keeps more than the plans of the islands have room for, plans with this room. */
static enum status try_divisions(struct island_task *f, struct island_division *d, int32_t n, const struct change *change,
                                 struct strategy_plan *x, struct error *err)
{
    for (int32_t i = 0; i < n; i++) {
        TRY(fill_once(f, &d[i], err));
        TRY(try_islands(f, &d[i], change, x, err));
    }
    for (int32_t i = 0; i < n && x->why && change->outer; i++) {
        struct island_division *room = d[i].with_room;
        if (!room) {
            room = d[i].with_room = ARENA_ARRAY(f->a, struct island_division, 1);
            room->by = d[i].by, room->beside = true;
        }
        TRY(fill_once(f, room, err));
        TRY(try_islands(f, room, change, x, err));
    }
    return OK;
}

static enum status try_strategy(struct island_task *f, const struct change *change, struct island_division *d, int32_t n,
                                const struct search_plan *sync, struct strategy_plan *x, struct error *err)
{
    x->why = refused(f->a, change, f->job);
    if (x->why) return OK;
    x->why = "";
    if (change->servers || change->unflushed) return try_stale_plans(f, sync, change, x, err);
    if (!change->outer) TRY(try_sync(f, sync, change, x, err));
    TRY(try_divisions(f, d, n, change, x, err));
    if (x->why && !*x->why) x->why = "no links divide the cluster into islands";
    return OK;
}

/* What the plan adds to the assumption of its strategy. */
static void note_islands(struct island_task *f, struct strategy_plan *x)
{
    const struct plan_local_sgd *l = &x->plan.local_sgd;
    const struct strategy_beyond *b = &x->beyond;
    int32_t most = 1;
    if (x->why || !l->outer.every) return;
    for (int32_t i = 0; i < l->n_islands; i++) most = (int32_t)units_max(most, period_of_update(&l->outer, i));
    if (is_beyond(x, &x->plan))
        x->source = arena_printf(f->a, "%s; of this plan's %" PRId32 " islands Douillard et al. 2023 report diminishing returns beyond %" PRId32
                                 ", with up to 64 and 150M parameters", x->source, l->n_islands, x->covered);
    else if (b->islands && b->iteration_ns < x->iteration_ns)
        x->source = arena_printf(f->a, "%s; %" PRId32 " islands, for which Douillard et al. 2023 report diminishing returns, would take %.3g s", x->source, b->islands,
                                 units_s_from_ns(b->iteration_ns));
    if (most > 1)
        x->source = arena_printf(f->a, "%s; islands of fewer samples a step accumulate up to %" PRId32
                                 " steps for an update, whose batch is about the fastest island's", x->source, most);
}

static bool precedes(struct island_task *f, const struct strategy_plan *x, const struct strategy_plan *y)
{
    if (x->why || y->why) return !x->why && y->why;
    struct search_plan a = strategy_effective(x), b = strategy_effective(y);
    return objective_precedes(f->o, &a, &b);
}

static void put_in_order(struct island_task *f, struct strategies *s)
{
    for (int32_t i = 1; i < s->n; i++) {
        struct strategy_plan x = s->list[i];
        int32_t at = i;
        for (; at > 0 && precedes(f, &x, &s->list[at - 1]); at--) s->list[at] = s->list[at - 1];
        s->list[at] = x;
    }
}

static const struct row {
    enum strategy_set set;
    const char *name, *help, *source;
    double progress;
} rows[] = {
#define X(id, set, name, help, progress, source) {STRATEGY_SET_##set, name, help, source, progress},
    STRATEGIES(X)
#undef X
};

/* The divisions of the cluster into islands, none of them planned. */
static enum status divisions(struct island_task *f, struct island_division **out, int32_t *n, struct error *err)
{
    struct cluster stated = *f->cluster;
    struct islands *by;
    TRY(team_state_links(f->a, f->profile, &stated, err));
    *n = islands_divisions(f->a, &stated, &by);
    *out = ARENA_ARRAY(f->a, struct island_division, (size_t)*n + 1);
    for (int32_t i = 0; i < *n; i++) (*out)[i].by = by[i];
    return OK;
}

enum status strategies_find(struct arena *a, const struct job *j, const struct cluster *c, const struct profile *p,
                            const struct search_options *o, uint32_t sets, const struct search_plan *sync,
                            struct strategies *out, struct error *err)
{
    struct island_task f = {.a = a, .job = j, .cluster = c, .profile = p, .o = o};
    struct island_division *d;
    int32_t n;
    TRY(divisions(&f, &d, &n, err));
    *out = (struct strategies){.list = ARENA_ARRAY(a, struct strategy_plan, STRATEGY_COUNT)};
    for (int id = 0; id < STRATEGY_COUNT; id++) {
        if (!(sets >> rows[id].set & 1)) continue;
        struct strategy_plan *x = &out->list[out->n++];
        *x = (struct strategy_plan){
            .name = rows[id].name, .help = rows[id].help, .source = rows[id].source, .progress = rows[id].progress, .covered = changes[id].covered};
        TRY(try_strategy(&f, &changes[id], d, n, sync, x, err));
        note_islands(&f, x);
    }
    put_in_order(&f, out);
    out->evaluated = f.evaluated;
    return OK;
}

/* --- presets --- */

static const struct {
    const char *name, *bases, *help;
    enum strategy_id strategy;
} presets[] = {
#define X(name, strategy, bases, help) {name, bases, help, STRATEGY_##strategy},
    PRESETS(X)
#undef X
};

int32_t strategies_preset(const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (!strcmp(presets[i].name, name)) return (int32_t)i;
    return -1;
}

/* Of one textbook plan: on every island, or on the whole cluster. */
static enum status try_preset(struct island_task *f, const struct change *change, struct strategy_plan *x, struct error *err)
{
    struct island_division *d;
    struct search_plan textbook;
    const char *why = NULL;
    int32_t n = 0;
    if (change->outer) {
        TRY(divisions(f, &d, &n, err));
        return try_divisions(f, d, n, change, x, err);
    }
    TRY(find_textbook(f, &textbook, &why, err));
    if (why) note(f, f->base, why, x);
    if (why) return OK;
    bool stale = change->servers || change->unflushed;
    return stale ? try_stale(f, &textbook, change, x, err) : try_sync(f, &textbook, change, x, err);
}

enum status strategies_preset_find(struct arena *a, const struct job *j, const struct cluster *c, const struct profile *p,
                                   const struct search_options *o, int32_t preset, struct strategy_plan *out, int64_t *evaluated,
                                   struct error *err)
{
    const struct change *change = &changes[presets[preset].strategy];
    const struct row *row = &rows[presets[preset].strategy];
    struct island_task f = {.a = a, .job = j, .cluster = c, .profile = p, .o = o};
    const char *why = refused(a, change, j);
    *out = (struct strategy_plan){
        .name = presets[preset].name, .help = presets[preset].help, .source = row->source, .progress = row->progress, .why = why ? why : "",
        .covered = change->covered};
    for (const char *at = presets[preset].bases, *end; *at && !why; at = end + (*end == ' ')) {
        end = at + strcspn(at, " ");
        f.base = arena_printf(a, "%.*s", (int)(end - at), at);
        TRY(try_preset(&f, change, out, err));
    }
    note_islands(&f, out);
    *evaluated = f.evaluated;
    if (!out->why && out->outside)
        return error_set(err, ERR_INFEASIBLE, "baseline %s: outside the limits: it takes %.4g s and costs %.4g per iteration", out->name,
                         units_s_from_ns(out->iteration_ns), plan_cost(&out->plan, out->iteration_ns));
    if (!out->why) return OK;
    return error_set(err, ERR_INFEASIBLE, "baseline %s: %s", out->name, *out->why ? out->why : "no links divide the cluster into islands");
}
