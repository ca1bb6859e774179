#include "planner/search.h"

#include "core/arena.h"
#include "core/lower.h"
#include "core/program.h"
#include "core/units.h"
#include "planner/baseline.h"
#include "planner/bound.h"
#include "planner/kept.h"
#include "planner/near.h"
#include "planner/partition.h"
#include "planner/pipeline.h"
#include "planner/refine.h"
#include "planner/score.h"
#include "profiles/team.h"

#include <stdio.h>
#include <string.h>

enum { EVALUATIONS_DEFAULT = 20000, LIST_MOST = 60000, FIRST_MOST = 16, KEPT_LEAST = 32 };

/* The state of one search. What cannot beat the worst kept plan is pruned. Kept are plans of the
 * class as they were found; they are refined at the end, so that how many are asked for does not
 * change which are found. */
struct search {
    struct arena *arena; /* the result's */
    struct arena *spaces;
    struct arena *lists; /* pipelines of the space at hand */
    const struct search_options *o;
    const struct lower_options *lower;
    struct scorer *scorer;
    const struct space *s;
    const struct bottleneck *b;
    struct kept kept;
    int64_t candidates, evaluations_left;
    bool truncated, interrupted, exhausted; /* exhausted: the budget, before the end */
    struct pipeline_list *memo;             /* (1 << n_devices, microbatches + 1) */
    int64_t *memo_limit;
};

/* What a plan must beat to be kept. */
static int64_t limit_of(const struct search *q)
{
    return q->o->exhaustive ? INT64_MAX : kept_limit(&q->kept);
}

static bool stopped(struct search *q)
{
    if (q->o->stop && *q->o->stop) q->interrupted = true;
    return q->interrupted;
}

static bool out_of_budget(struct search *q) { return stopped(q) || q->evaluations_left <= 0; }

static void report(const struct search *q)
{
    if (q->o->progress)
        q->o->progress(q->o->user, scorer_runs(q->scorer),
                       q->kept.n ? q->kept.plans[0].iteration_ns : INT64_MAX);
}

static enum status evaluate(struct search *q, struct plan *p, struct error *err)
{
    int64_t iteration_ns = 0;
    q->evaluations_left--;
    TRY(scorer_fit(q->scorer, q->s, p, &iteration_ns, err));
    kept_add(&q->kept, p, iteration_ns);
    report(q);
    return OK;
}

static void plan_of(struct search *q, struct arena *a, const struct partition *part,
                    const struct pipeline *const *chosen, const int32_t *share, struct plan *out)
{
    int32_t n_stages[SPACE_DEVICES_MAX];
    for (int32_t r = 0; r < part->n_replicas; r++) n_stages[r] = chosen[r]->n_stages;
    plan_skeleton(a, q->s, "found", part->n_replicas, n_stages, out);
    for (int32_t r = 0; r < part->n_replicas; r++) {
        out->replicas[r].microbatches = share[r];
        for (int32_t i = 0, first = 0; i < n_stages[r]; i++) {
            struct plan_stage *stage = &out->replicas[r].stages[i];
            stage->device = chosen[r]->device[i];
            stage->first_layer = first;
            stage->last_layer = chosen[r]->last[i];
            stage->recompute = chosen[r]->recompute[i];
            first = stage->last_layer + 1;
        }
    }
}

/* Least time of the gradient sum that the first stage of a pipeline waits for before its update.
 * Several groups may be summed over several of its links at once. */
static int64_t reduce_bound(const struct search *q, const struct partition *part,
                            const struct pipeline *p)
{
    double all = 0;
    int32_t d = p->device[0];
    for (int32_t e = 0; e < q->s->n_devices; e++)
        if (space_linked(q->s, d, e)) all += space_link(q->s, d, e)->bandwidth_Bps;
    if (part->n_replicas < 2 || all <= 0) return 0;
    return bound_ring((double)space_stage(q->s, d, 0, p->last[0])->parameter_bytes,
                      part->n_replicas, all, 0);
}

static const struct pipeline_list *pipelines(struct search *q, uint32_t mask, int32_t m,
                                             size_t most)
{
    size_t at = (size_t)mask * (size_t)(q->s->microbatches + 1) + (size_t)m;
    int64_t limit = limit_of(q);
    if (q->memo_limit[at] && (q->memo[at].complete || most == FIRST_MOST)) return &q->memo[at];
    pipeline_enumerate(q->lists, q->s, q->b, mask, m, limit, most, &q->memo[at]);
    q->memo_limit[at] = limit;
    q->candidates += q->memo[at].seen;
    if (!q->memo[at].complete && most == LIST_MOST) q->truncated = true;
    return &q->memo[at];
}

struct combination {
    const struct partition *part;
    const struct pipeline_list *list[SPACE_DEVICES_MAX];
    const struct pipeline *chosen[SPACE_DEVICES_MAX];
    int32_t share[SPACE_DEVICES_MAX];
    bool first_only;
};

