#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/ranges.h"
#include "core/base/units.h"
#include "planner/fleet/robust.h"
#include "planner/search.h"
#include "profiles/team.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/print/classes.h"
#include "tools/team/replan.h"
#include "tools/tp_degrees.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct request {
    const char *job, *cluster, *db, *out, *baseline, *from;
    struct texts with, without;
    int64_t profile, top, evaluations, time_limit, threads;
    bool fastest, no_sharding;
    bool verbose;   /* reasons of baselines uncut */
    const char *tp; /* --tensor-parallel, as given */
    struct degrees degrees;
    int objective;
    double min_rate, max_cost;
};

static volatile sig_atomic_t *stop, timed_out;
static void on_alarm(int number)
{
    (void)number;
    timed_out = *stop = 1;
}

static double wall_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void on_progress(void *user, int64_t evaluated, int64_t best_ns)
{
    int64_t *shown_ns = user;
    char text[32];
    if (best_ns < *shown_ns) {
        *shown_ns = best_ns;
        log_debug("best plan so far: %s", units_print_ns(text, best_ns));
    }
    if (best_ns != INT64_MAX)
        log_progress("%lld plans simulated, best %s", (long long)evaluated,
                     units_print_ns(text, best_ns));
}

/* Two lower bounds: no plan is faster than the first; no plan of the class searched is faster than the second. */
static void put_gap(struct json *j, const char *name, double gap)
{
    if (isfinite(gap))
        json_put_double(j, name, gap);
    else
        json_put_null(j, name);
}

static void print_bounds_json(struct json *j, const struct search_result *r)
{
    json_put_int(j, "lower_bound_ns", r->lower_bound_ns);
    put_gap(j, "gap", r->gap);
    json_put_text(j, "binding", r->binding);
    json_put_text(j, "class", r->bound_class);
    if (r->lower_cost > 0) {
        json_put_double(j, "lower_cost", r->lower_cost);
        put_gap(j, "cost_gap", r->cost_gap);
    }
    if (!r->exact) return;
    if (r->class_ns > 0)
        json_put_int(j, "class_optimum_ns", r->class_ns);
    else
        json_put_null(j, "class_optimum_ns"); /* nothing of the class fits */
    json_put_text(j, "class_searched", SEARCH_CLASS);
}

static void print_bounds(const struct search_result *r, const struct request *q)
{
    char text[32];
    if (q->objective == OBJECTIVE_COST && r->lower_cost > 0)
        printf(
            "  lower bound of cost %.4g (price of all work): at most %.1f %% from the cheapest%s\n",
            r->lower_cost, 100 * r->cost_gap, q->min_rate > 0 ? " within --min-rate" : "");
    else if (q->objective == OBJECTIVE_COST)
        puts("  no lower bound of cost: some devices have price 0");
    printf("  lower bound %s%s (%s): ", q->objective == OBJECTIVE_COST ? "of time " : "",
           units_print_ns(text, r->lower_bound_ns), r->binding);
    if (isfinite(r->gap))
        printf("at most %.1f %% from %s", 100 * r->gap,
               q->objective == OBJECTIVE_COST ? "the fastest" : "optimal");
    else
        printf("no gap known");
    printf("; holds for %s\n", r->bound_class);
    if (r->exact && r->class_ns > 0) /* else nothing of the class fits */
        printf("  optimum %s of the class searched: %s\n", units_print_ns(text, r->class_ns),
               SEARCH_CLASS);
}

/* Names of the cluster's devices that the plan does not use. If GPUs were grouped (core/cluster/group), the plan's cluster lacks the
 * GPUs that are members of another device; they are in use. */
static const char **idle_devices(struct arena *a, const struct cluster *c, const struct plan *p,
                                 int32_t *n)
{
    const char **idle = ARENA_ARRAY(a, const char *, (size_t)c->n_devices + 1);
    bool *used = ARENA_ARRAY(a, bool, (size_t)p->cluster.n_devices),
         grouped = p->cluster.n_devices < c->n_devices;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            for (int32_t k = 0; k < plan_stage_devices(&p->replicas[r].stages[i]); k++)
                used[plan_stage_device(&p->replicas[r].stages[i], k)] = true;
    *n = 0;
    for (int32_t d = 0, at = 0; d < c->n_devices; d++) { /* the remaining devices keep their order */
        bool there =
            at < p->cluster.n_devices && !strcmp(p->cluster.devices[at].name, c->devices[d].name);
        if (there ? !used[at] : !grouped) idle[(*n)++] = c->devices[d].name;
        at += there;
    }
    return idle;
}

