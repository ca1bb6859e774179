#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/nearest.h"
#include "core/base/units.h"
#include "planner/search.h"
#include "profiles/device_speed.h"
#include "profiles/team.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/objective.h"
#include "tools/predict.h"
#include "tools/print/metrics.h"
#include "tools/print/plan.h"
#include "tools/print/strategies.h"
#include "tools/routing.h"
#include "tools/team/replan.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct request {
    const char *job, *cluster, *db, *out, *baseline, *from, *routing;
    struct texts with, without, allow, offload;
    int64_t profile, top, evaluations, threads;
    double time_limit;
    bool fastest, no_sharding;
    struct objective_request aim;
    struct run_length length;
};

static volatile sig_atomic_t *stop;

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
    if (q->from) TRY(common_old_plan(a, q->from, from, err));
    if (q->job)
        TRY(job_read(a, q->job, j, err));
    else
        *j = from->job;
    if (q->routing) TRY(routing_read(a, q->routing, j, err));
    if (q->cluster) {
        TRY(cluster_read(a, q->cluster, c, err));
        TRY(team_complete(c, err));
        TRY(common_profile(a, c, q->db, q->profile, profile, err));
    } else {
        TRY(common_profile(a, &from->cluster, q->db, q->profile, profile, err));
        TRY(replan_team(a, from, profile, &q->with, &q->without, c, err));
    }
    for (size_t i = 0; i < q->offload.count; i++)
        TRY(team_edit(a, c, &(struct team_change){TEAM_OFFLOAD, q->offload.items[i], NULL}, c, err));
    return OK;
}

/* Settings of the job that no option overrides. */
static enum status spare_inputs(struct arena *a, const struct request *q, const struct job *j,
                                struct error *err)
{
    for (int64_t i = 1; q->out && strcmp(q->out, "-") != 0 && i <= q->top; i++) {
        const char *path = i > 1 ? arena_printf(a, "%s.%" PRId64, q->out, i) : q->out;
        const char *inputs[] = {q->job, q->cluster, q->from, q->db, q->routing, j->model_file};
        for (size_t k = 0; k < sizeof inputs / sizeof *inputs; k++)
            TRY(options_spare("out", path, inputs[k], err));
        for (int32_t k = 0; k < j->data.n_files; k++) TRY(options_spare("out", path, j->data.files[k].path, err));
    }
    return OK;
}

/* With the metrics of every plan; in text only the first has them. A stopped search ends without one more simulation, so without the use
 * of the devices. */
static void report(struct arena *a, struct plan_report *x, int64_t tokens, bool as_json)
{
    const struct search_result *r = x->result;
    int32_t n = as_json ? r->n_plans : 1;
    const struct profile *p = *stop ? NULL : x->profile;
    struct metrics *m = ARENA_ARRAY(a, struct metrics, (size_t)n);
    for (int32_t i = 0; i < n; i++)
        predict_metrics(a, &r->plans[i].plan, p, r->plans[i].iteration_ns, tokens, &m[i]);
    x->metrics = m;
    if (as_json)
        print_plan_json(a, x);
    else
        print_plan(a, x);
}

/* Plans of the allowed strategies, in files of their own. */
static enum status find_strategies(struct arena *a, const struct request *q, uint32_t sets, const struct search_options *o,
                                   const struct job *j, const struct cluster *c, const struct profile *p,
                                   const struct search_result *r, struct strategies **out, struct error *err)
{
    if (sets && *stop) log_warn("--allow: no plan was tried, because the search was stopped or --time-limit has passed");
    if (!sets || *stop) return OK;
    *out = ARENA_ARRAY(a, struct strategies, 1);
    TRY(strategies_find(a, j, c, p, o, sets, &r->plans[0], *out, err));
    for (int32_t i = 0; i < (*out)->n; i++) {
        struct file f = {0};
        const struct strategy_plan *x = &(*out)->list[i];
        if (x->why || !strcmp(q->out, "-")) continue;
        TRY(file_open(&f, print_strategy_file(a, q->out, x), err));
        plan_write(f.stream, a, &x->plan);
        TRY(file_commit(&f, err));
    }
    return OK;
}