static enum status combine(struct search *q, struct combination *c, int32_t r, struct error *err)
{
    if (r == c->part->n_replicas) {
        struct arena *scratch = scorer_arena(q->scorer);
        struct plan p;
        plan_of(q, scratch, c->part, c->chosen, c->share, &p);
        return evaluate(q, &p, err);
    }
    for (size_t i = 0; i < c->list[r]->n && !out_of_budget(q); i++) {
        const struct pipeline *p = &c->list[r]->items[i];
        if (p->bound_ns >= limit_of(q)) break;
        if (p->path_ns + reduce_bound(q, c->part, p) >= limit_of(q)) continue;
        c->chosen[r] = p;
        TRY(combine(q, c, r + 1, err));
        if (c->first_only) break;
    }
    return OK;
}

static enum status try_shares(struct search *q, struct combination *c, struct error *err)
{
    for (int32_t r = 0; r < c->part->n_replicas; r++) {
        c->list[r] =
            pipelines(q, c->part->mask[r], c->share[r], c->first_only ? FIRST_MOST : LIST_MOST);
        if (!c->list[r]->n) return OK;
    }
    return combine(q, c, 0, err);
}

/* Every way to share `left` microbatches among replicas r … that could still beat the incumbent. */
static enum status all_shares(struct search *q, struct combination *c, int32_t r, int32_t left,
                              struct error *err)
{
    int32_t behind = c->part->n_replicas - r - 1;
    int64_t weight = bottleneck_ns(q->b, c->part->mask[r], 0);
    for (int32_t m = behind ? 1 : left; m <= left - behind && !out_of_budget(q); m++) {
        if (m * weight >= limit_of(q)) break;
        c->share[r] = m;
        if (behind)
            TRY(all_shares(q, c, r + 1, left - m, err));
        else
            TRY(try_shares(q, c, err));
    }
    return OK;
}

/* A good incumbent first: the best-bound plan of every promising partition, greedy shares. */
static enum status first_round(struct search *q, const struct partition *parts, size_t n,
                               struct error *err)
{
    for (size_t i = 0; i < n && !out_of_budget(q) && parts[i].bound_ns < limit_of(q); i++) {
        struct combination c = {.part = &parts[i], .first_only = true};
        int64_t weight[SPACE_DEVICES_MAX];
        for (int32_t r = 0; r < parts[i].n_replicas; r++)
            weight[r] = bottleneck_ns(q->b, parts[i].mask[r], 0);
        partition_shares(weight, parts[i].n_replicas, q->s->microbatches, c.share);
        TRY(try_shares(q, &c, err));
    }
    return OK;
}

static enum status search_space(struct search *q, struct error *err)
{
    struct partition *parts = NULL;
    size_t n = 0, cells = ((size_t)1 << q->s->n_devices) * (size_t)(q->s->microbatches + 1);
    partition_all(q->lists, q->s, q->b, &parts, &n);
    q->memo = ARENA_ARRAY(q->lists, struct pipeline_list, cells);
    q->memo_limit = ARENA_ARRAY(q->lists, int64_t, cells);
    TRY(first_round(q, parts, n, err));
    memset(q->memo_limit, 0, cells * sizeof *q->memo_limit);
    for (size_t i = 0; i < n && !out_of_budget(q) && parts[i].bound_ns < limit_of(q); i++) {
        struct combination c = {.part = &parts[i]};
        TRY(all_shares(q, &c, 0, q->s->microbatches, err));
    }
    return OK;
}

/* The baseline over all microbatch sizes seen so far: the best setting of its family. */
static enum status score_baselines(struct search *q, struct search_result *out, struct error *err)
{
    for (int32_t i = 0; i < baseline_count() && !stopped(q); i++) {
        struct search_baseline *b = &out->baselines[i];
        struct plan p;
        struct error why = {0};
        int64_t iteration_ns = INT64_MAX;
        enum status st = baseline_maker(i)(scorer_arena(q->scorer), q->s, &p, &why);
        if (st == OK) {
            q->evaluations_left--;
            TRY(scorer_fit(q->scorer, q->s, &p, &iteration_ns, err));
            if (iteration_ns == INT64_MAX) {
                struct program program;
                st = lower_plan_graphs(q->lists, &p, &q->s->graphs, q->lower, &program, &why);
            }
        }
        if (iteration_ns < b->iteration_ns) {
            b->iteration_ns = iteration_ns;
            b->plan = score_copy_plan(q->arena, &p);
            b->plan.predicted_ns = iteration_ns;
            b->why = NULL;
        } else if (b->iteration_ns == INT64_MAX) {
            b->why = arena_strdup(q->arena, why.text);
        }
        if (iteration_ns != INT64_MAX) kept_add(&q->kept, &p, iteration_ns);
        q->candidates++;
        report(q);
    }
    return OK;
}