enum { IDLE_SHOWN = 6, WHY_MAX = 160 };

static void print_idle(struct arena *a, const struct cluster *c, const struct plan *p)
{
    int32_t n;
    const char **idle = idle_devices(a, c, p, &n);
    if (!n) return;
    printf("  unused: %s", ranges_of_names(a, idle, (size_t)n, IDLE_SHOWN));
    if (n > 1) printf(" (%d devices)", (int)n);
    printf(": no faster candidate uses %s\n", n > 1 ? "them" : "it");
}

static void print_json(struct arena *a, const struct cluster *c, const struct search_result *r,
                       const struct profile *profile, const char *out, double search_s)
{
    int32_t n_idle;
    const char **idle = idle_devices(a, c, &r->plans[0].plan, &n_idle);
    struct json j;
    common_json_begin(&j);
    json_put_int(&j, "iteration_ns", r->plans[0].iteration_ns);
    json_put_double(&j, "cost", r->plans[0].cost);
    json_put_text(&j, "plan", plan_describe(a, &r->plans[0].plan));
    json_put_list(&j, "idle");
    for (int32_t i = 0; i < n_idle; i++) json_put_text(&j, NULL, idle[i]);
    json_close(&j);
    json_put_text(&j, "file", out);
    json_put_int(&j, "profile_id", profile->id);
    json_put_list(&j, "baselines");
    for (int32_t i = 0; i < r->n_baselines; i++) {
        json_put_object_line(&j, NULL);
        json_put_text(&j, "name", r->baselines[i].name);
        if (r->baselines[i].iteration_ns == INT64_MAX) {
            json_put_null(&j, "iteration_ns");
            json_put_text(&j, "why", r->baselines[i].why);
        } else {
            json_put_int(&j, "iteration_ns", r->baselines[i].iteration_ns);
            json_put_text(&j, "plan", plan_describe(a, &r->baselines[i].plan));
            if (r->baselines[i].quick) json_put_bool(&j, "quick", true);
        }
        json_close(&j);
    }
    json_close(&j);
    json_put_list(&j, "top");
    for (int32_t i = 0; i < r->n_plans; i++) {
        json_put_object_line(&j, NULL);
        json_put_int(&j, "iteration_ns", r->plans[i].iteration_ns);
        json_put_double(&j, "cost", r->plans[i].cost);
        json_put_text(&j, "plan", plan_describe(a, &r->plans[i].plan));
        json_close(&j);
    }
    json_close(&j);
    json_put_int(&j, "candidates", r->candidates);
    json_put_int(&j, "evaluated", r->evaluated);
    json_put_bool(&j, "exact", r->exact);
    json_put_text(&j, "stopped", timed_out ? "time" : r->stopped);
    print_bounds_json(&j, r);
    json_put_object_line(&j, "timing"); /* outside "same inputs, same bytes" */
    json_put_double(&j, "search_s", search_s);
    json_close(&j);
    common_json_end(&j);
}

static const char *stop_text(const char *stopped)
{
    return !strcmp(stopped, "end")           ? "search complete"
           : !strcmp(stopped, "evaluations") ? "stopped by the budget of simulations"
           : !strcmp(stopped, "work")        ? "stopped by the budget of work"
                                             : stopped;
}

