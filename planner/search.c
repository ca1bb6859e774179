#include "planner/search.h"

#include "core/base/arena.h"
#include "core/base/stop.h"
#include "core/base/units.h"
#include "core/lower/lower.h"
#include "planner/baseline/baseline.h"
#include "planner/baseline/baselines.h"
#include "planner/bound/cluster.h"
#include "planner/candidate/robust.h"
#include "planner/candidate/search_context.h"
#include "planner/coarse/coarse.h"
#include "planner/exact/exact.h"
#include "planner/exact/repair.h"
#include "planner/experts/place.h"
#include "planner/local_search/local_search.h"
#include "planner/lp.h"
#include "planner/replan/warm_start.h"
#include "planner/search_check.h"
#include "planner/search_refine.h"
#include "planner/search_result.h"
#include "planner/spmd_stage/spmd_stage.h"
#include "planner/subsets.h"
#include "profiles/team.h"

#include <string.h>

enum { SPACES_MAX = 16 + PRESET_SPACES_MAX };

/* The strategies behind the coarse search and the baselines, in order. They share what those leave of one budget of counted work, which
 * grows with the evaluations: each takes a percentage of what is left, but at least one of the whole budget. Set on 55 questions of 2 to 12
 * devices (docs/measurements.md, 2026-11-26): 375, 300 and 200 ms for class, fine and refinement whatever was left gave plans up to 8 % slower
 * on 9 to 12 devices, 50 and at least 10 percent for fine one 0.4 % slower. */
enum strategy { PRESETS, PRESET_ALONE, CLASS, REPAIR, FINE, REFINEMENT, SUBSETS };
enum { WORK_MS = 1500 }; /* counted; with the coarse search about 2 CPU s */
/* Budget of the first round of a search on more than SEARCH_DEVICES_MAX devices, in default budgets: 1,250 evaluations. */
#define FIRST_ROUND 0.0625
static const struct {
    int32_t percent, least;
} strategies[] = {
    [PRESETS] = {0,
                 10}, /* beside a search: also of the work of the coarse search, if that is more */
    [PRESET_ALONE] = {0, 500}, /* HAP's plans on 8 GPUs take up to 400 */
    [CLASS] = {40, 8},
    [REPAIR] = {40, 40}, /* per microbatch size, where nothing of the class fits */
    [FINE] = {60, 15},
    [REFINEMENT] = {80, 8},
    [SUBSETS] = {50, 10}, /* presets on subsets of the devices */
};

/* Spaces of all microbatch sizes, and the candidates on them. */
struct search {
    struct search_context t;
    const struct job *job;
    const struct cluster *cluster;
    struct cost *cost;
    struct search_task task;
    struct coarse *coarse;        /* of the task: also the prices and estimates of the baselines */
    struct arena *spaces, *lists; /* lists: scratch of the exact search */
    struct space space[16];
    int32_t n_spaces, rounds; /* rounds: begun */
    int32_t n_tried; /* sizes of the coarse search; 0: it does not apply, or nothing fits */
    /* Of a search by money: its own incumbents, and options and incumbents of the search by time that comes before. */
    struct incumbents money, timed, symmetric; /* symmetric: of the coarse search apart */
    struct search_options by_time;
    struct warm_plans warm; /* of the warm start's plan, if any */
};

static bool is_large(const struct search *q)
{
    return !q->t.o->baseline && q->cluster->n_devices > SEARCH_DEVICES_MAX;
}

/* The limit of work from here on is that of a strategy; 0: no limit. Presets are scored once in all rounds. Few devices have the work of the
 * default budget, however few evaluations are asked for: a proof needs the tables. */
static void begin(struct search *q, enum strategy k)
{
    struct search_context *t = &q->t;
    double times = k == PRESETS ? 1 : t->budget;
    if (!is_large(q) && times < 1) times = 1;
    int64_t all = (int64_t)(1e6 * WORK_MS * times), now = scorer_work(t->scorer),
            left = units_max(all - now, 0) / 100 * strategies[k].percent;
    if (k == PRESETS) all = units_max(all, now);
    bool limited = !t->o->exhaustive && times <= 1000;
    t->work_end = limited ? now + units_max(left, all / 100 * strategies[k].least) : 0;
}

