#include "core/base/arena.h"
#include "core/base/log.h"
#include "profiles/calibrate.h"
#include "profiles/store.h"
#include "profiles/team.h"
#include "tools/cmd.h"
#include "tools/common.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct request {
    const char *db;
    struct texts runs;
    bool force;
    int64_t restore;
};

/* The trace of a run contains its plan, so that the run can be predicted again with any profile. */
struct runs {
    struct arena *arena;
    size_t n;
    struct trace **traces;
    struct plan *plans;
};

static enum status predict(void *user, size_t run, const struct profile *p, int64_t *iteration_ns,
                           struct error *err)
{
    struct runs *r = user;
    struct arena *scratch = arena_new();
    struct program program;
    struct sim_result result;
    enum status st = common_simulate(scratch, &r->plans[run], p, &(struct sim_options){0}, &result,
                                     &program, err);
    if (st == OK) *iteration_ns = result.iteration_ns;
    arena_free(scratch);
    return st;
}

/* The same run under two names would count twice. */
static bool same_run(const struct trace *x, const struct trace *y)
{
    if (x->plan_hash != y->plan_hash || x->iteration_ns != y->iteration_ns || x->n_spans != y->n_spans) return false;
    for (size_t i = 0; i < x->n_spans; i++)
        if (x->spans[i].begin_ns != y->spans[i].begin_ns || x->spans[i].end_ns != y->spans[i].end_ns) return false;
    return true;
}

static enum status read_run(struct runs *r, const struct texts *paths, size_t i, struct error *err)
{
    const char *path = paths->items[i];
    TRY(trace_read(r->arena, path, &r->traces[i], err));
    if (trace_is_predicted(r->traces[i]))
        return error_set(err, ERR_INPUT, "%s: a simulated trace; calibrate needs traces of run",
                         path);
    TRY(common_trace_plan(r->arena, r->traces[i], path, &r->plans[i], err));
    if (common_cluster_hash(r->arena, &r->plans[i].cluster) !=
        common_cluster_hash(r->arena, &r->plans[0].cluster))
        return error_set(err, ERR_INPUT,
                         "%s: its cluster (%s) differs from that of the first trace (%s)", path,
                         r->plans[i].cluster.name, r->plans[0].cluster.name);
    for (size_t k = 0; k < i; k++)
        if (same_run(r->traces[k], r->traces[i]))
            return error_set(err, ERR_INPUT, "%s: the same run as %s, which would count twice", path, paths->items[k]);
    return OK;
}

/* Provenance of the next profile: the plans of the calibration runs and their trace files. */
static const char *names(struct runs *r, const struct texts *paths)
{
    const char *text = "";
    for (size_t i = 0; i < r->n; i++) {
        const char *slash = strrchr(paths->items[i], '/');
        text = arena_printf(r->arena, "%s%s%s (%s)", text, i ? ", " : "", r->plans[i].name,
                            slash ? slash + 1 : paths->items[i]);
    }
    return text;
}

static void report(const struct calibration *c, size_t n_runs, bool as_json)
{
    if (!as_json) {
        printf("profile %lld from profile %lld, calibrated on %s: iteration error %.1f %% before, "
               "%.1f %% after (on the calibration runs)\n",
               (long long)c->next.id, (long long)c->next.parent, c->next.calibrated_on,
               100 * c->error_before, 100 * c->error_after);
        if (isfinite(c->error_after_held_out))
            printf(
                "  held-out error %.1f %%: each plan predicted after calibration on the others\n",
                100 * c->error_after_held_out);
        if (c->n_seen_before)
            printf("  note: %zu of %zu runs also calibrated the parent profile: for these the "
                   "error before is not held out\n",
                   c->n_seen_before, n_runs);
        printf("  %lld spans used, %lld dropped, pace %.4f\n", (long long)c->spans_used,
               (long long)c->spans_dropped, c->next.pace);
        if (c->n_kinds_left_out)
            printf("  %d operator kinds of a device type deviate from the profile by more than a "
                   "factor of 10; each takes less than 1 %% of the time, so they get no correction "
                   "factor\n",
                   (int)c->n_kinds_left_out);
        if (c->n_rows_left_out)
            printf("  %d operators of a device type or spreads moved by more than a factor of 10: they keep their earlier values "
                   "(--force takes the measured ones)\n",
                   (int)c->n_rows_left_out);
        if (c->next.n_routings)
            printf(
                "  rows per expert vary: standard deviation %.2f times the mean, over %d calls\n",
                c->next.routings[0].spread, (int)c->next.routings[0].samples);
        if (c->next.n_skews)
            printf("  collective skew: the members' work between collectives varies by %.1f %%, "
                   "over %d collectives\n",
                   100 * c->next.skews[0].spread, (int)c->next.skews[0].samples);
        return;
    }
    struct json j;
    common_json_begin(&j);
    json_put_int(&j, "profile_id", c->next.id);
    json_put_int(&j, "parent_id", c->next.parent);
    json_put_text(&j, "calibrated_on", c->next.calibrated_on);
    json_put_double(&j, "error_before", c->error_before);
    json_put_double(&j, "error_after", c->error_after);
    json_put_bool(&j, "in_sample", true);
    if (isfinite(c->error_after_held_out))
        json_put_double(&j, "error_held_out", c->error_after_held_out);
    else
        json_put_null(&j, "error_held_out");
    json_put_int(&j, "runs", (int64_t)n_runs);
    json_put_int(&j, "runs_seen_before", (int64_t)c->n_seen_before);
    json_put_int(&j, "spans_used", c->spans_used);
    json_put_int(&j, "spans_dropped", c->spans_dropped);
    json_put_int(&j, "kinds_left_out", c->n_kinds_left_out);
    json_put_int(&j, "rows_left_out", c->n_rows_left_out);
    json_put_double(&j, "pace", c->next.pace);
    if (c->next.n_routings) json_put_double(&j, "experts_spread", c->next.routings[0].spread);
    if (c->next.n_skews) json_put_double(&j, "skew_spread", c->next.skews[0].spread);
    common_json_end(&j);
}