static enum status one_size(struct search *q, struct arena *lists, struct space *s,
                            const struct job *j, const struct cluster *c, struct cost *k,
                            const struct lower_options *lower, int64_t microbatch,
                            struct search_result *out, struct error *err)
{
    TRY(space_make(q->spaces, j, c, k, microbatch, lower, s, err));
    q->s = s;
    q->lists = lists;
    report(q);
    TRY(score_baselines(q, out, err));
    if (q->o->baseline || stopped(q)) return OK;
    q->b = bottleneck_make(lists, s);
    TRY(search_space(q, err));
    return q->kept.n || stopped(q) ? OK : near_try(lists, q->scorer, s, err);
}

/* What the class yields is known; now the orders and buckets of each kept plan. */
static enum status refine_kept(struct search *q, const struct space *spaces, int32_t n_spaces,
                               struct search_result *out, struct error *err)
{
    struct kept refined;
    kept_init(&refined, q->arena, q->kept.most);
    if (q->kept.n) out->class_ns = q->kept.plans[0].iteration_ns;
    for (int32_t i = 0; i < q->kept.n; i++) {
        struct plan better = q->kept.plans[i].plan;
        int64_t ns = q->kept.plans[i].iteration_ns;
        int32_t s = 0;
        while (s < n_spaces && spaces[s].microbatch != better.microbatch) s++;
        if (!out_of_budget(q))
            TRY(refine_plan(scorer_arena(q->scorer), q->scorer, &spaces[s], &better, &ns,
                            &q->evaluations_left, q->o->stop, err));
        kept_add(&refined, &better, ns);
        report(q);
    }
    q->kept = refined;
    return OK;
}

static enum status pick_baseline(struct search *q, struct search_result *out, struct error *err)
{
    for (int32_t i = 0; i < baseline_count(); i++) {
        if (strcmp(baseline_name(i), q->o->baseline) != 0) continue;
        struct search_baseline *b = &out->baselines[i];
        if (b->iteration_ns == INT64_MAX)
            return error_set(err, ERR_INFEASIBLE, "baseline %s: %s", b->name,
                             b->why ? b->why : "does not fit");
        q->kept.plans[0] = (struct search_plan){.plan = b->plan, .iteration_ns = b->iteration_ns};
        q->kept.n = 1;
        return OK;
    }
    char known[200] = "";
    for (int32_t i = 0; i < baseline_count(); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", baseline_name(i));
    }
    return error_set(err, ERR_USAGE, "unknown baseline '%s'; known: %s", q->o->baseline, known);
}

static enum status conclude(struct search *q, const struct profile *p, struct search_result *out,
                            struct error *err)
{
    if (q->o->baseline) TRY(pick_baseline(q, out, err));
    out->plans = q->kept.plans;
    out->n_plans = q->kept.n < q->o->top || q->o->top < 1 ? q->kept.n : q->o->top;
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

enum status search_plans(struct arena *a, const struct job *j, const struct cluster *c,
                         const struct profile *p, const struct search_options *o,
                         struct search_result *out, struct error *err)
{
    *out = (struct search_result){.n_baselines = baseline_count()};
    out->baselines = ARENA_ARRAY(a, struct search_baseline, (size_t)out->n_baselines);
    for (int32_t i = 0; i < out->n_baselines; i++)
        out->baselines[i] =
            (struct search_baseline){.name = baseline_name(i), .iteration_ns = INT64_MAX};
    struct lower_options lower = {.check_memory = true};
    TRY(team_fused(a, c, &lower, err));
    if (!o->baseline && c->n_devices > SEARCH_DEVICES_MAX)
        return error_set(err, ERR_INPUT,
                         "cluster '%s' has %d devices; the exact search takes at most %d "
                         "(baselines take any number)",
                         c->name, (int)c->n_devices, SEARCH_DEVICES_MAX);
    struct cost *k = cost_new(a, p, c);
    int64_t evaluations = o->evaluations > 0 ? o->evaluations : EVALUATIONS_DEFAULT;
    struct search q = {.arena = a,
                       .spaces = arena_new(),
                       .o = o,
                       .lower = &lower,
                       .scorer = scorer_new(&lower, k),

                       .evaluations_left = evaluations - evaluations / 8};
    kept_init(&q.kept, a, o->top > KEPT_LEAST ? o->top : KEPT_LEAST);
    struct arena *lists = arena_new();
    int64_t sizes[16];
    struct space spaces[16];
    int32_t n_sizes = sizes_of(j, sizes), made = 0;
    enum status st = OK;
    for (; made < n_sizes && st == OK && !out_of_budget(&q); made++) {
        arena_reset(lists);
        st = one_size(&q, lists, &spaces[made], j, c, k, &lower, sizes[made], out, err);
    }
    q.exhausted = q.evaluations_left <= 0;
    q.evaluations_left = (q.exhausted ? 0 : q.evaluations_left) + evaluations / 8;
    if (st == OK && !o->baseline) st = refine_kept(&q, spaces, made, out, err);
    if (st == OK) st = conclude(&q, p, out, err);
    scorer_free(q.scorer);
    arena_free(lists);
    arena_free(q.spaces);
    return st;
}