static enum status make_spaces(struct search *q, const int64_t *sizes, int32_t n, struct error *err)
{
    for (int32_t i = 0; i < n && !search_context_stopped(&q->t); i++) {
        TRY(space_make(q->spaces, q->job, q->cluster, q->cost, sizes[i], q->t.lower,
                       &q->space[q->n_spaces++], err));
        search_context_report(&q->t);
    }
    return OK;
}

/* Searches the class; if nothing of it fits, repairs the nearest miss. */
static enum status search_class(struct search *q, struct error *err)
{
    struct search_context *t = &q->t;
    begin(q, CLASS);
    TRY(exact_search(t, q->lists, q->space, q->n_spaces, err));
    t->exhausted = t->evaluations_left <= 0;
    t->worked_out = search_context_over(t) && !t->exhausted && !t->interrupted;
    for (int32_t i = 0; i < q->n_spaces && !t->incumbents.n && !search_context_stopped(t); i++) {
        begin(q, REPAIR);
        TRY(repair_try(t, q->lists, &q->space[i], err));
    }
    return OK;
}

/* After a search by named schedules: orders of the incumbents. */
static enum status refine_kept(struct search *q, struct error *err)
{
    begin(q, REFINEMENT);
    return search_refine(&q->t, q->cluster, q->space, q->n_spaces, err);
}

static void put_bound(const struct search *q, struct search_result *out,
                      const struct bound_certificate *b)
{
    out->lower_bound_ns = b->lower_bound_ns;
    out->binding = b->binding;
    out->bound_class = b->class_text;
    out->equal_bound_ns = q->t.equal_bound_ns, out->equal_binding = q->t.equal_binding;
    out->gap = bound_gap(out->plans[0].iteration_ns, b->lower_bound_ns);
    out->lower_cost = b->lower_cost;
    out->cost_gap = bound_cost_gap(out->plans[0].cost, b->lower_cost);
}

static int32_t all_spaces(const struct search *q, const struct space *out[SPACES_MAX])
{
    int32_t n = 0;
    for (int32_t i = 0; i < q->n_spaces; i++) out[n++] = &q->space[i];
    for (int32_t i = 0; i < q->t.n_presets; i++) out[n++] = q->t.preset[i];
    return n;
}

/* Local search from these plans, if its work suffices for one plan, then refinement of the best of all. */
static enum status search_fine(struct search *q, const struct incumbents *from, struct error *err)
{
    if (q->cluster->n_devices > LOCAL_SEARCH_STAGES_DEVICES) return OK;
    begin(q, FINE);
    bool some = !q->t.work_end || scorer_work(q->t.scorer) + q->t.whole_ns <= q->t.work_end;
    if (some) TRY(local_search_incumbents(&q->t, from, q->space, q->n_spaces, err));
    if (some) TRY(refine_kept(q, err));
    q->t.work_end = 0;
    return OK;
}

/* Behind the class: from its best plans and those of other searches (NULL: none). */
static enum status improve_class(struct search *q, const struct incumbents *others,
                                 struct search_result *out, struct error *err)
{
    struct search_context *t = &q->t;
    struct incumbents from;
    if (t->incumbents.n) out->class_ns = t->incumbents.plans[0].iteration_ns;
    incumbents_init(&from, t->arena, INCUMBENTS_MIN, t->o, q->cluster);
    incumbents_add_all(&from, &t->incumbents);
    if (others) incumbents_add_all(&from, others);
    return search_fine(q, &from, err);
}