static void print_text(struct arena *a, const struct cluster *c, const struct search_result *r,
                       const struct profile *profile, const struct request *q)
{
    char text[32];
    printf("predicted with %s%s\n", common_profile_label(a, profile),
           r->plans[0].plan.cluster.emulated ? ", for emulated devices" : "");
    common_print_experts(a, &r->plans[0].plan.job);
    for (int32_t i = 0; i < r->n_plans; i++) {
        const struct search_plan *x = &r->plans[i];
        const char *cost = x->cost > 0 ? arena_printf(a, "costs %.4g  ", x->cost) : "";
        printf("  %-14s %10s  %s", x->plan.name, units_print_ns(text, x->iteration_ns), cost);
        if (x->plan.n_replicas <= PLAN_REPLICAS_ONE_BY_ONE) {
            printf("%s\n", plan_describe(a, &x->plan));
            continue;
        }
        int32_t n;
        const char **lines = plan_describe_classes(a, &x->plan, &n);
        printf("%d replicas\n", (int)x->plan.n_replicas);
        for (int32_t k = 0; k < n; k++) printf("  %-14s %10s  %s\n", "", "", lines[k]);
    }
    if (r->robust)
        printf("  the first plan is the most robust within %d %% of the fastest (--fastest: the "
               "fastest)\n",
               (int)ROBUST_PERCENT);
    print_idle(a, c, &r->plans[0].plan);
    for (int32_t i = 0; !q->baseline && i < r->n_baselines; i++) {
        const struct search_baseline *b = &r->baselines[i];
        if (b->iteration_ns == INT64_MAX)
            printf("  %-14s %10s  %s\n", b->name, "-",
                   q->verbose ? b->why : print_cut(a, b->why, WHY_MAX));
        else
            printf("  %-14s %10s  %.2f times as long%s\n", b->name,
                   units_print_ns(text, b->iteration_ns),
                   (double)b->iteration_ns / (double)r->plans[0].iteration_ns,
                   b->quick ? " (not all settings tried; --baseline tries more)" : "");
    }
    printf("  %lld candidate%s, %lld simulated, %s\n", (long long)r->candidates,
           r->candidates == 1 ? "" : "s", (long long)r->evaluated,
           r->exact    ? "class searched completely"
           : timed_out ? "stopped by --time-limit"
                       : stop_text(r->stopped));
    if (r->lower_bound_ns > 0)
        print_bounds(r, q);
    else
        puts("  no lower bound was computed");
}

/* Plan i goes to PATH, PATH.2, PATH.3 … */
static enum status write_plans(struct arena *a, const struct search_result *r, const char *path,
                               struct error *err)
{
    for (int32_t i = 0; i < r->n_plans; i++) {
        struct file f = {0};
        if (i && !strcmp(path, "-")) break;
        TRY(file_open(&f, i ? arena_printf(a, "%s.%d", path, (int)i + 1) : path, err));
        plan_write(f.stream, a, &r->plans[i].plan);
        TRY(file_commit(&f, err));
    }
    return OK;
}

/* Job and cluster from their files, or, with --from and without files, from the old plan. The profile is that of the old cluster,
 * because the new one was never measured. */
static enum status read_task(struct arena *a, const struct request *q, struct plan *from,
                             struct job *j, struct cluster *c, struct profile *profile,
                             struct error *err)
{
    if (!q->from && (q->with.count || q->without.count))
        return error_set(err, ERR_USAGE, "--with and --without change the team of --from PLAN");
    if (q->cluster && (q->with.count || q->without.count))
        return error_set(
            err, ERR_USAGE,
            "--with and --without change the cluster of --from PLAN and exclude CLUSTER");
    if (!q->from && !q->cluster)
        return error_set(err, ERR_USAGE, "plan needs JOB and CLUSTER, or --from PLAN");
    if (q->from) TRY(common_plan(a, q->from, from, err));
    if (q->job)
        TRY(job_read(a, q->job, j, err));
    else
        *j = from->job;
    if (q->cluster) {
        TRY(cluster_read(a, q->cluster, c, err));
        TRY(team_complete(c, err));
        return common_profile(a, c, q->db, q->profile, profile, err);
    }
    TRY(common_profile(a, &from->cluster, q->db, q->profile, profile, err));
    return replan_team(a, from, profile, &q->with, &q->without, c, err);
}