static const char *const baselines[] = {
#define X(id, name, help) name,
    BASELINES(X)
#undef X
#define X(name, strategy, bases, help) name,
    PRESETS(X)
#undef X
        NULL};

static enum status check_baseline(const struct request *q, struct error *err)
{
    char hint[NEAREST_HINT], known[400] = "";
    size_t n = 0;
    if (!q->baseline) return OK;
    if (q->from)
        return error_set(err, ERR_USAGE, "--baseline makes its plan without a search, and --from "
                                         "gives a search its start: choose one");
    if (q->allow.count && strategies_preset(q->baseline) >= 0)
        return error_set(err, ERR_USAGE, "--baseline %s trains differently itself; --allow adds such plans to a synchronous one: choose one",
                         q->baseline);
    for (size_t i = 0; baselines[i]; i++) {
        if (!strcmp(baselines[i], q->baseline)) return OK;
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", baselines[i]);
    }
    return error_set(err, ERR_USAGE, "unknown baseline '%.40s'; known: %s%s", q->baseline, known, nearest_name_hint(q->baseline, baselines, hint));
}

/* Devices are as fast as the profile states (profiles/device_speed.h); plans have the cluster as it is stated. */
static enum status search(struct arena *a, const struct job *j, const struct cluster *c, const struct profile *p, const struct search_options *o,
                          struct search_result *r, struct error *err)
{
    struct cluster now;
    device_speed_apply(a, p, c, &now);
    TRY(search_plans(a, j, &now, p, o, r, err));
    for (int32_t i = 0; i < r->n_plans; i++) r->plans[i].plan.cluster = *c;
    return OK;
}

/* The search, or a preset of another training (tools/strategy/strategies.h), which has no bound and ranks among no others. */
static enum status find(struct arena *a, const struct request *q, const struct job *j, const struct cluster *c, const struct profile *p,
                        const struct search_options *o, struct search_result *r, struct strategy_plan **preset, struct error *err)
{
    int32_t index = q->baseline ? strategies_preset(q->baseline) : -1;
    if (index < 0) return search(a, j, c, p, o, r, err);
    struct strategy_plan *x = *preset = ARENA_ARRAY(a, struct strategy_plan, 1);
    *r = (struct search_result){.n_plans = 1, .stopped = "end"};
    TRY(strategies_preset_find(a, j, c, p, o, index, x, &r->evaluated, err));
    r->plans = ARENA_ARRAY(a, struct search_plan, 1);
    r->plans[0] = (struct search_plan){x->plan, x->iteration_ns, plan_cost(&x->plan, x->iteration_ns)};
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
    struct strategies *strategies = NULL;
    struct strategy_plan *preset = NULL;
    uint32_t sets;
    int64_t tokens;
    TRY(strategy_sets(a, &q->allow, &sets, err));
    TRY(common_not_stdout(common->json, "-o", q->out, err));
    TRY(check_baseline(q, err));
    TRY(common_writable(q->out, err));
    TRY(read_task(a, q, &from, &j, &c, &profile, err));
    TRY(spare_inputs(a, q, &j, err));
    TRY(print_run_length(&q->length, &j, &tokens, err));
    if (common->seed) j.seed = (uint64_t)common->seed;
    TRY(team_precision(&c, j.precision, err));
    if (q->fastest && !j.model.measured)
        return error_set(err, ERR_USAGE,
                         "--fastest is for models of measured layers (musher import sailor); of "
                         "others the fastest plan is chosen anyway");
    int64_t best_shown_ns = INT64_MAX;
    stop = common_stop_on_end_signals();
    struct search_options o = {.baseline = q->baseline,
                               .from = q->from ? &from : NULL,
                               .top = (int32_t)q->top,
                               .fastest = q->fastest,
                               .no_sharding = q->no_sharding,
                               .evaluations = q->evaluations,
                               .threads = (int32_t)q->threads,
                               .stop = stop,
                               .progress = on_progress,
                               .user = &best_shown_ns};
    objective_put(&q->aim, &o);
    common_stop_after(q->time_limit);
    double start = wall_seconds();
    enum status st = find(a, q, &j, &c, &profile, &o, &r, &preset, err);
    if (st == ERR_INTERRUPTED && common_timed_out())
        return error_set(err, ERR_INFEASIBLE,
                         "no plan was found within --time-limit %g; give it more seconds",
                         q->time_limit);
    if (st != OK) return st;
    double search_s = wall_seconds() - start;
    common_stop_after(0);
    TRY(write_plans(a, &r, q->out, err));
    TRY(find_strategies(a, q, sets, &o, &j, &c, &profile, &r, &strategies, err));
    log_progress_end();
    if (common->json || strcmp(q->out, "-") != 0)
        report(a, &(struct plan_report){.cluster = &c,
                                           .result = &r,
                                           .profile = &profile,
                                           .file = q->out,
                                           .search_s = search_s,
                                           .evaluations = q->evaluations,
                                           .min_rate = q->aim.min_rate,
                                           .objective = o.objective,
                                           .strategies = strategies,
                                           .preset = preset,
                                           .baseline = q->baseline != NULL,
                                           .verbose = common->verbose,
                                           .timed_out = common_timed_out()},
               tokens, common->json);
    if (!*stop || common_timed_out()) return OK;
    fflush(stdout);
    return error_set(err, ERR_INTERRUPTED, "interrupted: wrote the best of %lld simulated plans",
                     (long long)r.evaluated);
}

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
     "; of another training than the synchronous one:"