/* Sets the lower bound and the gap of the first plan: of the narrowest class of stages with all plans found, from `stages` on. */
static enum status certify_from(struct search *q, enum bound_stages stages,
                                struct search_result *out, struct error *err)
{
    struct bound_certificate b;
    const struct space *spaces[SPACES_MAX];
    int32_t n = all_spaces(q, spaces);
    const volatile sig_atomic_t *watched =
        stop_watch(NULL); /* a bound takes no time worth stopping */
    enum status st = OK;
    for (; n && st == OK && stages <= BOUND_STAGES_ANY; stages++) {
        st = bound_cluster(q->t.arena, q->cluster, q->cost, spaces, n, stages,
                           incumbents_max_ns(q->t.o), &b, err);
        if (st == ERR_INFEASIBLE && stages < BOUND_STAGES_ANY) {
            st = OK; /* no device holds some layer alone */
            continue;
        }
        if (st == OK) put_bound(q, out, &b);
        if (q->job->model.measured || !search_result_outside(out, stages)) break;
    }
    stop_watch(watched);
    return st;
}

static enum status certify(struct search *q, struct search_result *out, struct error *err)
{
    const struct bound_certificate none = {.binding = "no bound was computed", .class_text = ""};
    const struct incumbents *k = &q->t.incumbents;
    if (k->n && !q->n_spaces && !q->t.n_presets) /* the search was stopped early */
        TRY(space_make(q->spaces, q->job, q->cluster, q->cost, k->plans[0].plan.microbatch,
                       q->t.lower, &q->space[q->n_spaces++], err));
    put_bound(q, out, &none);
    return certify_from(q, BOUND_STAGES_WHOLE, out, err);
}

/* Of measured layers: stages on all numbers of GPUs that were measured. */
static enum status certify_measured(struct search *q, struct search_result *out, struct error *err)
{
    struct bound_certificate b;
    const volatile sig_atomic_t *watched = stop_watch(NULL);
    enum status st = coarse_measured_bound(q->coarse, &b, err);
    stop_watch(watched);
    if (st == OK) put_bound(q, out, &b);
    return st;
}

/* Up to SPACE_TABLES_MAX devices: a part of the class, and local search around it and the results of the coarse search. */
static enum status search_around(struct search *q, struct search_result *out, struct error *err)
{
    struct search_context *t = &q->t;
    if (q->cluster->n_devices > SPACE_TABLES_MAX) return OK;
    scorer_quick(t->scorer, false);
    if (!q->n_spaces) TRY(make_spaces(q, q->task.sizes, q->task.n_sizes, err));
    begin(q, CLASS);
    TRY(exact_search(t, q->lists, q->space, q->n_spaces, err));
    return improve_class(q, NULL, out, err);
}

static void keep_warm(struct search *q)
{
    for (int32_t i = 0; i < q->warm.n; i++)
        incumbents_add(&q->t.incumbents, &q->warm.plans[i].plan, q->warm.plans[i].iteration_ns);
}

static struct baselines_request request_of(const struct search *q, int32_t n_grouped)
{
    return (struct baselines_request){
        .task = &q->task, .coarse = q->coarse, .n_grouped = n_grouped};
}

/* The baselines, or the one requested; scored once. found: plans of the coarse search. */
static enum status score_presets(struct search *q, const struct incumbents *found,
                                 struct search_result *out, struct error *err)
{
    struct search_context *t = &q->t;
    struct baselines_request r = request_of(q, q->n_tried ? q->n_tried : q->task.n_sizes);
    if (found->n && t->o->objective == OBJECTIVE_TIME) r.known_ns = found->plans[0].iteration_ns;
    begin(q, t->o->baseline ? PRESET_ALONE : PRESETS);
    enum status st = baselines_score(t, &r, out, err);
    t->work_end = 0;
    return st;
}

/* Parts of the cluster, and local search behind them: always, or where a part has a better plan. */
static enum status search_parts(struct search *q, bool always, struct error *err)
{
    struct search_context *t = &q->t;
    struct baselines_request r = request_of(q, q->n_tried);
    struct search_plan before = {.iteration_ns = INT64_MAX};
    if (t->incumbents.n) before = t->incumbents.plans[0];
    begin(q, SUBSETS);
    TRY(subsets_search(t, &r, err));
    bool better =
        t->incumbents.n && incumbents_better(&t->incumbents, &t->incumbents.plans[0], &before);
    return always || better ? search_fine(q, &t->incumbents, err) : OK;
}

