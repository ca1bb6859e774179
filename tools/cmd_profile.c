/* Measures the operators of a job and the links of a cluster with the executor itself: each distinct operator once (equal structural
 * keys share one measurement), each link between the first pair of devices that uses it. The traces of these benchmarks contain the
 * samples; their medians are stored as a new profile.
 * With plans, the next profile also has their operators; a key that already has a row is not measured again. The parent's links,
 * calibrations and rows are kept; fits are computed again from old and new rows. A search that prices by fits drifts towards
 * shapes whose cost they underestimate, so plan and profile alternately until every operator of the plan is measured. The speed of a
 * machine drifts (other load, heat): some known operators are measured again, and new rows are scaled to the profile's pace, so that
 * old and new rows are comparable.
 * Operators of GPUs may be measured on another machine (tools/profile/remote.h): --emit writes the benchmarks, --from reads their
 * traces. */
#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "exec/bench/bench.h"
#include "exec/worker/worker.h"
#include "profiles/catalogue.h"
#include "profiles/fit.h"
#include "profiles/op_fits.h"
#include "profiles/store.h"
#include "profiles/team.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/profile/collectives.h"
#include "tools/profile/cuda.h"
#include "tools/profile/links.h"
#include "tools/profile/remote.h"
#include "tools/profile/report.h"
#include "traces/quantile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FEW_REPEATS = 3 };

struct request {
    const char *job, *cluster, *db;
    int64_t repeats;
    double warm_s;
    struct texts plans;
    bool again;
    int64_t largest_kib;
    const char *agent;
    struct profile_away away;
};

/* Errors of the parent's fits against the new measurements. */
static void compare_fit(struct profile_bench *b, const struct profile *p,
                        const struct program_op *op, const struct op_row *row)
{
    const struct op_fit *f = op_fits_of(p, row->base, op->kind, &op->attrs, op->dtype);
    if (!f || !(row->seconds > 0)) return;
    double seconds = f->constant_s + f->s_per_flop * row->flops + f->s_per_byte * row->bytes;
    b->fit_off =
        arena_grow(b->arena, b->fit_off, b->n_fit_off, &b->fit_off_capacity, sizeof *b->fit_off);
    b->fit_off[b->n_fit_off++] = seconds / row->seconds - 1;
}

/* Seconds of the benchmark's COMPUTE spans of a key; the first rounds are warm-up. */
static size_t samples_of(const struct trace *t, uint64_t key, int32_t warm, double *values)
{
    size_t n = 0;
    for (size_t k = 0; k < t->n_spans; k++) {
        const struct span *s = &t->spans[k];
        if (s->kind != SPAN_COMPUTE || s->key != key || (s->microbatch < warm && s->step == 0))
            continue;
        values[n++] = units_s_from_ns(s->end_ns - s->begin_ns);
    }
    return n;
}

static double pace_of(struct profile_bench *b, const struct trace *t, const char *base,
                      const struct program_op *known, size_t n_known, int32_t warm,
                      const struct profile *p)
{
    double *values = ARENA_ARRAY(b->arena, double, t->n_spans + 1), seconds[PROFILE_ANCHORS];
    uint64_t keys[PROFILE_ANCHORS];
    for (size_t i = 0; i < n_known; i++) {
        size_t n = samples_of(t, known[i].key, warm, values);
        keys[i] = known[i].key;
        seconds[i] = n ? quantile_median_double(values, n) : 0;
    }
    return profile_pace_now(p, base, keys, seconds, n_known);
}

