#include "planner/search.h"

#include "core/arena.h"
#include "core/lower.h"
#include "core/units.h"
#include "planner/baseline.h"
#include "planner/baselines.h"
#include "planner/bound_cluster.h"
#include "planner/cheaper.h"
#include "planner/exact.h"
#include "planner/fleet.h"
#include "planner/near.h"
#include "planner/offers.h"
#include "planner/refine.h"
#include "planner/regroup.h"
#include "planner/tries.h"
#include "profiles/team.h"

#include <string.h>

enum {
    EVALUATIONS_DEFAULT = 20000,
    KEPT_LEAST = 32,
    REGROUP_SMALL = 1500 /* simulations for stages on several devices, up to 8 devices */
};

/* The tables of one microbatch size after the other, and the tries on all of them. */
struct search {
    struct tries t;
    const struct job *job;
    const struct cluster *cluster;
    struct cost *cost;
    struct arena *spaces;
    struct arena *lists; /* scratch of the size at hand */
    struct space space[16];
    int32_t n_spaces;
};

static enum status one_size(struct search *q, int64_t microbatch, struct error *err)
{
    struct space *s = &q->space[q->n_spaces++];
    arena_reset(q->lists);
    TRY(space_make(q->spaces, q->job, q->cluster, q->cost, microbatch, q->t.lower, s, err));
    tries_report(&q->t);
    if (q->t.o->baseline || tries_stopped(&q->t)) return OK;
    TRY(exact_search(&q->t, q->lists, s, err));
    return q->t.kept.n || tries_stopped(&q->t) ? OK : near_try(q->lists, q->t.scorer, s, err);
}

/* What the class yields is known; now the orders and buckets of each kept plan. */
static enum status refine_kept(struct search *q, struct search_result *out, struct error *err)
{
    struct tries *t = &q->t;
    struct kept refined;
    kept_init(&refined, t->arena, t->kept.most, t->o, q->cluster);
    if (t->kept.n) out->class_ns = t->kept.plans[0].iteration_ns;
    for (int32_t i = 0; i < t->kept.n; i++) {
        struct plan better = t->kept.plans[i].plan;
        int64_t ns = t->kept.plans[i].iteration_ns;
        int32_t s = 0;
        while (s < q->n_spaces && q->space[s].microbatch != better.microbatch) s++;
        if (!tries_over(t) && s < q->n_spaces) /* a baseline's size may not have had its turn */
            TRY(refine_plan(scorer_arena(t->scorer), t->scorer, &q->space[s], &better, &ns,
                            &t->evaluations_left, t->o->stop, err));
        kept_add(&refined, &better, ns);
        tries_report(t);
    }
    t->kept = refined;
    return OK;
}

static enum status conclude(struct tries *q, const struct profile *p, struct search_result *out,
                            struct error *err)
{
    if (q->o->baseline) TRY(baselines_pick(q, out, err));
    out->plans = q->kept.plans;
    while (out->n_plans < q->kept.n && kept_inside(&q->kept, &q->kept.plans[out->n_plans]))
        out->n_plans++;
    if (q->o->top > 0 && out->n_plans > q->o->top) out->n_plans = q->o->top;
    out->candidates = q->candidates;
    out->evaluated = scorer_runs(q->scorer);
    out->exact = !q->interrupted && !q->exhausted && !q->truncated && !q->o->baseline;
    out->stopped = q->interrupted ? "interrupted" : q->exhausted ? "evaluations" : "end";
    for (int32_t i = 0; i < out->n_plans; i++) {
        out->plans[i].plan.profile_id = p->id;
        if (!q->o->baseline)
            out->plans[i].plan.name = i ? arena_printf(q->arena, "found-%d", (int)i + 1) : "found";
    }
    for (int32_t i = 0; i < out->n_baselines; i++) out->baselines[i].plan.profile_id = p->id;
    if (out->n_plans) return OK;
    if (q->interrupted)
        return error_set(err, ERR_INTERRUPTED, "interrupted before any plan was found");
    if (q->kept.n)
        return error_set(err, ERR_INFEASIBLE,
                         "no plan within the limits: the nearest takes %.4g s and costs %.4g an "
                         "iteration",
                         s_from_ns(q->kept.plans[0].iteration_ns), q->kept.plans[0].cost);
    return error_set(err, ERR_INFEASIBLE, "no feasible plan: %s", scorer_why(q->scorer));
}

/* Microbatch sizes to try: the job's, or every divisor of the global batch up to 64 sequences that
 * is a power of two. */
static int32_t sizes_of(const struct job *j, int64_t sizes[16])
{
    if (j->n_microbatches_sizes) {
        memcpy(sizes, j->microbatch_sizes, sizeof j->microbatch_sizes);
        return j->n_microbatches_sizes;
    }
    int32_t n = 0;
    for (int64_t b = 1; b <= 64 && b <= j->global_batch; b *= 2)
        if (j->global_batch % b == 0) sizes[n++] = b;
    return n;
}

static void put_bound(struct search_result *out, const struct bound_certificate *b)
{
    out->lower_bound_ns = b->lower_bound_ns;
    out->binding = b->binding;
    out->bound_class = b->class_text;
    out->gap = bound_gap(out->plans[0].iteration_ns, b->lower_bound_ns);
}