static enum status with_store(struct arena *a, struct store *s, const struct texts *paths,
                              bool force, bool as_json, struct error *err)
{
    struct runs r = {.arena = a, .n = paths->count};
    struct profile parent;
    struct calibration c;
    int64_t id = 0;
    bool exact = true;
    r.traces = ARENA_ARRAY(a, struct trace *, r.n);
    r.plans = ARENA_ARRAY(a, struct plan, r.n);
    for (size_t i = 0; i < r.n; i++) TRY(read_run(&r, paths, i, err));
    const struct cluster *cluster = &r.plans[0].cluster;
    uint64_t hash = common_cluster_hash(a, cluster);
    TRY(store_latest(s, hash, cluster, &id, &exact, err));
    if (!exact)
        log_warn("profile %lld is of another version of cluster %s: the same base devices, but "
                 "names, slowdowns or links differ",
                 (long long)id, cluster->name);
    TRY(store_load(s, a, id, &parent, err));
    TRY(calibrate(a, &parent, cluster, r.traces, r.n, force, predict, &r, &c, err));
    c.next.cluster_hash = hash;
    c.next.calibrated_on = names(&r, paths);
    TRY(store_append(s, &c.next, err));
    report(&c, r.n, as_json);
    return OK;
}

/* Profiles are immutable, and the newest is the default of every verb: going back is a new version with the earlier content. */
static enum status restore(struct arena *a, struct store *s, int64_t id, bool as_json, struct error *err)
{
    struct profile p;
    TRY(store_load(s, a, id, &p, err));
    p.parent = id;
    TRY(store_append(s, &p, err));
    if (!as_json) {
        printf("profile %lld has the values of profile %lld, and is the newest of cluster %s\n", (long long)p.id, (long long)id, p.cluster);
        return OK;
    }
    struct json j;
    common_json_begin(&j);
    json_put_int(&j, "profile_id", p.id);
    json_put_int(&j, "parent_id", p.parent);
    json_put_text(&j, "calibrated_on", p.calibrated_on);
    common_json_end(&j);
    return OK;
}

static enum status run_calibrate(struct arena *a, void *request, const struct common *common,
                                 struct error *err)
{
    const struct request *q = request;
    struct store *s = NULL;
    if (q->restore && q->runs.count) return error_set(err, ERR_USAGE, "--restore takes the values of a profile as they are, without a TRACE");
    if (!q->restore && !q->runs.count) return error_set(err, ERR_USAGE, "TRACE is missing: a trace of run");
    enum status st = store_open(a, q->db, false, &s, err);
    if (st == OK && q->restore) st = restore(a, s, q->restore, common->json, err);
    if (st == OK && !q->restore) st = with_store(a, s, &q->runs, q->force, common->json, err);
    store_close(s);
    return st;
}

static const struct option options[] = {
    {.name = "TRACE",
     ARGUMENTS_AT(runs),
     .min = 0,
     .max = 1000,
     .help = "traces of run, of one cluster, each run once; traces of several plans also give a held-out error"},
    {.name = "db",
     TEXT_AT(db),
     .unit = "DB",
     .help = "profile database; the new version is added to it",
     .required = true},
    {.name = "force",
     FLAG_AT(force),
     .help = "accept what moves a cost by more than a factor of 10, which is an error or left out by default"},
    {.name = "restore",
     INT_AT(restore),
     .unit = "ID",
     .min = 1,
     .max = 1e15,
     .preset = "none",
     .excludes = "force",
     .help = "without TRACE: make the values of profile ID the newest version again"},
    {0}};

const struct verb cmd_calibrate = {
    .name = "calibrate",
    .summary = "fit the next profile version to measured traces",
    .about =
        "Operator times, link times and jitter of the cluster's newest profile are corrected by "
        "what the runs measured. Profiles are immutable: the result is a new version with its "
        "own number. The output states the prediction error before and after. A run that would move a cost by more than a factor "
        "of 10 is refused, because it is of another machine or in another unit; --restore goes back to an earlier version.",
    .options = options,
    .examples = {"musher calibrate --db profiles.db run.trace",
                 "musher calibrate --db profiles.db a.trace b.trace --json",
                 "musher calibrate --db profiles.db --restore 3"},
    REQUEST(.db = NULL),
    .run = run_calibrate,
};
