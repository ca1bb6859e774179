/* tools/cmd_whatif.c - changed clusters: for each change the time of the old plan and of the best plan found. */
#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/parallel.h"
#include "planner/search.h"
#include "planner/search_check.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/objective.h"
#include "tools/predict.h"
#include "tools/print/metrics.h"
#include "tools/print/variants.h"
#include "tools/team/replan.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    EVALUATIONS = 2000
}; /* budget of a variant of few devices: small, because there are many variants */

struct request {
    const char *plan, *db, *latency;
    int64_t profile, evaluations, threads;
    bool together, search;
    struct objective_request aim;
    struct texts add, without, link, offload, slow;
    struct run_length length;
};

static volatile sig_atomic_t *stop;

static double wall_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- one variant --- */

/* A plan that takes this long as one of a search. */
static struct search_plan plan_of(const struct plan *p, int64_t ns)
{
    return (struct search_plan){.plan = *p, .iteration_ns = ns, .cost = plan_cost(p, ns)};
}

static int32_t offloading_types(const struct cluster *c)
{
    int32_t n = 0;
    for (int32_t i = 0; i < c->n_types; i++) n += c->types[i].offloads || c->types[i].offloads_activations;
    return n;
}

/* Whether a variant is also planned without the old plan: with --search; by cost where repairs would keep to the old plan's devices, although
 * the cheapest plan may be on a few of them; where memory is freed, because plans that it allows are of other kinds. */
static bool is_searched(const struct request *q, const struct variant *v)
{
    return q->search || (q->offload.count && offloading_types(&v->team)) || (q->aim.objective == OBJECTIVE_COST && !q->evaluations && v->team.n_devices > SEARCH_DEVICES_MAX);
}

/* From the old plan; where it is searched also without it, as `plan` does: the better plan. */
static enum status search_variant(struct arena *a, const struct request *q,
                                  const struct search_options *o, const struct plan *p,
                                  const struct profile *profile, struct variant *v,
                                  struct search_result *out, struct error *err)
{
    enum status st = search_plans(a, &p->job, &v->team, profile, o, out, err);
    if (!is_searched(q, v) || (st != OK && st != ERR_INFEASIBLE && st != ERR_INPUT)) return st;
    struct search_options anew = *o;
    struct search_result r = {0};
    struct error why = {0};
    anew.from = NULL, anew.evaluations = q->evaluations;
    enum status found = search_plans(a, &p->job, &v->team, profile, &anew, &r, &why);
    int64_t evaluated = out->evaluated + r.evaluated;
    if (found == OK && objective_better(o, &r.plans[0], st == OK ? &out->plans[0] : NULL)) {
        *out = r;
        st = OK;
    }
    out->evaluated = evaluated;
    if (*stop) out->stopped = "interrupted";
    return st;
}

static enum status plan_variant(struct arena *a, const struct request *q, int32_t threads,
                                const struct plan *p, const struct profile *profile,
                                struct variant *v, struct error *err)
{
    struct plan *old = ARENA_ARRAY(a, struct plan, 1);
    struct search_options o = {
        .from = p, .top = 1, .threads = threads, .evaluations = q->evaluations, .stop = stop};
    struct search_result r = {0};
    struct error why = {0};
    objective_put(&q->aim, &o);
    if (!o.evaluations && v->team.n_devices <= SEARCH_DEVICES_MAX) o.evaluations = EVALUATIONS;
    TRY(replan_as_it_stands(a, p, &p->job, &v->team, profile, old, &v->old_ns, NULL, &v->old_why, err));
    double start = wall_seconds();
    enum status st = search_variant(a, q, &o, p, profile, v, &r, &why);
    v->search_s = wall_seconds() - start;
    if (st != OK && st != ERR_INFEASIBLE && st != ERR_INPUT)
        return error_set(err, st, "%s: %s", v->name, why.text);
    bool worse = false; /* the plan found; the old one may be of a larger class */
    if (v->old_ns) {
        struct search_plan x = plan_of(old, v->old_ns);
        bool inside = objective_better(&o, &x, NULL);
        v->stays = inside && (st != OK || !objective_better(&o, &r.plans[0], &x));
        worse = inside && st == OK && objective_better(&o, &x, &r.plans[0]);
    }
    v->stopped = "end";
    if (st == OK) {
        v->best = &r.plans[0].plan;
        v->best_ns = r.plans[0].iteration_ns;
        v->exact = r.exact && !worse;
        v->stopped = r.stopped;
        v->evaluated = r.evaluated;
        v->lower_bound_ns = r.lower_bound_ns;
        v->lower_cost = r.lower_cost;
        v->binding = r.binding;
    } else {
        v->why = arena_strdup(a, why.text);
    }
    if (v->stays) v->best = old, v->best_ns = v->old_ns;
    if (v->best_ns < v->lower_bound_ns) v->lower_bound_ns = 0; /* outside the class of the bound */
    return OK;
}