#define X(name, strategy, bases, help) " " name
     PRESETS(X)
#undef X
    },
    OPTIONS_OBJECTIVE(aim),
    {.name = "no-sharding",
     FLAG_AT(no_sharding),
     .help = "do not consider sharded stages (intra-operator parallelism on several devices)"},
    {.name = "routing",
     TEXT_AT(routing),
     .unit = "TRACE",
     .help = "trace of a run of the model: times and placement of experts are by the tokens that it counted for each expert, e.g. run.trace",
     .preset = "equal shares of the tokens"},
    {.name = "fastest",
     FLAG_AT(fastest),
     .help =
         "with measured layers: choose the plan predicted fastest, even if another one within "
         "5 % is more robust against errors of the profile"},
    {.name = "from",
     TEXT_AT(from),
     .unit = "PLAN",
     .help = "old plan, e.g. plan.yaml: it is adapted to the job and the cluster, and the search "
             "starts from it; beyond 8 devices no search follows if the adapted plan is at most "
             "16 % slower than the old one scaled by the change of computing power"},
    {.name = "without",
     TEXTS_AT(without),
     .unit = "DEVICE,...",
     .help = "devices or nodes removed from the cluster of --from, e.g. b.0,c"},
    {.name = "with",
     TEXTS_AT(with),
     .unit = "[NAME=]NODE",
     .help = "node added to the cluster of --from: a copy of its node NODE, or of NODE in another "
             "cluster file (FILE:NODE), e.g. d=b"},
    OPTION_OFFLOAD(offload),
    OPTION_ALLOW(allow, "also plans whose training is not the synchronous one, in a table and files (PLAN.NAME) of their own:"),
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
     .help = "budget of simulated candidates, e.g. 5000" BUDGET_ROUNDS,
     .preset = "0: 20000; with --from beyond 8 devices no search if the adapted plan is fast enough"},
    {.name = "time-limit",
     DOUBLE_AT(time_limit),
     .unit = "SECONDS",
     .min = 0,
     .max = 1e6,
     .help = "wall time after which the best plan so far is written, e.g. 60 or 0.5",
     .preset = "0: none"},
    {.name = "threads",
     INT_AT(threads),
     .unit = "N",
     .min = 1,
     .max = 1024,
     .help = "threads of the search, e.g. 8; the plan does not depend on them"},
    OPTION_TOKENS(length),
    OPTION_IMAGES(length),
    {0}};

const struct verb cmd_plan = {
    .name = "plan",
    .summary = "search for the fastest or cheapest plan for a job on a cluster",
    .about =
        "A plan states pipeline stages and their devices, replicas and their shares of the batch, "
        "sharded stages (tensor, sequence, context, expert parallel), the microbatch size, the schedule and what ZeRO "
        "shards. "
        "Every candidate is simulated. The output states the predicted iteration time, the "
        "textbook "
        "plans (baselines) on the same cluster, a lower bound with the class of plans that it "
        "holds for, and what the plan gives: rate, MFU, use and memory of the devices, cost; with "
        "--tokens the days, cost and energy of a run.",
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