/* Scores the presets behind the coarse search of the first round, whose best plan limits their settings. */
static enum status search_teams(struct search *q, struct search_result *out, struct error *err)
{
    struct search_context *t = &q->t;
    TRY(coarse_search(q->coarse, &q->n_tried, err));
    if (q->rounds++) return OK;
    TRY(score_presets(q, &t->incumbents, out, err));
    if (t->incumbents.n) out->class_ns = t->incumbents.plans[0].iteration_ns;
    return OK;
}

/* All strategies with the budgets of a round, from the incumbents of the rounds before. */
static enum status search_whole(struct search *q, struct search_result *out, struct error *err)
{
    struct search_context *t = &q->t;
    TRY(search_teams(q, out, err));
    TRY(search_around(q, out, err));
    bool apart = q->cluster->n_devices > SPACE_TABLES_MAX; /* spaces also of the bound */
    if (apart && !q->n_spaces)
        TRY(make_spaces(q, q->task.sizes, q->n_tried ? q->n_tried : q->task.n_sizes, err));
    baselines_keep(t, out);
    keep_warm(q);
    return search_parts(q, apart, err);
}

typedef enum status strategy_pass(struct search *q, struct search_result *out, struct error *err);

/* A pass of a search by money as one by time: the plan of the search by time is never cheaper than that by money, because its plans are candidates
 * of both. The evaluations are those of each. */
static enum status by_time_first(struct search *q, strategy_pass *pass, struct search_result *out,
                                 struct error *err)
{
    struct search_context *t = &q->t;
    const struct search_options *o = t->o;
    int64_t evaluations = t->evaluations_left;
    if (!incumbents_by_money(o)) return pass(q, out, err);
    incumbents_add_all(&q->timed, &t->incumbents); /* of a warm start */
    q->money = t->incumbents, q->timed.also = &q->money;
    t->incumbents = q->timed, t->o = &q->by_time;
    enum status st = pass(q, out, err);
    q->timed = t->incumbents, t->incumbents = q->money, t->o = o;
    t->evaluations_left = evaluations;
    return st;
}

static enum status search_round(struct search *q, struct search_result *out, struct error *err)
{
    TRY(by_time_first(q, search_whole, out, err));
    if (!incumbents_by_money(q->t.o)) return OK;
    TRY(search_around(q, out, err));
    return search_parts(q, q->cluster->n_devices > SPACE_TABLES_MAX, err);
}

/* Rounds with budgets of FIRST_ROUND, 1, 2, 4 … default budgets, up to that of the search. A larger budget adds rounds and changes none, so its
 * plan is never slower. No round follows one of the default budget or more that ended before its budget was spent. */
static enum status search_rounds(struct search *q, struct search_result *out, struct error *err)
{
    struct search_context *t = &q->t;
    double last = t->budget;
    bool limited = true;
    for (double b = FIRST_ROUND; (b == FIRST_ROUND || b <= last) && limited; b = b < 1 ? 1 : 2 * b) {
        t->budget = b, t->evaluations_left = (int64_t)(b * SEARCH_EVALUATIONS);
        t->left_by_evaluations = t->left_by_work = false;
        TRY(search_round(q, out, err));
        limited = b < 1 || t->left_by_evaluations || t->left_by_work;
        if (search_context_stopped(t)) return OK;
    }
    return OK;
}

/* Any number of devices: teams of equal pipelines (planner/coarse/coarse.h). */
static enum status search_large(struct search *q, const struct profile *p,
                                struct search_result *out, struct error *err)
{
    q->t.truncated = true;
    TRY(search_rounds(q, out, err));
    coarse_class_bound(q->coarse);
    TRY(robust_first(&q->t, p, &out->robust, err));
    TRY(search_result_conclude(&q->t, q->job, q->cluster, p, out, err));
    return q->job->model.measured ? certify_measured(q, out, err) : certify(q, out, err);
}