/* How far from the best of any plan the first one can be. */
static enum status certify(struct search *q, struct search_result *out, struct error *err)
{
    struct bound_certificate b = {.binding = "nothing was tried", .class_text = ""};
    const struct space *spaces[16 + PRESET_SPACES_MOST];
    int32_t n = 0;
    for (int32_t i = 0; i < q->n_spaces; i++) spaces[n++] = &q->space[i];
    for (int32_t i = 0; i < q->t.n_presets; i++) spaces[n++] = q->t.preset[i];
    if (n) TRY(bound_cluster(q->t.arena, q->cluster, q->cost, spaces, n, &b, err));
    put_bound(out, &b);
    return OK;
}

static bool is_large(const struct search *q)
{
    return !q->t.o->baseline &&
           (q->cluster->n_devices > SEARCH_DEVICES_MAX || q->t.o->n_tensor > 1);
}

/* Any number of devices: kinds, templates and mixes (planner/fleet). */
static enum status search_large(struct search *q, const struct profile *p, const int64_t *sizes,
                                int32_t n_sizes, struct search_result *out, struct error *err)
{
    struct tries *t = &q->t;
    struct bound_certificate b[2] = {{.binding = "", .class_text = ""},
                                     {.binding = "", .class_text = ""}};
    bool wide = false; /* a baseline of another class than the one that was searched is faster */
    struct fleet_task task = {q->job, q->cluster, p, sizes, n_sizes};
    TRY(fleet_search(t, &task, b, err));
    if (t->o->objective != OBJECTIVE_TIME || t->o->most_cost > 0)
        TRY(cheaper_search(t, &task, err));
    if (t->kept.n) out->class_ns = t->kept.plans[0].iteration_ns;
    t->truncated = true;
    baselines_keep(t, out);
    TRY(conclude(t, p, out, err));
    for (int32_t i = 0; i < out->n_baselines; i++)
        wide |= out->baselines[i].iteration_ns < b[0].lower_bound_ns;
    put_bound(out, &b[wide]);
    return OK;
}

static enum status search_small(struct search *q, const struct profile *p, const int64_t *sizes,
                                int32_t n_sizes, struct search_result *out, struct error *err)
{
    struct tries *t = &q->t;
    int64_t for_refinement = t->evaluations_left / 8;
    t->evaluations_left -= for_refinement;
    for (int32_t i = 0; i < n_sizes && !tries_over(t); i++) TRY(one_size(q, sizes[i], err));
    t->exhausted = t->evaluations_left <= 0;
    t->evaluations_left = (t->exhausted ? 0 : t->evaluations_left) + for_refinement;
    if (!t->o->baseline) {
        TRY(refine_kept(q, out, err));
        baselines_keep(t, out);
        TRY(regroup_kept(t, q->space, q->n_spaces, REGROUP_SMALL, err));
    }
    TRY(conclude(t, p, out, err));
    return certify(q, out, err);
}

static enum status check_objective(const struct cluster *c, const struct search_options *o,
                                   struct error *err)
{
    bool prices = false;
    for (int32_t t = 0; t < c->n_types; t++) prices |= c->types[t].price_per_h > 0;
    if ((o->objective == OBJECTIVE_COST || o->most_cost > 0) && !prices)
        return error_set(err, ERR_INPUT,
                         "no device type of cluster '%s' has a price (for example price: 3.2/h)",
                         c->name);
    if (o->objective == OBJECTIVE_RATE && !(o->most_cost > 0))
        return error_set(err, ERR_USAGE, "the objective rate wants a budget (most-cost)");
    return OK;
}

static enum status search_all(struct search *q, const struct profile *p, struct search_result *out,
                              struct error *err)
{
    int64_t sizes[16];
    int32_t n_sizes = sizes_of(q->job, sizes);
    struct baselines_request r = {q->job, q->cluster, p, sizes, n_sizes};
    tries_report(&q->t);
    TRY(baselines_score(&q->t, &r, out, err));
    return is_large(q) ? search_large(q, p, sizes, n_sizes, out, err)
                       : search_small(q, p, sizes, n_sizes, out, err);
}

enum status search_plans(struct arena *a, const struct job *j, const struct cluster *c,
                         const struct profile *p, const struct search_options *o,
                         struct search_result *out, struct error *err)
{
    *out = (struct search_result){.n_baselines = baseline_count()};
    out->baselines = ARENA_ARRAY(a, struct search_baseline, (size_t)out->n_baselines);
    for (int32_t i = 0; i < out->n_baselines; i++)
        out->baselines[i] =
            (struct search_baseline){.name = baseline_name(i), .iteration_ns = INT64_MAX};
    int32_t cards[OFFERS_DEFAULT_MOST];
    struct search_options with_cards = *o;
    if (!o->tensor && !o->baseline) {
        with_cards.n_tensor = offers_default(j, c, cards);
        with_cards.tensor = with_cards.n_tensor ? cards : NULL;
        o = &with_cards;
    }
    struct lower_options lower = {.check_memory = true};
    TRY(team_fused(a, c, &lower, err));
    TRY(check_objective(c, o, err));
    struct cost *k = cost_new(a, p, c);
    struct search q = {
        .t = {.arena = a,
              .o = o,
              .lower = &lower,
              .scorer = scorer_new(&lower),
              .evaluations_left = o->evaluations > 0 ? o->evaluations : EVALUATIONS_DEFAULT},
        .job = j,
        .cluster = c,
        .cost = k,
        .spaces = arena_new(),
        .lists = arena_new()};
    kept_init(&q.t.kept, a, o->top > KEPT_LEAST ? o->top : KEPT_LEAST, o, c);
    enum status st = search_all(&q, p, out, err);
    scorer_free(q.t.scorer);
    arena_free(q.lists);
    arena_free(q.spaces);
    return st;
}
