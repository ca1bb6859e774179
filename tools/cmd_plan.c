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
#include "tools/options.h"
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
    bool verbose;      /* reasons of baselines uncut */
    const char *cards; /* --tensor-parallel, as given */
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

/* Two certificates: no plan at all is faster than the first; no plan of the class searched than the second. */
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
        puts("  no bound on cost is known: some devices are free");
    printf("  lower bound %s%s (%s): ", q->objective == OBJECTIVE_COST ? "of time " : "",
           units_print_ns(text, r->lower_bound_ns), r->binding);
    if (isfinite(r->gap))
        printf("at most %.1f %% from %s", 100 * r->gap,
               q->objective == OBJECTIVE_COST ? "the fastest" : "optimal");
    else
        printf("nothing is known");
    printf("; holds for %s\n", r->bound_class);
    if (r->exact && r->class_ns > 0) /* else nothing of the class fits */
        printf("  optimum %s of the class searched: %s\n", units_print_ns(text, r->class_ns),
               SEARCH_CLASS);
}

/* Names of the cluster's devices that the plan leaves out. Where cards were taken together (core/cluster/group) those that are
 * gone from its cluster are parts of others. */
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
    for (int32_t d = 0, at = 0; d < c->n_devices; d++) { /* what is left keeps its order */
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
    printf("  idle: %s", ranges_of_names(a, idle, (size_t)n, IDLE_SHOWN));
    if (n > 1) printf(" (%d devices)", (int)n);
    printf(": the team is better without %s, of all that was tried\n", n > 1 ? "them" : "it");
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

static void print_text(struct arena *a, const struct cluster *c, const struct search_result *r,
                       const struct profile *profile, const struct request *q)
{
    char text[32];
    printf("predicted with %s%s\n", common_profile_label(a, profile),
           r->plans[0].plan.cluster.emulated ? ", for emulated devices" : "");
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
        printf("  the first is the most robust of those within %d %% of the fastest (--fastest)\n",
               (int)ROBUST_PERCENT);
    print_idle(a, c, &r->plans[0].plan);
    for (int32_t i = 0; i < r->n_baselines; i++) {
        const struct search_baseline *b = &r->baselines[i];
        if (b->iteration_ns == INT64_MAX)
            printf("  %-14s %10s  %s\n", b->name, "-",
                   q->verbose ? b->why : print_cut(a, b->why, WHY_MAX));
        else
            printf("  %-14s %10s  %.2f times the first%s\n", b->name,
                   units_print_ns(text, b->iteration_ns),
                   (double)b->iteration_ns / (double)r->plans[0].iteration_ns,
                   b->quick ? " (not all settings tried; --baseline tries more)" : "");
    }
    printf("  %lld candidates, %lld simulated, %s\n", (long long)r->candidates,
           (long long)r->evaluated,
           r->exact    ? "searched to the end"
           : timed_out ? "stopped: time"
                       : r->stopped);
    print_bounds(r, q);
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

/* Job and cluster from their files, or, with --from, from the old plan where no file is named. The profile is the old team's:
 * the new one's was never measured. */
static enum status read_task(struct arena *a, const struct request *q, struct plan *from,
                             struct job *j, struct cluster *c, struct profile *profile,
                             struct error *err)
{
    if (!q->from && (q->with.count || q->without.count))
        return error_set(err, ERR_USAGE, "--with and --without change the team of --from PLAN");
    if (q->cluster && (q->with.count || q->without.count))
        return error_set(
            err, ERR_USAGE,
            "--with and --without change the team of --from PLAN; CLUSTER names another");
    if (!q->from && !q->cluster)
        return error_set(err, ERR_USAGE, "plan wants JOB and CLUSTER, or --from PLAN");
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

/* What the options do not name but the job does. */
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

static enum status plan(struct arena *a, struct request *q, const struct common *common,
                        struct error *err)
{
    struct plan from;
    struct job j;
    struct cluster c;
    struct profile profile;
    struct search_result r;
    TRY(common_not_stdout(common->json, "-o", q->out, err));
    TRY(degrees_parse(q->cards, &q->degrees, err));
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
                               .tensor = q->degrees.n ? q->degrees.cards : NULL,
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
    TRY(search_plans(a, &j, &c, &profile, &o, &r, err));
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

static const char baseline_help[] = "no search, the best setting of one family:"
#define X(id, name, help) " " name
    BASELINES(X)
#undef X
    ;

enum status cmd_plan(int argc, char **argv, struct error *err)
{
    struct common common = COMMON_DEFAULTS;
    struct request q = {.top = 1, .threads = 1};
    static const char *const objectives[] = {
#define X(name, text) text,
        OBJECTIVES(X)
#undef X
            NULL};
    const struct option options[] = {
        {.name = "JOB",
         .type = OPTION_ARGUMENT,
         .value = &q.job,
         .min = -1,
         .help = "job.yaml; with --from the old plan's"},
        {.name = "CLUSTER",
         .type = OPTION_ARGUMENT,
         .value = &q.cluster,
         .min = -1,
         .help = "cluster.yaml; with --from the old plan's"},
        {.name = "out",
         .letter = 'o',
         .type = OPTION_TEXT,
         .value = &q.out,
         .unit = "PLAN",
         .writes = true,
         .help = "file to write; - for stdout"},
        OPTION_DB(&q.db),
        OPTION_PROFILE(&q.profile),
        {.name = "baseline",
         .type = OPTION_TEXT,
         .value = &q.baseline,
         .unit = "NAME",
         .help = baseline_help},
        {.name = "from",
         .type = OPTION_TEXT,
         .value = &q.from,
         .unit = "PLAN",
         .help = "plan again, beginning with an old plan"},
        {.name = "without",
         .type = OPTION_TEXTS,
         .value = &q.without,
         .unit = "DEVICE,...",
         .help = "of --from: devices, or whole nodes, that are gone"},
        {.name = "with",
         .type = OPTION_TEXTS,
         .value = &q.with,
         .unit = "[NAME=]NODE",
         .help = "of --from: a node more, like NODE of its cluster or FILE:NODE"},
        {.name = "tensor-parallel",
         .type = OPTION_TEXT,
         .value = &q.cards,
         .unit = "N,...",
         .help = "cards of one node that may share every operator; without it as CLUSTER says, or "
                 "of more "
                 "than 1024 cards as a large model needs them"},
        {.name = "objective",
         .type = OPTION_CHOICE,
         .value = &q.objective,
         .choices = objectives,
         .help = "least time, least cost of an iteration, or least time within --max-cost"},
        {.name = "min-rate",
         .type = OPTION_DOUBLE,
         .value = &q.min_rate,
         .unit = "PER_SECOND",
         .min = 0,
         .max = 1e9,
         .help = "only plans of so many iterations a second at least; 0: any"},
        {.name = "max-cost",
         .type = OPTION_DOUBLE,
         .value = &q.max_cost,
         .unit = "MONEY",
         .min = 0,
         .max = 1e12,
         .help =
             "only plans whose iteration costs at most so much (price of CLUSTER's types); 0: any"},
        {.name = "fastest",
         .type = OPTION_FLAG,
         .value = &q.fastest,
         .help =
             "measured layers: the fastest predicted first, not the most robust of those within "
             "5 % of it"},
        {.name = "no-sharding",
         .type = OPTION_FLAG,
         .value = &q.no_sharding,
         .help = "no stage whose devices share its operators: the search as it is without "
                 "planner/spmd_stage/spmd_stage"},
        {.name = "top",
         .type = OPTION_INT,
         .value = &q.top,
         .unit = "N",
         .min = 1,
         .max = 100,
         .help = "plans to keep; the others go to PLAN.2, PLAN.3 ..."},
        {.name = "time-limit",
         .type = OPTION_INT,
         .value = &q.time_limit,
         .unit = "SECONDS",
         .min = 0,
         .max = 1e6,
         .help = "cut the search off after so long; 0: never"},
        {.name = "evaluations",
         .type = OPTION_INT,
         .value = &q.evaluations,
         .unit = "N",
         .min = 0,
         .max = 1e9,
         .help = "most plans to try; 0: 20000, with --from beyond 8 devices what the old plan "
                 "becomes and no search"},
        {.name = "threads",
         .type = OPTION_INT,
         .value = &q.threads,
         .unit = "N",
         .min = 1,
         .max = 1024,
         .help = "threads of the search; the plan does not depend on them"},
        {0}};
    const struct command command = {
        "plan",
        "find a plan for a job on a cluster",
        options,
        {"musher plan job.yaml cluster.yaml --db profiles.db -o plan.yaml",
         "musher plan job.yaml cluster.yaml -o even.yaml --baseline even-pipeline",
         "musher plan job.yaml cluster.yaml --tensor-parallel 1,2,4 --objective cost --min-rate "
         "0.05 -o cheap.yaml",
         "musher plan --from plan.yaml --without b.0 -o smaller.yaml"}};
    struct arena *a = arena_new();
    enum status st = options_parse(a, &command, &common, argc, argv, err);
    if (st == OK && !common.help)
        st = q.out ? plan(a, &q, &common, err) : error_set(err, ERR_USAGE, "plan wants -o PLAN");
    arena_free(a);
    return st;
}