/* The warm start suffices, so no search follows; the bound covers its microbatch size only. */
static enum status finish_warm(struct search *q, const struct profile *p,
                               const struct bound_certificate *b, struct search_result *out,
                               struct error *err)
{
    for (int32_t i = 0; i < out->n_baselines; i++)
        out->baselines[i].why = "not tried beside a warm start; --baseline tries it";
    out->start = SEARCH_START_ADAPTED;
    out->class_ns = q->t.incumbents.plans[0].iteration_ns;
    q->t.truncated = true;
    TRY(search_result_conclude(&q->t, q->job, q->cluster, p, out, err));
    put_bound(q, out, b);
    return OK;
}

/* The class of plans on single devices, and local searches around the best plans, of the coarse search too. An eighth of the evaluations is reserved
 * for what follows the class. */
static enum status search_small(struct search *q, struct search_result *out, struct error *err)
{
    struct search_context *t = &q->t;
    int64_t reserved = t->evaluations_left / 8;
    t->evaluations_left -= reserved;
    begin(q, CLASS);
    TRY(warm_start_class(t, q->space, q->n_spaces, &q->warm, err));
    TRY(search_class(q, err));
    t->evaluations_left = (t->exhausted ? 0 : t->evaluations_left) + reserved;
    TRY(improve_class(q, &q->symmetric, out, err));
    baselines_keep(t, out);
    incumbents_add_all(&t->incumbents, &q->symmetric);
    keep_warm(q);
    return search_parts(q, false, err);
}

/* The coarse search comes first, because its best plan limits the settings of the baselines. */
static enum status search_few(struct search *q, struct search_result *out, struct error *err)
{
    struct search_context *t = &q->t;
    if (!t->o->baseline) TRY(coarse_search_apart(q->coarse, &q->n_tried, &q->symmetric, err));
    TRY(score_presets(q, &q->symmetric, out, err));
    TRY(make_spaces(q, q->task.sizes, q->task.n_sizes, err));
    return t->o->baseline ? OK : search_small(q, out, err);
}

static enum status search_exact(struct search *q, const struct profile *p,
                                struct search_result *out, struct error *err)
{
    TRY(by_time_first(q, search_few, out, err));
    if (incumbents_by_money(q->t.o) && !q->t.o->baseline) TRY(search_small(q, out, err));
    coarse_class_bound(q->coarse);
    TRY(search_result_conclude(&q->t, q->job, q->cluster, p, out, err));
    return certify(q, out, err);
}

static enum status search_all(struct search *q, const struct profile *p, struct search_result *out,
                              struct error *err)
{
    int64_t *sizes = ARENA_ARRAY(q->t.arena, int64_t, 16);
    int32_t n_sizes = search_check_sizes(q->job, q->t.o->from, sizes);
    q->task = (struct search_task){q->job, q->cluster, p, sizes, n_sizes, NULL};
    q->coarse = coarse_new(&q->t, &q->task, q->t.o->baseline);
    search_context_report(&q->t);
    if (q->t.o->from && !q->t.o->baseline) {
        struct warm_task w = {q->job, q->cluster, p, sizes, n_sizes};
        struct bound_certificate b = {.binding = "", .class_text = ""};
        bool alone = is_large(q) && q->t.o->evaluations <= 0;
        out->start = SEARCH_START_SEARCHED;
        TRY(warm_start_search(&q->t, &w, &q->warm, alone ? &b : NULL, err));
        bool enough =
            q->warm.enough || (search_context_stopped(&q->t) && !spmd_stage_in_plan(q->t.o->from));
        if (alone && q->warm.n && enough) {
            keep_warm(q);
            return finish_warm(q, p, &b, out, err);
        }
        if (!is_large(q))
            q->t.incumbents.n = 0; /* may be outside every class: warm_start_class, keep_warm */
    }
    return is_large(q) ? search_large(q, p, out, err) : search_exact(q, p, out, err);
}