/* Rows of the measured operators: medians. */
static void rows_of(struct profile_bench *b, const struct trace *t, const char *base,
                    const struct program_op *ops, size_t n_ops, int32_t warm, struct profile *p)
{
    double *values = ARENA_ARRAY(b->arena, double, t->n_spans + 1),
           *copy = ARENA_ARRAY(b->arena, double, t->n_spans + 1);
    size_t at = p->n_ops;
    struct op_row *rows = ARENA_ARRAY(b->arena, struct op_row, p->n_ops + n_ops);
    if (p->n_ops) memcpy(rows, p->ops, p->n_ops * sizeof *rows);
    for (size_t i = 0; i < n_ops; i++) {
        const struct program_op *op = &ops[i];
        size_t n = samples_of(t, op->key, warm, values);
        if (!n) continue;
        memcpy(copy, values, n * sizeof *copy);
        b->n_measured++;
        rows[at] = (struct op_row){
            .base = base,
            .key = op->key,
            .kind = op->kind,
            .dtype = op->dtype,
            .text = op->name,
            .flops = op_flops(op->kind, &op->attrs, &op->shapes),
            .bytes = (double)(op_bytes_read(op->kind, &op->attrs, &op->shapes, op->dtype) +
                              op_bytes_written(op->kind, &op->attrs, &op->shapes, op->dtype)),
            .seconds = quantile_median_double(values, n) / (b->pace > 0 ? b->pace : 1),
            .spread = fit_spread(copy, n),
            .samples = (int32_t)n,
            .provenance = b->provenance};
        compare_fit(b, p, op, &rows[at++]);
    }
    p->ops = rows;
    p->n_ops = at;
    p->ops_sorted = false;
}

/* Rows are of the real device; the cost lookup applies the slowdown of an emulated one. */
static struct program_device device_of(const struct profile_bench *b, const char *base, int32_t gpu)
{
    struct program_device device = {.name = "bench",
                                    .type = base,
                                    .host = "localhost",
                                    .kind = "host",
                                    .memory_bytes = INT64_MAX / 2};
    if (gpu >= 0) device = lower_device(b->cluster, gpu);
    device.slowdown = b->cluster->emulated ? 1 : 0;
    return device;
}

/* n operators to measure, followed by n_known that already have rows in p. */
static enum status measure_some(struct profile_bench *b, const char *base,
                                const struct program_op *ops, size_t n, size_t n_known,
                                int64_t repeats, struct profile *p, struct error *err)
{
    struct program program;
    struct run_result r = {0};
    struct run_options o = {.steps = 1, .keep_trace = true};
    int32_t warm = 1, gpu = profile_gpu_of(&b->gpus, base);
    size_t all = n + n_known;
    if (!n) return OK;
    struct program_device device = device_of(b, base, gpu);
    if (gpu >= 0) warm = profile_warm_rounds(&b->gpus, base, ops, all);
    TRY(bench_ops(b->arena, ops, (int32_t)all, &device, (int32_t)repeats + warm,
                  b->job->model.vocabulary, &program, err));
    log_info("%s %zu unique operators of %d on %s, %lld times each",
             b->away.emit   ? "writing the benchmark of"
             : b->away.from ? "reading"
                            : "measuring",
             n, (int)b->list.seen, base, (long long)repeats);
    if (profile_is_away(&b->away))
        TRY(profile_away_bench(b->arena, &b->away, &program, &r.trace, err));
    else
        TRY(worker_run(b->arena, &program, &o, &r, err));
    if (!r.trace) return OK;
    b->pace = pace_of(b, r.trace, base, ops + n, n_known, warm, p);
    rows_of(b, r.trace, base, ops, n, warm, p);
    return OK;
}

/* Removes the row, so that another can replace it. */
static void drop_row(struct profile *p, const char *base, uint64_t key)
{
    struct op_row *rows = p->ops;
    size_t n = 0;
    for (size_t i = 0; i < p->n_ops; i++)
        if (rows[i].key != key || strcmp(rows[i].base, base) != 0) rows[n++] = rows[i];
    p->n_ops = n;
}

/* The operators among [first, end) of the list that are measured on a base device. */
static size_t unknown(struct profile_bench *b, const char *base, size_t first, size_t end,
                      struct profile *p, struct program_op *out)
{
    size_t n = 0;
    for (size_t i = first; i < end; i++) {
        const struct program_op *op = &b->list.ops[i];
        if (profile_row(p, base, op->key)) {
            if (!b->again) continue;
            drop_row(p, base, op->key);
        }
        out[n++] = *op;
    }
    return n;
}

