/* tools/cmd_whatif.c - changed clusters: for each change the time of the old plan and of the best plan found. */
#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/parallel.h"
#include "core/base/units.h"
#include "planner/search.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/predict.h"
#include "tools/print/metrics.h"
#include "tools/print/stated.h"
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
    struct texts add, without, link;
    struct run_length length;
};

struct variant {
    const char *name;
    struct cluster team;
    int64_t old_ns; /* the old plan simulated on the changed cluster; 0: impossible, see old_why */
    const char *old_why;
    int64_t best_ns; /* 0: no plan fits, for why */
    const char *why;
    const struct plan *best; /* the plan found, or the old plan if nothing faster was */
    bool stays;              /* best is the old plan */
    struct metrics metrics;  /* of best */
    int64_t lower_bound_ns;  /* 0: unknown */
    const char *binding, *stopped;
    bool exact;
    int64_t evaluated;
    double search_s;
    struct arena
        *arena; /* of its own, because variants are planned concurrently; NULL: not started */
    enum status status;
    struct error err;
};

static volatile sig_atomic_t *stop;

static double wall_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- one variant --- */

/* From the old plan; with --search also without it, as `plan` does: the faster plan. */
static enum status search_variant(struct arena *a, const struct request *q,
                                  const struct search_options *o, const struct plan *p,
                                  const struct profile *profile, struct variant *v,
                                  struct search_result *out, struct error *err)
{
    enum status st = search_plans(a, &p->job, &v->team, profile, o, out, err);
    if (!q->search || (st != OK && st != ERR_INFEASIBLE && st != ERR_INPUT)) return st;
    struct search_options anew = *o;
    struct search_result r = {0};
    struct error why = {0};
    anew.from = NULL, anew.evaluations = q->evaluations;
    enum status found = search_plans(a, &p->job, &v->team, profile, &anew, &r, &why);
    int64_t evaluated = out->evaluated + r.evaluated;
    if (found == OK && (st != OK || r.plans[0].iteration_ns < out->plans[0].iteration_ns)) {
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
    if (!o.evaluations && v->team.n_devices <= SEARCH_DEVICES_MAX) o.evaluations = EVALUATIONS;
    TRY(replan_as_it_stands(a, p, &p->job, &v->team, profile, old, &v->old_ns, &v->old_why, err));
    double start = wall_seconds();
    enum status st = search_variant(a, q, &o, p, profile, v, &r, &why);
    v->search_s = wall_seconds() - start;
    if (st != OK && st != ERR_INFEASIBLE && st != ERR_INPUT)
        return error_set(err, st, "%s: %s", v->name, why.text);
    v->stays = v->old_ns && (st != OK || v->old_ns <= r.plans[0].iteration_ns);
    v->stopped = "end";
    if (st == OK) {
        v->best = &r.plans[0].plan;
        v->best_ns = r.plans[0].iteration_ns;
        v->exact = r.exact && (!v->old_ns ||
                               v->old_ns >= v->best_ns); /* the old plan may be of a larger class */
        v->stopped = r.stopped;
        v->evaluated = r.evaluated;
        v->lower_bound_ns = r.lower_bound_ns;
        v->binding = r.binding;
    } else {
        v->why = arena_strdup(a, why.text);
    }
    if (v->stays) v->best = old, v->best_ns = v->old_ns;
    if (v->best_ns < v->lower_bound_ns) v->lower_bound_ns = 0; /* outside the class of the bound */
    return OK;
}

/* --- plans of other variants --- */

/* The plan of another variant, if it is a faster one of this variant too. */
static enum status adopt(struct variant *v, const struct plan *p, const struct profile *profile,
                         struct error *err)
{
    struct plan *own = ARENA_ARRAY(v->arena, struct plan, 1);
    const char *why;
    int64_t ns;
    TRY(replan_as_it_stands(v->arena, p, &p->job, &v->team, profile, own, &ns, &why, err));
    if (!ns || (v->best_ns && ns >= v->best_ns)) return OK;
    v->best = own, v->best_ns = ns, v->stays = v->exact = false;
    if (ns < v->lower_bound_ns) v->lower_bound_ns = 0;
    return OK;
}

/* Every variant is offered the plans of the faster ones, so that a device more or a faster link never gives a slower plan than the
 * cluster without it. O(n²) simulations at most. */
static enum status share_plans(struct variant *v, size_t n, const struct profile *profile,
                               struct error *err)
{
    const struct plan **found = ARENA_ARRAY(v->arena, const struct plan *, n);
    for (size_t i = 0; i < n; i++) found[i] = v[i].best_ns && !v[i].stays ? v[i].best : NULL;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n && !*stop; k++)
            if (found[k] && k != i && (!v[i].best_ns || v[k].best_ns < v[i].best_ns))
                TRY(adopt(&v[i], found[k], profile, err));
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

/* --- printing --- */

static int32_t devices_used(struct arena *a, const struct plan *p)
{
    return replan_mark(p, ARENA_ARRAY(a, bool, (size_t)p->cluster.n_devices));
}

static double gap_of(const struct variant *v)
{
    return (double)(v->best_ns - v->lower_bound_ns) / (double)v->lower_bound_ns;
}

/* Whether any device type has a price; otherwise there is no cost to print. */
static bool is_priced(const struct variant *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (int32_t t = 0; t < v[i].team.n_types; t++)
            if (v[i].team.types[t].priced) return true;
    return false;
}

static void put_ns(struct json *j, const char *key, int64_t ns)
{
    if (ns)
        json_put_int(j, key, ns);
    else
        json_put_null(j, key);
}

/* old: the plan that was asked about. The last variant has the device types of all. */
static void print_json(struct arena *a, const struct request *q, const struct plan *old,
                       const struct variant *v, size_t n, const struct profile *profile)
{
    struct json j;
    double search_s = 0;
    bool priced = is_priced(v, n);
    common_json_begin(&j);
    json_put_text(&j, "plan", q->plan);
    json_put_int(&j, "profile_id", profile->id);
    print_stated(a, &v[n - 1].team, &old->job, &j);
    json_put_list(&j, "variants");
    for (size_t i = 0; i < n; i++) {
        json_put_object(&j, NULL);
        json_put_text(&j, "name", v[i].name);
        put_ns(&j, "old_plan_ns", v[i].old_ns);
        if (v[i].old_why) json_put_text(&j, "old_plan_error", v[i].old_why);
        put_ns(&j, "iteration_ns", v[i].best_ns);
        if (v[i].why) json_put_text(&j, "why", v[i].why);
        json_put_int(&j, "devices", v[i].team.n_devices);
        if (v[i].best_ns) {
            json_put_int(&j, "devices_used", devices_used(a, v[i].best));
            put_ns(&j, "lower_bound_ns", v[i].lower_bound_ns);
            if (v[i].lower_bound_ns) json_put_double(&j, "gap", gap_of(&v[i]));
            if (v[i].lower_bound_ns) json_put_text(&j, "binding", v[i].binding);
            if (v[0].old_ns)
                json_put_double(&j, "speedup", (double)v[0].old_ns / (double)v[i].best_ns);
            print_metrics_json(&j, &v[i].metrics);
            if (priced) json_put_double(&j, "cost", plan_cost(v[i].best, v[i].best_ns));
            json_put_text(&j, "best", plan_describe(a, v[i].best));
            json_put_bool(&j, "stays", v[i].stays);
            json_put_bool(&j, "exact", v[i].exact);
        }
        json_put_int(&j, "evaluated", v[i].evaluated);
        json_put_text(&j, "stopped", v[i].stopped);
        json_close(&j);
        search_s += v[i].search_s;
    }
    json_close(&j);
    json_put_object_line(&j, "timing"); /* outside "same inputs, same bytes" */
    json_put_double(&j, "search_s", search_s);
    json_close(&j);
    common_json_end(&j);
}

static const char *cut(struct arena *a, const char *text, size_t most)
{
    return strlen(text) <= most ? text : arena_printf(a, "%s...", arena_strndup(a, text, most - 3));
}

static void print_row(struct arena *a, const struct variant *v, int width, int64_t base_ns,
                      bool priced)
{
    char text[32];
    printf("  %-*s %11s", width, v->name, v->old_ns ? units_print_ns(text, v->old_ns) : "-");
    if (!v->best_ns) {
        printf(" %11s  %s\n", "-", cut(a, v->why, 120));
        return;
    }
    printf(" %11s", units_print_ns(text, v->best_ns));
    if (base_ns)
        printf(" %8.2fx", (double)base_ns / (double)v->best_ns);
    else
        printf(" %9s", "-");
    if (v->lower_bound_ns)
        printf(" %6.1f %%", 100 * gap_of(v));
    else
        printf(" %8s", v->exact ? "exact" : "-");
    printf(" %5d of %-5d", (int)devices_used(a, v->best), (int)v->team.n_devices);
    double cost = plan_cost(v->best, v->best_ns);
    if (priced && cost > 0) printf(" %11.6g ", cost);
    if (priced && !(cost > 0)) printf(" %11s ", "-");
    printf(" %s%s\n", v->stays ? "the old plan: " : "", cut(a, plan_describe(a, v->best), 120));
}

/* Whether plans of some variant are repairs of the old one only. */
static bool only_repaired(const struct request *q, const struct variant *v, size_t n)
{
    bool many = false;
    for (size_t i = 0; i < n; i++) many |= v[i].team.n_devices > SEARCH_DEVICES_MAX;
    return many && !q->search && !q->evaluations;
}

static void print_text(struct arena *a, const struct request *q, const struct plan *old,
                       const struct variant *v, size_t n, const struct profile *profile)
{
    int width = 8;
    bool priced = is_priced(v, n);
    for (size_t i = 0; i < n; i++)
        if ((int)strlen(v[i].name) > width) width = (int)strlen(v[i].name);
    printf("predicted with %s%s\n", common_profile_label(a, profile),
           v[0].team.emulated ? ", for emulated devices" : "");
    print_stated(a, &v[n - 1].team, &old->job, NULL);
    printf("  %-*s %11s %11s %9s %8s %14s%s\n", width, "", "old plan", "best plan", "speed-up",
           "gap", "devices used", priced ? "  cost/iter." : "");
    for (size_t i = 0; i < n; i++) print_row(a, &v[i], width, v[0].old_ns, priced);
    for (size_t i = 0; i < n; i++)
        if (v[i].old_why)
            printf("  old plan cannot run (%s): %s\n", v[i].name, cut(a, v[i].old_why, 120));
    if (only_repaired(q, v, n))
        printf(
            "  best plan beyond %d devices: the old plan adapted; --search plans anew too, which "
            "may be faster\n",
            SEARCH_DEVICES_MAX);
    for (size_t i = 0; i < n; i++) {
        if (!v[i].best_ns) continue;
        printf("%s\n", v[i].name);
        print_metrics(a, &v[i].metrics);
    }
}

/* done of n variants were planned. */
static enum status report(struct arena *a, const struct request *q, bool as_json,
                          const struct plan *old, const struct variant *v, size_t done, size_t n,
                          const struct profile *profile, struct error *err)
{
    if (as_json)
        print_json(a, q, old, v, done, profile);
    else
        print_text(a, q, old, v, done, profile);
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
    if (!q->add.count && !q->without.count && !q->link.count)
        return error_set(
            err, ERR_USAGE,
            "whatif needs a change: --add NODE, --without DEVICE or --link A:B=25GB/s");
    TRY(common_plan(a, q->plan, &p, err));
    TRY(print_run_length(&q->length, &p.job, &tokens, err));
    if (tokens) p.job.run_tokens = tokens;
    TRY(common_profile(a, &p.cluster, q->db, q->profile, &profile, err));
    struct variant *v =
        ARENA_ARRAY(a, struct variant, q->add.count + q->without.count + q->link.count + 2);
    TRY(make_variants(a, q, &p, &profile, v, &n, err));
    stop = common_stop_on_end_signals();
    struct planning all = {q, &p, &profile, v, n};
    enum status st = plan_variants(&all, &done, err);
    if (st == OK && done) st = share_plans(v, done, &profile, err);
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
    {.name = "latency",
     TEXT_AT(latency),
     .unit = "TIME",
     .needs = "link",
     .help = "latency of every --link that states none, e.g. 10us",
     .preset = "that of the old link"},
    {.name = "together", FLAG_AT(together), .help = "add a variant with all changes at once"},
    OPTION_DB(db),
    OPTION_PROFILE(profile),
    {.name = "evaluations",
     INT_AT(evaluations),
     .unit = "N",
     .min = 0,
     .max = 1e9,
     .help = "budget of simulated candidates of each variant, e.g. 5000",
     .preset = "0: 2000; beyond 8 devices only repairs of the old plan"},
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
    .summary = "compare a changed cluster: devices removed, nodes added, links changed",
    .about =
        "Every change is one variant. For each the output states the time of PLAN as it is and "
        "the time of the best plan found for the changed cluster, and the rate, MFU, cost and use "
        "of "
        "devices of that plan.",
    .options = options,
    .examples = {"# three variants beside the cluster as it is",
                 "musher whatif plan.yaml --without c.0 --add b --link a:b=1GB/s",
                 "musher whatif plan.yaml --add d=rack.yaml:r0 --without a.1,b.0 --together"},
    REQUEST(.threads = 1),
    .run = whatif,
};
