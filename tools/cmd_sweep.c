/* tools/cmd_sweep.c - a plan search at every point of a grid of jobs and clusters. */
#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "profiles/team.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/objective.h"
#include "tools/plot.h"
#include "tools/print/classes.h"
#include "tools/strategy/strategies.h"
#include "tools/sweep/picture.h"
#include "tools/sweep/regions.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

struct request {
    const char *job, *cluster, *db, *out, *picture;
    struct texts vary, allow;
    int64_t profile, evaluations, threads, max_points;
    double time_limit;
    bool fastest, no_sharding, all;
    struct objective_request aim;
};

static volatile sig_atomic_t *stop;

static enum status spare_inputs(const struct request *q, const struct job *j, struct error *err)
{
    const char *inputs[] = {q->job, q->cluster, q->db, j->model_file};
    for (size_t k = 0; k < sizeof inputs / sizeof *inputs; k++) {
        TRY(options_spare("out", q->out, inputs[k], err));
        TRY(options_spare("picture", q->picture, inputs[k], err));
    }
    for (int32_t k = 0; k < j->data.n_files; k++) {
        TRY(options_spare("out", q->out, j->data.files[k].path, err));
        TRY(options_spare("picture", q->picture, j->data.files[k].path, err));
    }
    return OK;
}

static enum status write_files(struct arena *a, const struct request *q, const struct sweep_grid *s,
                               struct error *err)
{
    struct sweep_table t;
    struct file f;
    if (q->out) {
        TRY(file_open(&f, q->out, err));
        table_csv(f.stream, a, s);
        TRY(file_commit(&f, err));
    }
    if (!q->picture) return OK;
    table_make(a, s, &t);
    return t.n_rows ? picture_sweep(a, &t, q->picture, err) : OK;
}

static void print(struct arena *a, const struct request *q, const struct sweep_grid *s, const struct search_options *o,
                  const struct profile *profile, const struct cluster *c, bool as_json)
{
    if (as_json) {
        struct json j;
        common_json_begin(&j);
        json_put_int(&j, "profile_id", profile->id);
        json_put_text(&j, "file", q->out);
        table_json(s, &j);
        if (q->allow.count) regions_json(a, s, o, &j);
        common_json_end(&j);
    } else if (!q->out || strcmp(q->out, "-") != 0) {
        printf("predicted with %s%s\n", common_profile_label(a, profile),
               c->emulated ? ", for emulated devices" : "");
        table_print(a, s, q->all);
        regions_print(a, s, o, q->all);
    }
}

/* Stopped, or no point has a plan. */
static enum status outcome(const struct sweep_grid *s, struct error *err)
{
    int64_t done = 0, with_plan = 0;
    for (int64_t i = 0; i < s->n_points; i++) {
        done += s->points[i].done;
        with_plan += s->points[i].done && !s->points[i].why;
    }
    fflush(stdout);
    if (*stop && !common_timed_out())
        return error_set(err, ERR_INTERRUPTED,
                         "interrupted: %lld of %lld points, the last ones cut short",
                         (long long)done, (long long)s->n_points);
    if (common_timed_out())
        log_warn("stopped by --time-limit: %lld of %lld points, the last ones cut short",
                 (long long)done, (long long)s->n_points);
    if (with_plan) return OK;
    return error_set(err, ERR_INFEASIBLE, "no plan at any point: %s",
                     done ? s->points[0].why : "no search ended in time");
}

static enum status sweep(struct arena *a, void *request, const struct common *common,
                         struct error *err)
{
    const struct request *q = request;
    struct job j;
    struct cluster c;
    struct profile profile;
    struct sweep_grid s;
    uint32_t sets;
    TRY(strategy_sets(a, &q->allow, &sets, err));
    TRY(common_not_stdout(common->json, "-o", q->out, err));
    if (!q->vary.count)
        return error_set(err, ERR_USAGE, "sweep needs --vary, e.g. --vary batch=64,128,256");
    TRY(sweep_points(a, &q->vary, q->max_points, &s, err));
    if (q->picture) TRY(plot_format(q->picture, err));
    TRY(common_writable(q->out, err));
    TRY(common_writable(q->picture, err));
    TRY(job_read(a, q->job, &j, err));
    TRY(cluster_read(a, q->cluster, &c, err));
    TRY(team_complete(&c, err));
    TRY(spare_inputs(q, &j, err));
    TRY(common_profile(a, &c, q->db, q->profile, &profile, err));
    if (common->seed) j.seed = (uint64_t)common->seed;
    stop = common_stop_on_end_signals();
    struct search_options o = {.top = 1,
                                     .fastest = q->fastest,
                                     .no_sharding = q->no_sharding,
                                     .evaluations = q->evaluations,
                                     .threads = (int32_t)q->threads,
                                     .stop = stop};
    objective_put(&q->aim, &o);
    common_stop_after(q->time_limit);
    TRY(sweep_run(a, &(struct sweep_search){&j, &c, &profile, &o, sets}, &s, err));
    common_stop_after(0);
    TRY(write_files(a, q, &s, err));
    print(a, q, &s, &o, &profile, &c, common->json);
    return outcome(&s, err);
}