/* --- plans of other variants --- */

/* Whether a plan is better than a variant's. */
static bool is_better(const struct request *q, const struct plan *p, int64_t ns,
                      const struct variant *v)
{
    struct search_options o = {.evaluations = 0};
    objective_put(&q->aim, &o);
    struct search_plan x = plan_of(p, ns), own = {.iteration_ns = 0};
    if (v->best_ns) own = plan_of(v->best, v->best_ns);
    return objective_better(&o, &x, v->best_ns ? &own : NULL);
}

/* The plan of another variant, if it is a better one of this variant too. */
static enum status adopt(const struct request *q, struct variant *v, const struct plan *p,
                         const struct profile *profile, struct error *err)
{
    struct plan *own = ARENA_ARRAY(v->arena, struct plan, 1);
    const char *why;
    int64_t ns;
    TRY(replan_as_it_stands(v->arena, p, &p->job, &v->team, profile, own, &ns, NULL, &why, err));
    if (!ns || !is_better(q, own, ns, v)) return OK;
    v->best = own, v->best_ns = ns, v->stays = v->exact = false;
    if (ns < v->lower_bound_ns) v->lower_bound_ns = 0;
    return OK;
}

/* Every variant is offered the plans of the better ones, so that a device more or a faster link never gives a worse plan than the
 * cluster without it. O(n²) simulations at most. */
static enum status share_plans(const struct request *q, struct variant *v, size_t n,
                               const struct profile *profile, struct error *err)
{
    const struct plan **found = ARENA_ARRAY(v->arena, const struct plan *, n);
    for (size_t i = 0; i < n; i++) found[i] = v[i].best_ns && !v[i].stays ? v[i].best : NULL;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n && !*stop; k++)
            if (found[k] && k != i && is_better(q, v[k].best, v[k].best_ns, &v[i]))
                TRY(adopt(q, &v[i], found[k], profile, err));
    return OK;
}

/* Variants are independent, so each has one thread; the remaining threads are used within the searches. */
struct planning {
    const struct request *q;
    const struct plan *plan;
    const struct profile *profile;
    struct variant *variants;
    size_t n;
};

static void plan_one(void *user, int64_t index, int32_t thread)
{
    const struct planning *x = user;
    struct variant *v = &x->variants[index];
    int64_t spare = x->q->threads / (int64_t)x->n;
    (void)thread;
    if (*stop) return;
    log_progress("%lld of %zu: %s", (long long)index + 1, x->n, v->name);
    v->arena = arena_new();
    v->status = plan_variant(v->arena, x->q, spare > 1 ? (int32_t)spare : 1, x->plan, x->profile, v,
                             &v->err);
}

/* Number of variants planned, from the first on; the failure is the first one in the order of variants, not of time. */
static enum status plan_variants(struct planning *x, size_t *done, struct error *err)
{
    int64_t most = (int64_t)x->n;
    parallel_each(most, (int32_t)(x->q->threads < most ? x->q->threads : most), plan_one, x);
    log_progress_end();
    for (*done = 0; *done < x->n && x->variants[*done].arena; (*done)++)
        if (x->variants[*done].status != OK) {
            *err = x->variants[*done].err;
            return x->variants[*done].status;
        }
    return OK;
}

static enum status make_change(struct arena *a, const struct profile *profile,
                               const struct cluster *c, const struct team_change *change,
                               struct cluster *out, struct error *err)
{
    if (change->kind == TEAM_LINK) return team_relink(a, profile, c, change, out, err);
    return team_edit(a, c, change, out, err);
}