static enum status conclude_early(struct search *q, const struct profile *p,
                                  struct search_result *out, struct error *err)
{
    q->t.interrupted = true;
    if (!q->t.o->baseline) baselines_keep(&q->t, out);
    keep_warm(q);
    TRY(search_result_conclude(&q->t, q->job, q->cluster, p, out, err));
    return certify(q, out, err);
}

static enum status search_job(struct arena *a, const struct job *j, const struct cluster *c,
                              const struct profile *p, const struct search_options *o,
                              const struct search_result *even, struct search_result *out, struct error *err)
{
    struct search_options own = *o;
    bool whole = optimizer_needs_norms(&j->optimizer) || o->deterministic;
    own.no_zero |= whole, own.no_sharding |= whole;
    o = &own;
    search_result_begin(a, out);
    struct lower_options lower = {.check_memory = true};
    TRY(team_fused(a, c, &lower, err));
    TRY(search_check_objective(c, o, err));
    TRY(search_check_memory(j, c, err));
    struct cost *k = cost_new(a, p, c);
    TRY(search_check_offload(k, err));
    int64_t budget = o->evaluations > 0 ? o->evaluations : SEARCH_EVALUATIONS;
    struct search q = {
        .t = {.arena = a,
              .o = o,
              .lower = &lower,
              .even = even,
              .scorer = scorer_new(&lower),
              .budget = (double)budget / SEARCH_EVALUATIONS,
              .evaluations_left = budget},
        .job = j,
        .cluster = c,
        .cost = k,
        .spaces = arena_new(),
        .lists = arena_new()};
    incumbents_init(&q.t.incumbents, a, o->top > INCUMBENTS_MIN ? o->top : INCUMBENTS_MIN, o, c);
    q.by_time = *o, q.by_time.objective = OBJECTIVE_TIME, q.by_time.min_rate = q.by_time.max_cost = 0;
    incumbents_init(&q.timed, a, q.t.incumbents.most, &q.by_time, c);
    scorer_deterministic(q.t.scorer, o->deterministic), q.t.spmd_stage = spmd_stage_new();
    const volatile sig_atomic_t *before = stop_watch(o->stop);
    struct error why = {0};
    enum status st = search_all(&q, p, out, &why);
    stop_watch(before);
    if (st != OK)
        st = st == ERR_INTERRUPTED ? conclude_early(&q, p, out, err)
                                   : error_set(err, st, "%s", search_result_why(a, c, st, why.text));
    coarse_free(q.coarse);
    spmd_stage_free(q.t.spmd_stage);
    scorer_free(q.t.scorer);
    lp_thread_end();
    arena_free(q.lists);
    arena_free(q.spaces);
    return st;
}

/* Behind a search with the popularity of the experts, whose shards are of the model's order, the plans of one with equal shares, which
 * comes near what placing them by popularity makes of a sharded stage (planner/experts/place.h). */
enum status search_plans(struct arena *a, const struct job *j, const struct cluster *c,
                         const struct profile *p, const struct search_options *o,
                         struct search_result *out, struct error *err)
{
    struct search_result even = {0};
    struct job *plain = arena_copy(a, j, sizeof *j);
    j = experts_unplaced(a, j);
    if (!experts_known(j)) return search_job(a, j, c, p, o, NULL, out, err);
    struct search_options more = *o;
    plain->model.n_expert_blocks = 0, plain->model.expert_blocks = NULL;
    if (more.top < INCUMBENTS_MIN) more.top = INCUMBENTS_MIN;
    enum status st = search_job(a, plain, c, p, &more, NULL, &even, err);
    if (st != OK && st != ERR_INTERRUPTED && st != ERR_INFEASIBLE) return st;
    TRY(search_job(a, j, c, p, o, &even, out, err));
    out->evaluated += even.evaluated, out->candidates += even.candidates;
    return OK;
}
