/* tools/cmd_report.c - plans as one self-contained HTML page. */
#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "profiles/team.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/print/metrics.h"
#include "tools/report/report.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct request {
    struct texts plans;
    const char *out, *db;
    int64_t profile, evaluations, threads;
    double time_limit;
    bool search;
    struct run_length length;
};

static volatile sig_atomic_t *stop;

static const char *job_text(struct arena *a, const struct job *j)
{
    char *text = NULL;
    size_t n = 0;
    struct job same = *j;
    same.seed = 0, same.data.n_files = 0, same.model_file = NULL, same.init = NULL;
    FILE *out = open_memstream(&text, &n);
    if (!out) return "";
    job_write(out, a, &same, 0);
    fclose(out);
    const char *copy = arena_strdup(a, text);
    free(text); /* open_memstream */
    return copy;
}

static enum status read_plans(struct arena *a, const struct request *q, struct report *r,
                              struct error *err)
{
    r->n_plans = (int32_t)q->plans.count;
    r->plans = ARENA_ARRAY(a, struct report_plan, q->plans.count);
    for (int32_t i = 0; i < r->n_plans; i++) {
        struct report_plan *x = &r->plans[i];
        x->file = q->plans.items[i];
        x->id = arena_printf(a, "plan-%d", (int)i + 1);
        TRY(options_spare("out", q->out, x->file, err));
        TRY(common_plan(a, x->file, &x->plan, err));
        const char *slash = strrchr(x->file, '/');
        x->label = arena_printf(a, "%s (%s)", x->plan.name, slash ? slash + 1 : x->file);
        const struct plan *first = &r->plans[0].plan;
        x->same_cluster =
            common_cluster_hash(a, &x->plan.cluster) == common_cluster_hash(a, &first->cluster);
        if (strcmp(job_text(a, &x->plan.job), job_text(a, &first->job)) != 0)
            return error_set(
                err, ERR_INPUT,
                "%s: its job differs from that of %s; a report compares plans of one job", x->file,
                r->plans[0].file);
    }
    return OK;
}

static enum status search(struct arena *a, const struct request *q, struct report *r,
                          struct search_result *found, struct error *err)
{
    struct job j = r->plans[0].plan.job;
    const struct cluster *c = &r->plans[0].plan.cluster;
    const struct search_options o = {
        .top = 1, .evaluations = q->evaluations, .threads = (int32_t)q->threads, .stop = stop};
    TRY(team_precision(c, j.precision, err));
    common_stop_after(q->time_limit);
    TRY(search_plans(a, &j, c, r->profile, &o, found, err));
    common_stop_after(0);
    r->search = found;
    return OK;
}

static enum status write_page(struct arena *a, const char *path, const struct report *r,
                              struct error *err)
{
    struct file f = {0};
    TRY(file_open(&f, path, err));
    enum status st = report_write(f.stream, a, r, err);
    if (st == OK) st = file_commit(&f, err);
    file_abandon(&f);
    return st;
}

static enum status report(struct arena *a, void *request, const struct common *common,
                          struct error *err)
{
    const struct request *q = request;
    struct profile profile;
    struct search_result found;
    struct report r = {.profile = &profile};
    int64_t tokens;
    TRY(common_not_stdout(common->json, "-o", q->out, err));
    TRY(common_writable(q->out, err));
    TRY(read_plans(a, q, &r, err));
    TRY(common_profile(a, &r.plans[0].plan.cluster, q->db, q->profile, &profile, err));
    TRY(print_run_length(&q->length, &r.plans[0].plan.job, &tokens, err));
    stop = common_stop_on_end_signals();
    if (q->search) TRY(search(a, q, &r, &found, err));
    for (int32_t i = 0; i < r.n_plans && !(*stop && !common_timed_out()); i++) {
        struct report_plan *x = &r.plans[i];
        log_progress("simulating %s", x->file);
        TRY(report_predict(a, &profile, tokens, x, err));
        int64_t ns = x->told.result.iteration_ns,
                bound_ns = r.search && x->same_cluster && r.search->lower_bound_ns <= ns
                               ? r.search->lower_bound_ns
                               : 0;
        x->outcome = outcome_of(&x->plan, ns, bound_ns);
    }
    log_progress_end();
    if (*stop && !common_timed_out()) return error_set(err, ERR_INTERRUPTED, "interrupted: nothing written");
    TRY(write_page(a, q->out, &r, err));
    if (common->json) {
        struct json j;
        common_json_begin(&j);
        json_put_text(&j, "file", q->out);
        json_put_list(&j, "plans");
        for (int32_t i = 0; i < r.n_plans; i++) {
            json_put_object_line(&j, NULL);
            json_put_text(&j, "name", r.plans[i].plan.name);
            json_put_int(&j, "iteration_ns", r.plans[i].told.result.iteration_ns);
            json_close(&j);
        }
        json_close(&j);
        common_json_end(&j);
    }
    return OK;
}

static const struct option options[] = {
    {.name = "PLAN",
     ARGUMENTS_AT(plans),
     .min = 1,
     .max = REPORT_PLANS_MAX,
     .help = "plans of one job, on one cluster or on several; the first is the one that --search "
             "is compared with"},
    {.name = "out",
     .letter = 'o',
     TEXT_AT(out),
     .unit = "FILE",
     .writes = true,
     .help = "page to write, or - for standard output, e.g. report.html",
     .required = true},
    OPTION_DB(db),
    OPTION_PROFILE(profile),
    {.name = "search",
     FLAG_AT(search),
     .help = "search a plan for the first plan's job and cluster too: the lower bound, the gaps "
             "and the "
             "textbook plans come from it"},
    {.name = "evaluations",
     INT_AT(evaluations),
     .unit = "N",
     .min = 0,
     .max = 1e9,
     .needs = "search",
     .help = "budget of simulated candidates of --search, e.g. 1000" BUDGET_ROUNDS,
     .preset = "0: 20000, as plan"},
    {.name = "time-limit",
     DOUBLE_AT(time_limit),
     .unit = "SECONDS",
     .min = 0,
     .max = 1e6,
     .needs = "search",
     .help = "wall time after which --search ends with the best plan so far, e.g. 60",
     .preset = "0: none"},
    {.name = "threads",
     INT_AT(threads),
     .unit = "N",
     .min = 1,
     .max = 1024,
     .needs = "search",
     .help = "threads of --search, e.g. 8; the page does not depend on them"},
    OPTION_TOKENS(length),
    {0}};

const struct verb cmd_report = {
    .name = "report",
    .summary = "write plans as one HTML page: pictures, times, memory, alternatives, assumptions",
    .about = "The page holds the job and the cluster, every plan as a picture, the timeline of a "
             "steady iteration, "
             "memory over it, where the time goes, alternatives with their gaps, the effect of 10 "
             "% faster and slower "
             "devices and links, and the assumptions with source and known error. It loads nothing "
             "and needs no "
             "script.",
    .options = options,
    .examples = {"musher report plan.yaml -o report.html",
                 "# beside a plan by hand, with the lower bound and the textbook plans",
                 "musher report plan.yaml mine.yaml --search -o report.html"},
    REQUEST(.threads = 1),
    .run = report,
};