/* An even sample of the job's operators that have rows in p. */
static size_t some_known(const struct profile_bench *b, const char *base, const struct profile *p,
                         struct program_op *out)
{
    const struct profile_ops *job = &b->of_job;
    size_t known = 0, n = 0, seen = 0;
    for (size_t i = 0; i < job->n; i++) known += profile_row(p, base, job->ops[i].key) != NULL;
    for (size_t i = 0; i < job->n; i++) {
        if (!profile_row(p, base, job->ops[i].key)) continue;
        if (seen++ * PROFILE_ANCHORS >= n * known && n < PROFILE_ANCHORS) out[n++] = job->ops[i];
    }
    return n;
}

static enum status measure_base(struct profile_bench *b, const char *base, int64_t repeats,
                                struct profile *p, struct error *err)
{
    const struct profile_ops *list = &b->list;
    struct program_op *ops =
                          ARENA_ARRAY(b->arena, struct program_op, list->n + PROFILE_ANCHORS + 1),
                      *few = ARENA_ARRAY(b->arena, struct program_op, list->n + 1);
    size_t n = unknown(b, base, 0, list->n_fully, p, ops),
           n_few = unknown(b, base, list->n_fully, list->n, p, few);
    TRY(measure_some(b, base, ops, n, some_known(b, base, p, ops + n), repeats, p, err));
    return measure_some(b, base, few, n_few, 0, repeats < FEW_REPEATS ? repeats : FEW_REPEATS, p,
                        err);
}

static enum status measure_ops(struct profile_bench *b, int64_t repeats, struct profile *p,
                               struct error *err)
{
    for (int32_t t = 0; t < b->cluster->n_types; t++) {
        const struct catalogue_device *d = NULL;
        const char *base = b->cluster->types[t].catalogue;
        bool seen = false;
        for (int32_t k = 0; k < t; k++) seen |= !strcmp(b->cluster->types[k].catalogue, base);
        if (seen) continue;
        TRY(catalogue_find(base, &d, err));
        if (!strcmp(d->backend, "host") && profile_is_away(&b->away))
            return error_set(err, ERR_INPUT,
                             "--emit and --from are for GPUs; device type %s is a host device, "
                             "which is measured on its own machine",
                             b->cluster->types[t].name);
        if (strcmp(d->backend, "host") != 0 && profile_gpu_of(&b->gpus, base) < 0) {
            log_warn("no %s on this machine: its costs stay the catalogue's prior%s%s", base,
                     *b->gpus.reason ? ": " : "", b->gpus.reason);
            continue;
        }
        TRY(measure_base(b, base, repeats, p, err));
    }
    return OK;
}

/* The plans' operators; each plan must be for the profiled cluster. */
static enum status collect_plans(struct profile_bench *b, const struct request *q, uint64_t hash,
                                 struct error *err)
{
    for (size_t i = 0; i < q->plans.count; i++) {
        struct plan p;
        TRY(common_plan(b->arena, q->plans.items[i], &p, err));
        if (common_cluster_hash(b->arena, &p.cluster) != hash)
            return error_set(err, ERR_INPUT, "%s: its version of cluster %s differs from %s",
                             q->plans.items[i], p.cluster.name, q->cluster);
        enum status st = profile_ops_of_plan(&b->list, &p, err);
        if (st != OK) return error_wrap(err, st, "%s", q->plans.items[i]);
    }
    return OK;
}

/* The parent: the newest profile of exactly this cluster, if any. */
static enum status load_parent(struct profile_bench *b, struct store *s, struct profile *p,
                               struct error *err)
{
    int64_t id = 0;
    bool exact = false;
    struct profile parent;
    enum status st = store_latest(s, p->cluster_hash, b->cluster, &id, &exact, err);
    if (st != OK && id < 0) return st; /* it cannot be read */
    if (st != OK || !exact) return OK;
    TRY(store_load(s, b->arena, id, &parent, err));
    parent.machine = p->machine;
    *p = parent;
    return OK;
}