static const struct option options[] = {
    {.name = "JOB", ARGUMENT_AT(job), .help = "job file, e.g. job.yaml"},
    {.name = "CLUSTER", ARGUMENT_AT(cluster), .help = "cluster file, e.g. cluster.yaml"},
    {.name = "vary",
     TEXTS_AT(vary),
     .unit = "WHAT=LIST",
     .help = "axis of the grid and its values: batch (sequences of a step), sequence (tokens), "
             "nodes:NAME (nodes NAME0, NAME1 and so on, or of type NAME, that are kept; more than "
             "there "
             "are: copies), devices:NAME (devices of a type or a node that are kept), link:NAME "
             "(bandwidth of a link, or of the links NAME0, NAME1 and so on), price:TYPE. LIST has "
             "values and "
             "ranges between commas: 1..8 (every whole number), 10GB/s..100GB/s:5 (five values), "
             "64..1024:x2 (factor 2)"},
    {.name = "out",
     .letter = 'o',
     TEXT_AT(out),
     .unit = "CSV",
     .writes = true,
     .help = "table to write, or - for standard output, e.g. sweep.csv"},
    {.name = "picture",
     TEXT_AT(picture),
     .unit = "FILE",
     .writes = true,
     .help = "picture to write; the suffix selects the format: .png, .svg or .gp (gnuplot script)"},
    {.name = "max-points",
     INT_AT(max_points),
     .unit = "N",
     .min = 1,
     .max = 1e5,
     .help = "largest accepted number of points, each of them a search"},
    OPTION_DB(db),
    OPTION_PROFILE(profile),
    OPTIONS_OBJECTIVE(aim),
    OPTION_ALLOW(allow, "at every point also the plan of the highest effective rate of those whose training is not the synchronous one:"),
    {.name = "no-sharding",
     FLAG_AT(no_sharding),
     .help = "do not consider sharded stages (intra-operator parallelism on several devices)"},
    {.name = "fastest",
     FLAG_AT(fastest),
     .help = "with measured layers: choose the plan predicted fastest, even if another one within "
             "5 % is more robust against errors of the profile"},
    {.name = "evaluations",
     INT_AT(evaluations),
     .unit = "N",
     .min = 0,
     .max = 1e9,
     .help = "budget of simulated candidates of every point, e.g. 1000" BUDGET_ROUNDS,
     .preset = "0: 20000, as plan"},
    {.name = "time-limit",
     DOUBLE_AT(time_limit),
     .unit = "SECONDS",
     .min = 0,
     .max = 1e6,
     .help = "wall time after which the points searched so far are written, e.g. 600",
     .preset = "0: none"},
    {.name = "threads",
     INT_AT(threads),
     .unit = "N",
     .min = 1,
     .max = 1024,
     .help = "threads, e.g. 8: one for each point, the others within their searches; the result "
             "does not depend on them"},
    {.name = "all", FLAG_AT(all), .help = "print plans and reasons uncut"},
    {0}};

const struct verb cmd_sweep = {
    .name = "sweep",
    .summary = "plan a job for a grid of devices, links, batches, sequence lengths or prices",
    .about =
        "Every combination of the values of --vary is a point, and every point is a search as plan "
        "makes it. The output has a row per point: iteration time, rate, cost, gap to the lower "
        "bound, "
        "devices used and the plan. A point without a plan has the reason in its row.",
    .options = options,
    .examples =
        {"# how many nodes of a family pay off, and at which bandwidth between them",
         "musher sweep job.yaml rack.yaml --vary nodes:h=1..8 --vary link:lan=10GB/s,25GB/s -o "
         "s.csv",
         "# a picture of the rate over the batch",
         "musher sweep job.yaml rack.yaml --vary batch=64..1024:x2 --picture batch.png",
         "# from which price on are the old GPUs worth it",
         "musher sweep job.yaml rack.yaml --vary price:h100=3/h --vary price:v100=0.1/h..1/h:10 --objective cost"},
    REQUEST(.threads = 1, .max_points = 256),
    .run = sweep,
};