/* Settings of the job that no option overrides. */
static enum status spare_inputs(struct arena *a, const struct request *q, const struct job *j,
                                struct error *err)
{
    for (int64_t i = 1; q->out && strcmp(q->out, "-") != 0 && i <= q->top; i++) {
        const char *path = i > 1 ? arena_printf(a, "%s.%" PRId64, q->out, i) : q->out;
        const char *inputs[] = {q->job, q->cluster, q->from, q->db, j->model_file, j->data};
        for (size_t k = 0; k < sizeof inputs / sizeof *inputs; k++)
            TRY(options_spare("out", path, inputs[k], err));
    }
    return OK;
}

static enum status plan(struct arena *a, void *request, const struct common *common,
                        struct error *err)
{
    struct request *q = request;
    struct plan from;
    struct job j;
    struct cluster c;
    struct profile profile;
    struct search_result r;
    TRY(common_not_stdout(common->json, "-o", q->out, err));
    if (q->baseline && q->from)
        return error_set(err, ERR_USAGE, "--baseline makes its plan without a search, and --from "
                                         "gives a search its start: choose one");
    TRY(degrees_parse(q->tp, &q->degrees, err));
    TRY(common_writable(q->out, err));
    TRY(read_task(a, q, &from, &j, &c, &profile, err));
    TRY(spare_inputs(a, q, &j, err));
    TRY(degrees_check(&q->degrees, &j.model, &c, &profile, err));
    q->verbose = common->verbose;
    if (common->seed) j.seed = (uint64_t)common->seed;
    TRY(team_precision(&c, j.precision, err));
    team_share(&c, &j.model);
    int64_t best_shown_ns = INT64_MAX;
    stop = common_stop_on_end_signals();
    struct search_options o = {.baseline = q->baseline,
                               .from = q->from ? &from : NULL,
                               .tensor = q->degrees.n ? q->degrees.tp : NULL,
                               .n_tensor = q->degrees.n,
                               .objective = (enum objective)q->objective,
                               .min_rate = q->min_rate,
                               .max_cost = q->max_cost,
                               .top = (int32_t)q->top,
                               .fastest = q->fastest,
                               .no_sharding = q->no_sharding,
                               .evaluations = q->evaluations,
                               .threads = (int32_t)q->threads,
                               .stop = stop,
                               .progress = on_progress,
                               .user = &best_shown_ns};
    signal(SIGALRM, on_alarm);
    if (q->time_limit) alarm((unsigned)q->time_limit);
    double start = wall_seconds();
    enum status st = search_plans(a, &j, &c, &profile, &o, &r, err);
    if (st == ERR_INTERRUPTED && timed_out)
        return error_set(err, ERR_INFEASIBLE,
                         "no plan was found within --time-limit %" PRId64 "; give it more seconds",
                         q->time_limit);
    if (st != OK) return st;
    double search_s = wall_seconds() - start;
    alarm(0);
    TRY(write_plans(a, &r, q->out, err));
    log_progress_end();
    if (common->json)
        print_json(a, &c, &r, &profile, q->out, search_s);
    else if (strcmp(q->out, "-") != 0)
        print_text(a, &c, &r, &profile, q);
    if (!*stop || timed_out) return OK;
    fflush(stdout);
    return error_set(err, ERR_INTERRUPTED, "interrupted: wrote the best of %lld simulated plans",
                     (long long)r.evaluated);
}

static const char *const objectives[] = {
#define X(name, text) text,
    OBJECTIVES(X)
#undef X
        NULL};
static const char *const baselines[] = {
#define X(id, name, help) name,
    BASELINES(X)
#undef X
        NULL};