/* Links, and copies to and from GPUs. With --from no links were measured: emulated ones are as stated, others keep the prior. */
static enum status measure_rest(struct profile_bench *b, const struct request *q, struct profile *p,
                                struct error *err)
{
    struct profile_gpus *k = &b->gpus;
    if (b->away.from) return profile_away_copies(b->arena, &b->away, &k->copies, &k->n_copies, err);
    TRY(profile_links_measure(&b->links, q->repeats, p, err));
    return q->plans.count ? OK : profile_copies(b->arena, k, (int32_t)q->repeats, err);
}

/* With --from no collectives were measured. */
static enum status measure_collectives(struct profile_bench *b, const struct request *q,
                                       struct profile *p, struct error *err)
{
    if (b->away.from) return OK;
    return profile_collectives_measure(&b->links, q->repeats, q->again, p, &b->n_collectives, err);
}

/* Appends a profile with the plans' operators; without a new operator nothing is appended. Without a store (--emit) benchmarks are
 * only written. */
static enum status measure_plans(struct profile_bench *b, const struct request *q, struct store *s,
                                 struct profile *p, struct error *err)
{
    TRY(collect_plans(b, q, p->cluster_hash, err));
    if (!b->again) TRY(profile_ops_of_job(&b->of_job, err));
    if (s) TRY(load_parent(b, s, p, err));
    TRY(measure_ops(b, q->repeats, p, err));
    if (!s) return OK;
    if (!p->id) TRY(measure_rest(b, q, p, err));
    TRY(measure_collectives(b, q, p, err));
    if (p->id && !b->n_measured && !b->n_collectives) return OK;
    p->parent = p->id;
    TRY(op_fits_fit(b->arena, p, err));
    return store_append(s, p, err);
}

static enum status measure_job(struct profile_bench *b, const struct request *q, struct store *s,
                               struct profile *p, struct error *err)
{
    TRY(profile_ops_of_job(&b->list, err));
    TRY(measure_ops(b, q->repeats, p, err));
    if (!s) return OK;
    TRY(measure_rest(b, q, p, err));
    TRY(measure_collectives(b, q, p, err));
    TRY(op_fits_fit(b->arena, p, err));
    return store_append(s, p, err);
}

/* With --emit and --from every device is available. */
static void find_gpus(struct profile_bench *b, const struct request *q)
{
    if (profile_is_away(&q->away))
        b->gpus = (struct profile_gpus){.cluster = b->cluster, .warm_s = q->warm_s, .reason = ""};
    else
        profile_gpus_find(b->arena, b->cluster, q->warm_s, &b->gpus);
}

static enum status profile(struct arena *a, const struct request *q, bool as_json,
                           struct error *err)
{
    struct job j;
    struct cluster c;
    struct store *s = NULL;
    TRY(job_read(a, q->job, &j, err));
    TRY(cluster_read(a, q->cluster, &c, err));
    TRY(team_complete(&c, err));
    struct profile_bench b = {
        .arena = a,
        .job = &j,
        .cluster = &c,
        .list = {.arena = a, .job = &j, .cluster = &c},
        .of_job = {.arena = a, .job = &j, .cluster = &c},
        .provenance = q->plans.count ? "profile of plans" : "profile",
        .away = q->away,
        .again = q->again || q->away.from,
        .links = {.arena = a, .cluster = &c, .agent = q->agent, .largest_bytes = q->largest_kib << 10}};
    struct profile p = {.cluster = c.name,
                        .machine = common_machine(a),
                        .note = j.model.name,
                        .pace = 1,
                        .calibrated_on = "",
                        .cluster_hash = common_cluster_hash(a, &c)};
    b.links.gpus = &b.gpus;
    find_gpus(&b, q);
    TRY(team_fused(a, &c, &b.list.lower, err));
    b.of_job.lower = b.list.lower;
    TRY(profile_away_begin(a, &b.away, err));
    if (!q->away.emit) TRY(store_open(a, q->db, true, &s, err)); /* before minutes of measuring */
    enum status st =
        q->plans.count ? measure_plans(&b, q, s, &p, err) : measure_job(&b, q, s, &p, err);
    if (s) store_close(s);
    if (st == OK && q->away.emit) profile_away_report(&b.away, b.list.n, as_json);
    if (st == OK && !q->away.emit) profile_report(&p, &b, q->plans.count, as_json);
    return st;
}