/* The cluster as it is, each change alone, and with --together all of them: additions first, because the others may name
 * added nodes. */
static enum status make_variants(struct arena *a, const struct request *q, const struct plan *p,
                                 const struct profile *profile, struct variant *out, size_t *n,
                                 struct error *err)
{
    const struct {
        enum team_change_kind kind;
        const char *word;
        const struct texts *texts;
    } lists[] = {{TEAM_ADD, "add", &q->add},
                 {TEAM_LINK, "link", &q->link},
                 {TEAM_OFFLOAD, "offload", &q->offload},
                 {TEAM_SLOW, "slow", &q->slow},
                 {TEAM_WITHOUT, "without", &q->without}};
    struct cluster all = p->cluster, stated = p->cluster;
    if (q->add.count) {
        TRY(team_state_links(a, profile, &stated, err));
        all = stated;
    }
    out[(*n)++] = (struct variant){.name = "as it is", .team = p->cluster};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++)
        for (size_t i = 0; i < lists[k].texts->count; i++) {
            struct team_change change = {
                lists[k].kind, lists[k].texts->items[i],
                lists[k].kind == TEAM_LINK && !strchr(lists[k].texts->items[i], ',') ? q->latency
                                                                                     : NULL};
            struct variant v = {.name = arena_printf(a, "%s %s", lists[k].word, change.text)};
            TRY(make_change(a, profile, change.kind == TEAM_ADD ? &stated : &p->cluster, &change,
                            &v.team, err));
            if (q->together && change.kind != TEAM_WITHOUT)
                TRY(make_change(a, profile, &all, &change, &all, err));
            out[(*n)++] = v;
        }
    if (q->together && q->without.count) {
        struct team_change gone = {TEAM_WITHOUT, replan_joined(a, &q->without), NULL};
        TRY(team_edit(a, &all, &gone, &all, err));
    }
    if (q->together) out[(*n)++] = (struct variant){.name = "together", .team = all};
    return OK;
}

/* --- the verb --- */

static void warn_of_idle(struct arena *a, const struct plan *p, const struct variant *v, size_t n)
{
    const char *idle = NULL;
    for (size_t i = 0; i < n && !idle; i++) idle = common_offload_idle(a, &p->job, &v[i].team);
    if (idle) log_warn("offload: %s", idle);
}

/* Whether plans of some variant are repairs of the old one only. */
static bool only_repaired(const struct request *q, const struct variant *v, size_t n)
{
    bool many = false;
    for (size_t i = 0; i < n; i++) many |= v[i].team.n_devices > SEARCH_DEVICES_MAX && !is_searched(q, &v[i]);
    return many && !q->evaluations;
}

/* done of n variants were planned. */
static enum status report(struct arena *a, const struct request *q, bool as_json,
                          const struct plan *old, const struct variant *v, size_t done, size_t n,
                          const struct profile *profile, struct error *err)
{
    const struct variants_report r = {q->plan, old, profile, (enum objective)q->aim.objective,
                                      only_repaired(q, v, done)};
    if (as_json)
        print_variants_json(a, &r, v, done);
    else
        print_variants(a, &r, v, done);
    for (size_t i = 0; i < done && !*stop; i++)
        if (v[i].best_ns) return OK;
    fflush(stdout);
    if (!*stop) return error_set(err, ERR_INFEASIBLE, "no plan for any variant: %s", v[0].why);
    return error_set(err, ERR_INTERRUPTED, "interrupted: %zu of %zu variants, the last cut short",
                     done, n);
}