static const struct option options[] = {
    {.name = "JOB",
     ARGUMENT_AT(job),
     .min = -1,
     .help = "job file, e.g. job.yaml; with --from it may be left out: the old plan's job"},
    {.name = "CLUSTER",
     ARGUMENT_AT(cluster),
     .min = -1,
     .help = "cluster file, e.g. cluster.yaml; with --from it may be left out: the old plan's "
             "cluster"},
    {.name = "out",
     .letter = 'o',
     TEXT_AT(out),
     .unit = "PLAN",
     .writes = true,
     .help = "plan file to write, or - for standard output",
     .required = true},
    OPTION_DB(db),
    OPTION_PROFILE(profile),
    {.name = "baseline",
     TEXT_AT(baseline),
     .unit = "NAME",
     .choices = baselines,
     .help = "family of textbook plans, in its best setting, instead of the search:"
#define X(id, name, help) " " name
     BASELINES(X)
#undef X
    },
    {.name = "objective",
     CHOICE_AT(objective),
     .choices = objectives,
     .help = "quantity to minimise: time of an iteration; cost of an iteration; time of an "
             "iteration whose cost is within --max-cost"},
    {.name = "min-rate",
     DOUBLE_AT(min_rate),
     .unit = "PER_SECOND",
     .min = 0,
     .max = 1e9,
     .help = "smallest accepted rate, in iterations per second, e.g. 0.05",
     .preset = "0: any"},
    {.name = "max-cost",
     DOUBLE_AT(max_cost),
     .unit = "MONEY",
     .min = 0,
     .max = 1e12,
     .help =
         "largest accepted cost of one iteration, in the currency of CLUSTER's prices, e.g. 0.2",
     .preset = "0: any"},
    {.name = "tensor-parallel",
     TEXT_AT(tp),
     .unit = "N,...",
     .help = "tensor-parallel degrees to try, each within one node, e.g. 1,2,4",
     .preset = "the degrees of CLUSTER; above 1024 GPUs, those that a large model needs"},
    {.name = "no-sharding",
     FLAG_AT(no_sharding),
     .help = "do not consider sharded stages (intra-operator parallelism on several devices)"},
    {.name = "fastest",
     FLAG_AT(fastest),
     .help =
         "with measured layers: choose the plan predicted fastest, even if another one within "
         "5 % is more robust against errors of the profile"},
    {.name = "from",
     TEXT_AT(from),
     .unit = "PLAN",
     .help = "old plan that the search starts from, e.g. plan.yaml"},
    {.name = "without",
     TEXTS_AT(without),
     .unit = "DEVICE,...",
     .help = "devices or nodes removed from the cluster of --from, e.g. b.0,c"},
    {.name = "with",
     TEXTS_AT(with),
     .unit = "[NAME=]NODE",
     .help = "node added to the cluster of --from: a copy of its node NODE, or of NODE in another "
             "cluster file (FILE:NODE), e.g. d=b"},
    {.name = "top",
     INT_AT(top),
     .unit = "N",
     .min = 1,
     .max = 100,
     .help = "number of plans to write: PLAN, PLAN.2, PLAN.3 and so on"},
    {.name = "evaluations",
     INT_AT(evaluations),
     .unit = "N",
     .min = 0,
     .max = 1e9,
     .help = "budget of simulated candidates, e.g. 5000",
     .preset = "0: 20000; with --from beyond 8 devices only repairs of the old plan"},
    {.name = "time-limit",
     INT_AT(time_limit),
     .unit = "SECONDS",
     .min = 0,
     .max = 1e6,
     .help = "wall time after which the best plan so far is written, e.g. 60",
     .preset = "0: none"},
    {.name = "threads",
     INT_AT(threads),
     .unit = "N",
     .min = 1,
     .max = 1024,
     .help = "threads of the search, e.g. 8; the plan does not depend on them"},
    {0}};

const struct verb cmd_plan = {
    .name = "plan",
    .summary = "search for the fastest or cheapest plan for a job on a cluster",
    .about =
        "A plan states pipeline stages and their devices, replicas and their shares of the batch, "
        "tensor-parallel and sharded stages, the microbatch size, the schedule and what ZeRO "
        "shards. "
        "Every candidate is simulated. The output states the predicted iteration time, the "
        "textbook "
        "plans (baselines) on the same cluster, and a lower bound with the class of plans that it "
        "holds for.",
    .options = options,
    .examples = {"musher plan job.yaml cluster.yaml --db profiles.db -o plan.yaml",
                 "musher plan job.yaml cluster.yaml -o even.yaml --baseline even-pipeline",
                 "# the cheapest plan of at least one iteration in 20 s",
                 "musher plan job.yaml cluster.yaml --objective cost --min-rate 0.05 -o cheap.yaml",
                 "# a new plan after device b.0 was lost",
                 "musher plan --from plan.yaml --without b.0 -o smaller.yaml"},
    REQUEST(.top = 1, .threads = 1),
    .run = plan,
};