static enum status run_profile(struct arena *a, void *request, const struct common *common,
                               struct error *err)
{
    const struct request *q = request;
    if (q->agent && (q->away.emit || q->away.from))
        return error_set(err, ERR_USAGE, "--agent is for measurements; --emit and --from have none of links");
    if (q->again && !q->plans.count)
        return error_set(err, ERR_USAGE, "--again needs a PLAN; without one every row is measured");
    if (q->away.emit && (q->db || q->away.from))
        return error_set(err, ERR_USAGE,
                         "--emit excludes --db and --from, because it measures nothing");
    if (!q->db && !q->away.emit) return error_set(err, ERR_USAGE, "profile needs --db DB");
    return profile(a, q, common->json, err);
}

static const struct option options[] = {
    {.name = "JOB", ARGUMENT_AT(job), .help = "job file, e.g. job.yaml"},
    {.name = "CLUSTER", ARGUMENT_AT(cluster), .help = "cluster file, e.g. cluster.yaml"},
    {.name = "PLAN",
     ARGUMENTS_AT(plans),
     .min = 0,
     .max = 1000,
     .help = "plans whose operator shapes are measured in addition; rows of the cluster's newest "
             "profile are kept"},
    {.name = "db",
     TEXT_AT(db),
     .unit = "DB",
     .help = "profile database, e.g. profiles.db; created if missing",
     .preset = "none; required without --emit"},
    {.name = "again",
     FLAG_AT(again),
     .help = "measure rows again that the newest profile already has; needs PLAN"},
    {.name = "repeats",
     INT_AT(repeats),
     .unit = "N",
     .min = 3,
     .max = 1000,
     .help = "samples of each operator and message size, e.g. 50"},
    {.name = "warm",
     DOUBLE_AT(warm_s),
     .unit = "SECONDS",
     .min = 0,
     .max = 60,
     .help = "warm-up of a GPU before the first sample, so that its clocks have settled, e.g. 2"},
    {.name = "largest",
     INT_AT(largest_kib),
     .unit = "KIB",
     .min = 1,
     .max = 1 << 20,
     .help = "largest measured message and collective between GPUs, in KiB, e.g. 262144"},
    {.name = "agent",
     TEXT_AT(agent),
     .unit = "COMMAND",
     .help = "command that starts a program on the `host:` of a node, with which links between hosts, and those at switches, are measured "
             "by ranks of Open MPI, e.g. ssh or \"ssh -p 2222\"; every host has this program and the working directory",
     .preset = "none: links to other hosts keep the prior"},
    {.name = "emit",
     TEXT_AT(away.emit),
     .unit = "DIR",
     .help =
         "folder for the GPU benchmarks, to be run by `make gpu-run` on the machine that has the "
         "GPUs, instead of measuring here"},
    {.name = "from",
     TEXT_AT(away.from),
     .unit = "DIR",
     .help = "folder with the results of --emit's benchmarks; the other arguments stay the same"},
    {0}};

const struct verb cmd_profile = {
    .name = "profile",
    .summary = "measure operators and links on the devices of a cluster",
    .about = "Each distinct operator of the job is measured once on each device type, each link "
             "between the first pair of devices that uses it, and the collectives of GPUs. Medians "
             "and their spread become a new version of the profile in the database.",
    .options = options,
    .examples = {"musher profile job.yaml cluster.yaml --db profiles.db",
                 "# also the shapes that a plan uses",
                 "musher profile job.yaml cluster.yaml plan.yaml --db profiles.db",
                 "# for GPUs of another machine",
                 "musher profile job.yaml cluster.yaml plan.yaml --emit benches"},
    REQUEST(.repeats = 15, .warm_s = 0.5, .largest_kib = 65536),
    .run = run_profile,
};