static enum status whatif(struct arena *a, void *request, const struct common *common,
                          struct error *err)
{
    const struct request *q = request;
    struct plan p;
    struct profile profile;
    size_t n = 0, done = 0;
    int64_t tokens;
    size_t n_changes = q->add.count + q->without.count + q->link.count + q->offload.count + q->slow.count;
    if (!n_changes)
        return error_set(
            err, ERR_USAGE,
            "whatif needs a change: --add NODE, --without DEVICE, --link A:B=25GB/s, --slow DEVICE=2 or --offload TYPE");
    struct search_options o = {.evaluations = 0};
    objective_put(&q->aim, &o);
    TRY(common_old_plan(a, q->plan, &p, err));
    TRY(search_check_objective(&p.cluster, &o, err));
    TRY(print_run_length(&q->length, &p.job, &tokens, err));
    if (tokens) p.job.run_tokens = tokens;
    TRY(common_profile(a, &p.cluster, q->db, q->profile, &profile, err));
    struct variant *v = ARENA_ARRAY(a, struct variant, n_changes + 2);
    TRY(make_variants(a, q, &p, &profile, v, &n, err));
    warn_of_idle(a, &p, v, n);
    stop = common_stop_on_end_signals();
    struct planning all = {q, &p, &profile, v, n};
    enum status st = plan_variants(&all, &done, err);
    if (st == OK && done) st = share_plans(q, v, done, &profile, err);
    for (size_t i = 0; i < done && st == OK; i++)
        if (v[i].best_ns) predict_metrics(v[i].arena, v[i].best, &profile, v[i].best_ns, 0, &v[i].metrics);
    if (st == OK) st = report(a, q, common->json, &p, v, done, n, &profile, err);
    for (size_t i = 0; i < n; i++)
        if (v[i].arena) arena_free(v[i].arena);
    return st;
}

static const struct option options[] = {
    {.name = "PLAN", ARGUMENT_AT(plan), .help = "plan file, e.g. plan.yaml"},
    {.name = "add",
     TEXTS_AT(add),
     .unit = "[NAME=]NODE",
     .help = "node added: a copy of the cluster's node NODE, or of NODE in another cluster file "
             "(FILE:NODE), e.g. d=rack.yaml:r0"},
    {.name = "without",
     TEXTS_AT(without),
     .unit = "DEVICE,...",
     .help = "devices or nodes removed, e.g. a.1,b"},
    {.name = "link",
     TEXTS_AT(link),
     .unit = "A:B=RATE",
     .help =
         "changed or new link between nodes, devices or switches A and B: bandwidth and, behind "
         "a comma, latency, e.g. a:b=25GB/s,10us"},
    OPTION_OFFLOAD(offload),
    {.name = "slow",
     TEXTS_AT(slow),
     .unit = "DEVICE=FACTOR",
     .help = "device, or all devices of a node, whose operators take FACTOR times as long, because it is throttled or shared, e.g. b.0=2"},
    {.name = "latency",
     TEXT_AT(latency),
     .unit = "TIME",
     .needs = "link",
     .help = "latency of every --link that states none, e.g. 10us",
     .preset = "that of the old link"},
    {.name = "together", FLAG_AT(together), .help = "add a variant with all changes at once"},
    OPTIONS_OBJECTIVE(aim),
    OPTION_DB(db),
    OPTION_PROFILE(profile),
    {.name = "evaluations",
     INT_AT(evaluations),
     .unit = "N",
     .min = 0,
     .max = 1e9,
     .help = "budget of simulated candidates of each variant, e.g. 5000" BUDGET_ROUNDS,
     .preset = "0: 2000; beyond 8 devices the old plan is adapted and improved, by cost also a search follows"},
    {.name = "search",
     FLAG_AT(search),
     .help = "plan each changed cluster anew too, as musher plan does, and take the faster plan: "
             "never slower than musher plan, and as long"},
    {.name = "threads",
     INT_AT(threads),
     .unit = "N",
     .min = 1,
     .max = 1024,
     .help = "threads, e.g. 8: one for each variant, the others within their searches; the result "
             "does not depend on them"},
    OPTION_TOKENS(length),
    OPTION_IMAGES(length),
    {0}};

const struct verb cmd_whatif = {
    .name = "whatif",
    .summary = "compare a changed cluster: devices removed or slowed down, nodes added, links changed, state offloaded",
    .about =
        "Every change is one variant. For each the output states the time of PLAN as it is and "
        "the time of the best plan found for the changed cluster, and the rate, MFU, cost and use "
        "of "
        "devices of that plan.",
    .options = options,
    .examples = {"# three variants beside the cluster as it is",
                 "musher whatif plan.yaml --without c.0 --add b --link a:b=1GB/s",
                 "musher whatif plan.yaml --add d=rack.yaml:r0 --without a.1,b.0 --together",
                 "musher whatif plan.yaml --without c.0 --objective cost"},
    REQUEST(.threads = 1),
    .run = whatif,
};
