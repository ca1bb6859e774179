#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "core/lower/lower.h"
#include "core/model/checkpoint_interval.h"
#include "sim/goodput/goodput.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/print/goodput.h"
#include "tools/script_goodput.h"
#include "traces/saves.h"
#include "traces/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { INTERVALS_MAX = 64 };
#define SLOW_MAX 0.99 /* share of the speed; --background-slow */

struct request {
    const char *plan, *db, *failures, *spot, *interval, *storage, *trace;
    const char *memory_interval, *memory_pause, *memory_copy, *memory_restart;
    const char *mtbf, *checkpoint, *background, *detect, *restart, *replan, *repair, *outlook,
        *notice;
    double days, shape, background_slow;
    const char *faults, *measured, *step;
    int64_t steps, save_every, memory_every, max_restarts;
    bool elastic;
    int64_t profile, gpus, per_node, spares, unit, samples, threads, seed;
    bool replan_speeds;
    struct texts speeds;
};

/* --- reading ---------------------------------------------------------------------------------- */

static enum status durations(const struct request *q, struct goodput_job *j, struct error *err)
{
    const struct {
        const char *name, *text;
        int64_t *ns;
    } all[] = {{"checkpoint", q->checkpoint, &j->checkpoint_ns},
               {"background", q->background, &j->background_ns},
               {"detect", q->detect, &j->detect_ns},
               {"restart", q->restart, &j->restart_ns},
               {"replan", q->replan, &j->replan_ns},
               {"repair", q->repair, &j->repair_ns},
               {"outlook", q->outlook, &j->outlook_ns},
               {"notice", q->notice, &j->notice_ns},
               {"memory-interval", q->memory_interval, &j->memory_interval_ns},
               {"memory-pause", q->memory_pause, &j->memory_ns},
               {"memory-copy", q->memory_copy, &j->memory_copy_ns},
               {"memory-restart", q->memory_restart, &j->memory_restart_ns}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].text) TRY(common_duration(all[i].name, all[i].text, all[i].ns, err));
    if (!q->memory_restart) j->memory_restart_ns = j->restart_ns;
    return OK;
}

/* Bytes of a checkpoint: parameters and optimizer state of one replica, each once. */
static enum status checkpoint_of_plan(struct arena *a, const struct plan *p, const char *storage, int64_t *out_ns, struct error *err)
{
    struct program program;
    char hint[UNITS_HINT];
    double rate = 0, bytes = 0;
    if (!units_parse_bytes_per_s(storage, &rate) || !(rate > 0))
        return error_set(err, ERR_USAGE, "--storage %s: not a rate such as 2 GB/s%s", storage,
                         units_hint(hint, QUANTITY_BYTES_PER_S, storage));
    TRY(common_lower(a, p, false, &program, err));
    for (int32_t s = 0; s < program.n_stages; s++) {
        const struct program_stage *x = &program.stages[s];
        if (x->replica == 0)
            bytes += (double)(x->class_bytes[SLOT_PARAMETER] + x->class_bytes[SLOT_STATE] + x->class_bytes[SLOT_FEEDBACK]);
    }
    if (bytes / rate > 1e9) return error_set(err, ERR_USAGE, "--storage %s: too slow", storage);
    *out_ns = units_ns_from_s(bytes / rate);
    return OK;
}

/* The cost of checkpoints that a run has measured. */
static enum status checkpoint_of_trace(struct arena *a, const char *path, struct goodput_job *j, struct error *err)
{
    struct trace *t;
    if (!path) return OK;
    TRY(trace_read(a, path, &t, err));
    struct saves_cost x = saves_of_trace(t);
    if (!x.n) return error_set(err, ERR_INPUT, "%s: no checkpoints; run --save DIR --save-every N --trace TRACE records them", path);
    j->checkpoint_ns = x.snapshot_ns + x.wait_ns, j->background_ns = x.write_ns;
    j->background_slow = x.write_ns ? fmin((double)x.slowdown_ns / (double)x.write_ns, SLOW_MAX) : 0;
    return OK;
}

static enum status make_left(struct arena *a, const struct request *q, struct goodput_report *s, struct error *err)
{
    struct team_left *f = &s->left;
    struct plan plan;
    struct profile profile;
    if (q->plan) {
        TRY(common_plan(a, q->plan, &plan, err));
        TRY(common_profile(a, &plan.cluster, q->db, q->profile, &profile, err));
        TRY(team_left_of_plan(a, &plan, f, err));
        if (q->replan_speeds) TRY(team_left_plan_all(a, &plan, &profile, 200, f, err));
        if (q->storage) TRY(checkpoint_of_plan(a, &plan, q->storage, &s->job.checkpoint_ns, err));
    } else {
        if (!q->spot && !q->gpus)
            return error_set(err, ERR_USAGE, "--gpus 0: a job needs at least one device");
        int32_t n = q->spot ? s->spot.n_types : 1;
        *f = (struct team_left){.n_types = n,
                                .servers = n,
                                .types = ARENA_ARRAY(a, const char *, (size_t)n),
                                .devices = ARENA_ARRAY(a, int64_t, (size_t)n),
                                .spares = ARENA_ARRAY(a, int64_t, (size_t)n),
                                .weights = ARENA_ARRAY(a, double, (size_t)n),
                                .unit = q->unit};
        for (int32_t t = 0; t < n; t++) {
            f->types[t] = q->spot ? s->spot.types[t] : "gpu";
            f->devices[t] = q->spot ? s->spot.most[t] : q->gpus;
            f->weights[t] = 1;
        }
        f->spares[0] = q->spares;
    }
    f->unit = q->unit;
    return OK;
}

/* --speed TYPE=WEIGHT */
static enum status set_speeds(const struct request *q, struct team_left *f, struct error *err)
{
    for (size_t i = 0; i < q->speeds.count; i++) {
        const char *text = q->speeds.items[i], *equals = strrchr(text, '=');
        double weight = 0;
        int32_t t = 0;
        while (equals && t < f->servers &&
               (strlen(f->types[t]) != (size_t)(equals - text) ||
                strncmp(f->types[t], text, (size_t)(equals - text)) != 0))
            t++;
        if (!equals || t == f->servers || !units_parse_number(equals + 1, &weight) ||
            !(weight >= 0 && weight <= 1e9))
            return error_set(err, ERR_USAGE,
                             "--speed %s: TYPE=WEIGHT with a type such as %s and a weight >= 0",
                             text, f->types[0]);
        f->weights[t] = weight;
    }
    if (q->speeds.count && f->table)
        return error_set(err, ERR_USAGE, "--speed and --replan-speeds exclude each other");
    return OK;
}

/* The trace's columns in the order of its types. */
static enum status match_spot(struct arena *a, struct goodput_report *s, struct error *err)
{
    const struct team_left *f = &s->left;
    int32_t column[GOODPUT_TYPES_MAX];
    for (int32_t t = 0; t < f->n_types; t++) {
        for (column[t] = s->spot.n_types - 1; column[t] >= 0; column[t]--)
            if (!strcmp(s->spot.types[column[t]], f->types[t])) break;
        if (t >= f->servers)
            return error_set(err, ERR_INPUT, "--spot: the plan has parameter servers (%s), which the trace does not tell from workers; leave --spot out",
                             f->types[t]);
        if (column[t] < 0 && f->devices[t])
            return error_set(err, ERR_INPUT,
                             "the --spot trace has no column %s for that device type", f->types[t]);
    }
    for (size_t i = 0; i < s->spot.n_changes; i++) {
        int64_t *devices = ARENA_ARRAY(a, int64_t, (size_t)f->n_types);
        for (int32_t t = 0; t < f->n_types; t++)
            devices[t] = column[t] < 0 ? 0 : s->spot.changes[i].devices[column[t]];
        s->spot.changes[i].devices = devices;
    }
    s->job.n_changes = s->spot.n_changes;
    s->job.changes = s->spot.changes;
    return OK;
}

static enum status make_causes(struct arena *a, const struct request *q, struct goodput_report *s, struct error *err)
{
    struct goodput_cause *causes = NULL;
    int64_t devices = 0, mtbf_ns = 0;
    for (int32_t t = 0; t < s->left.n_types; t++) devices += s->left.devices[t];
    if (q->mtbf && q->failures)
        return error_set(err, ERR_USAGE, "--mtbf and --failures exclude each other");
    if (!devices) return OK; /* the simulation reports the error */
    if (q->failures) {
        TRY(goodput_read_failures(a, q->failures, devices, q->per_node, &s->job.n_causes, &causes, err));
    } else if (q->mtbf) {
        if (strcmp(q->mtbf, "never") != 0) {
            TRY(common_duration("mtbf", q->mtbf, &mtbf_ns, err));
            if (!mtbf_ns) return error_set(err, ERR_USAGE, "--mtbf %s: not above 0", q->mtbf);
        }
        causes = ARENA_ARRAY(a, struct goodput_cause, 1);
        s->job.n_causes = 1;
        *causes = (struct goodput_cause){"failure", "",
                                         mtbf_ns ? units_s_from_ns(mtbf_ns) : INFINITY, 1, 1};
    } else {
        s->job.n_causes = goodput_llama3(a, devices, q->per_node, &causes);
    }
    for (size_t i = 0; i < s->job.n_causes; i++) causes[i].shape = q->shape;
    s->job.causes = causes;
    return OK;
}

/* Rate of withdrawals in the trace, in the unit of failures. */
static double stops_of_trace(const struct goodput_job *j)
{
    double stops = 0;
    for (size_t i = 1; i < j->n_changes; i++) {
        bool fewer = false;
        for (int32_t t = 0; t < j->n_types; t++)
            fewer |= j->changes[i].devices[t] < j->changes[i - 1].devices[t] &&
                     j->changes[i].devices[t] < j->devices[t];
        stops += fewer && j->changes[i].time_ns < j->horizon_ns;
    }
    return stops;
}

static enum status make_job(struct arena *a, const struct request *q, struct goodput_report *s, struct error *err)
{
    struct goodput_job *j = &s->job;
    j->checkpoint_ns = units_ns_from_s(60);
    j->restart_ns = units_ns_from_s(300);
    if (q->spot) TRY(goodput_read_spot(a, q->spot, &s->spot, err));
    TRY(make_left(a, q, s, err));
    TRY(durations(q, j, err));
    TRY(set_speeds(q, &s->left, err));
    if (q->spot) TRY(match_spot(a, s, err));
    TRY(make_causes(a, q, s, err));
    j->n_types = s->left.n_types;
    j->types = s->left.types;
    j->devices = s->left.devices;
    j->spares = s->left.spares;
    j->speed = team_left_speed;
    j->user = &s->left;
    j->background_slow = q->background_slow / 100;
    TRY(checkpoint_of_trace(a, q->trace, j, err));
    j->horizon_ns = units_ns_from_s((q->days > 0 ? q->days : q->spot ? 0 : 54) * 86400);
    if (!j->horizon_ns) j->horizon_ns = s->spot.end_ns;
    if (!j->horizon_ns) return error_set(err, ERR_USAGE, "a --spot trace of one row needs --days");
    double M = goodput_mtbf(j), stops = stops_of_trace(j);
    s->C = units_s_from_ns(j->checkpoint_ns);
    s->M = 1 / (1 / M + stops / units_s_from_ns(j->horizon_ns));
    return OK;
}

/* --- intervals -------------------------------------------------------------------------------- */

/* Intervals around Daly's optimum, which does not exist if nothing interrupts the job or a checkpoint costs nothing. */
#define WRITES_MAX 1e6 /* checkpoints of one run, if every interval around the best is simulated */

static size_t automatic_intervals(const struct goodput_report *s, int64_t *out)
{
    const double share[] = {0.25, 0.5, 0.75, 1, 4.0 / 3, 2, 4};
    double middle = isfinite(s->M) ? checkpoint_interval_daly(s->C, s->M) : INFINITY;
    size_t n = 0;
    if (middle < 1) middle = 1;
    for (size_t i = 0; i < sizeof share / sizeof *share; i++) {
        double t = share[i] * middle;
        if (t < units_s_from_ns(s->job.horizon_ns)) out[n++] = units_ns_from_s(t);
    }
    if (n < sizeof share / sizeof *share) out[n++] = s->job.horizon_ns;
    return n;
}

static enum status intervals(struct arena *a, const struct request *q, struct goodput_report *s, int64_t *out, struct error *err)
{
    s->automatic = !strcmp(q->interval, "auto");
    if (s->automatic) {
        s->n = automatic_intervals(s, out);
        double writes = (double)s->job.horizon_ns / ((double)out[0] + (double)s->job.checkpoint_ns);
        if (writes > WRITES_MAX)
            return error_set(err, ERR_USAGE,
                             "--interval auto: checkpoints cost almost nothing here, and %.3g of "
                             "them are too many for repeated simulation; set --interval TIME",
                             writes);
        return OK;
    }
    char *text = arena_strdup(a, q->interval);
    for (char *next = text; next; s->n++) {
        char *comma = strchr(text, ',');
        next = comma ? comma + 1 : NULL;
        if (comma) *comma = 0;
        if (s->n == INTERVALS_MAX)
            return error_set(err, ERR_USAGE, "--interval: at most %d values", INTERVALS_MAX);
        TRY(common_duration("interval", text, &out[s->n], err));
        text = next;
    }
    return OK;
}

static enum status run_studies(struct arena *a, const struct request *q, struct goodput_report *s, struct error *err)
{
    int64_t t[INTERVALS_MAX];
    TRY(intervals(a, q, s, t, err));
    s->results = ARENA_ARRAY(a, struct goodput_result, s->n);
    size_t best = 0;
    for (size_t i = 0; i < s->n; i++) {
        TRY(goodput_study(a, &s->job, t[i], (uint64_t)q->seed, (int32_t)q->samples,
                          (int32_t)q->threads, &s->results[i], err));
        if (s->results[i].goodput.mean > s->results[best].goodput.mean) best = i;
    }
    s->best = s->results[best];
    if (!s->automatic || s->n < 2 || !(s->best.goodput.mean > 0)) return OK;
    struct goodput_result finer;
    TRY(goodput_best(a, &s->job, t[best ? best - 1 : 0], t[best + 1 < s->n ? best + 1 : best],
                     (uint64_t)q->seed, (int32_t)q->samples, (int32_t)q->threads, &finer, err));
    if (finer.goodput.mean > s->best.goodput.mean) s->best = finer;
    return OK;
}

static enum status goodput(struct arena *a, const struct request *q, bool as_json, struct error *err)
{
    struct goodput_report s = {.samples = (int32_t)q->samples};
    TRY(make_job(a, q, &s, err));
    TRY(run_studies(a, q, &s, err));
    if (as_json)
        goodput_report_json(&s);
    else
        goodput_report_text(a, &s);
    return OK;
}

/* A run with a fault script, of so many steps. */
static enum status script(struct arena *a, const struct request *q, bool as_json, struct error *err)
{
    struct script_request s = {.plan = q->plan,
                               .script = q->faults,
                               .measured = q->measured,
                               .db = q->db,
                               .profile = q->profile,
                               .steps = q->steps,
                               .save_every = q->save_every,
                               .memory_every = q->memory_every,
                               .max_restarts = q->max_restarts,
                               .elastic = q->elastic};
    const struct {
        const char *name, *text;
        int64_t *ns;
    } all[] = {{"step", q->step, &s.step_ns},
               {"checkpoint", q->checkpoint, &s.checkpoint_ns},
               {"detect", q->detect, &s.detect_ns},
               {"restart", q->restart, &s.restart_ns},
               {"replan", q->replan, &s.replan_ns},
               {"memory-pause", q->memory_pause, &s.memory_ns},
               {"memory-copy", q->memory_copy, &s.memory_copy_ns},
               {"memory-restart", q->memory_restart, &s.memory_restart_ns}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        *all[i].ns = -1;
        if (all[i].text) TRY(common_duration(all[i].name, all[i].text, all[i].ns, err));
    }
    if (!q->steps) return error_set(err, ERR_USAGE, "--faults needs --steps N, the steps of the run");
    return script_goodput(a, &s, as_json, err);
}

static enum status run_goodput(struct arena *a, void *request, const struct common *common, struct error *err)
{
    struct request *q = request;
    q->seed = common->seed;
    return q->faults ? script(a, q, common->json, err) : goodput(a, q, common->json, err);
}

#define TIME(name_, field, preset_, ...) {.name = name_, TEXT_AT(field), .unit = "TIME", .preset = preset_, .help = __VA_ARGS__}
#define COUNT(name_, field, least, most, ...) {.name = name_, INT_AT(field), .unit = "N", .min = least, .max = most, .help = __VA_ARGS__}
static const struct option options[] = {
    {.name = "PLAN",
     ARGUMENT_AT(plan),
     .min = -1,
     .help = "plan whose devices run the job; the other devices of its cluster are spares. Without one of its parameter servers the job waits"},
    {.name = "days",
     DOUBLE_AT(days),
     .unit = "DAYS",
     .min = 0,
     .max = 10000,
     .help = "length of the run, e.g. 30",
     .preset = "0: 54, or the length of the --spot trace"},
    COUNT("gpus", gpus, 0, 1e8, "devices of the job, without PLAN and --spot, e.g. 1024",
          .excludes = "PLAN|spot"),
    COUNT("spares", spares, 0, 1e8, "spare devices, without PLAN, e.g. 16",
          .excludes = "PLAN"),
    COUNT("node", per_node, 1, 1e6, "GPUs lost together when a node fails, e.g. 4"),
    COUNT("unit", unit, 1, 1e8,
          "devices that are useful only together, such as those of a replica, e.g. 64"),
    {.name = "speed",
     TEXTS_AT(speeds),
     .unit = "TYPE=WEIGHT",
     .needs = "PLAN|spot",
     .help = "relative speed of a device type of the --spot trace, e.g. V100=0.4"},
    {.name = "replan-speeds",
     FLAG_AT(replan_speeds),
     .needs = "PLAN",
     .help = "search a new plan for every set of remaining devices to get the speed after losses, "
             "instead of assuming it proportional to their number"},
    {.name = "db",
     TEXT_AT(db),
     .unit = "DB",
     .needs = "PLAN",
     .help = "profile database for PLAN, e.g. profiles.db",
     .preset = "costs estimated from the device catalogue"},
    OPTION_PROFILE(profile),
    {.name = "failures",
     TEXT_AT(failures),
     .unit = "CSV",
     .help = "failure counts by cause, which give the failure rate",
     .preset = "Llama 3's 419 in 54 days of 16384 GPUs"},
    TIME("mtbf", mtbf, "the rate of --failures",
         "mean time between failures of the whole job, e.g. 12h, or never"),
    {.name = "shape",
     DOUBLE_AT(shape),
     .unit = "K",
     .min = 0.1,
     .max = 100,
     .help = "shape of the Weibull distribution of times between failures; 1 is exponential"},
    {.name = "spot",
     TEXT_AT(spot),
     .unit = "CSV",
     .help =
         "trace of spot availability: a column time_s or Timestamp, then counts of device types"},
    TIME("notice", notice, "0", "warning before spot devices are preempted, e.g. 30s",
         .needs = "spot"),
    TIME("outlook", outlook, "0: to the end of the run",
         "expected time that new spot devices stay, e.g. 2h", .needs = "spot"),
    TIME("checkpoint", checkpoint, "60s", "pause of the job for one checkpoint, e.g. 5s"),
    {.name = "storage",
     TEXT_AT(storage),
     .unit = "RATE",
     .needs = "PLAN",
     .excludes = "checkpoint",
     .help = "write bandwidth of the storage, e.g. 1GB/s: the pause of a checkpoint is then PLAN's "
             "weights and optimizer state / RATE"},
    TIME("background", background, "0",
         "asynchronous copy behind the pause until a checkpoint is safe, e.g. 2min"),
    {.name = "background-slow",
     DOUBLE_AT(background_slow),
     .unit = "PERCENT",
     .min = 0,
     .max = 99,
     .needs = "background",
     .help = "slowdown of training during that copy, e.g. 3"},
    {.name = "trace",
     TEXT_AT(trace),
     .unit = "TRACE",
     .excludes = "checkpoint|storage|background|background-slow",
     .help = "trace of run --save-every, whose checkpoints give the pause, the copy behind it and the slowdown"},
    TIME("detect", detect, "0", "time until a failure is noticed, e.g. 2min"),
    TIME("restart", restart, "5min", "time to start again and load a checkpoint"),
    TIME("replan", replan, "0", "additional time of a restart on other devices than before"),
    TIME("repair", repair, "0: replaced during the restart",
         "time until lost devices are back, e.g. 3h"),
    TIME("memory-interval", memory_interval, "0: none", "time between checkpoints in the memory of a peer node (Gemini), which failures restart from, e.g. 1min"),
    TIME("memory-pause", memory_pause, "0", "pause of the job for one of these, e.g. 50ms", .needs = "memory-interval|memory-every"),
    TIME("memory-copy", memory_copy, "0", "copy to the peer behind that pause until it is safe, e.g. 5s", .needs = "memory-interval|memory-every"),
    TIME("memory-restart", memory_restart, "--restart", "time to start again and load one, e.g. 30s", .needs = "memory-interval|memory-every"),
    {.name = "interval",
     TEXT_AT(interval),
     .unit = "LIST",
     .help =
         "times between checkpoints to compare, e.g. 10min,30min,1h; auto: the best is searched"},
    {.name = "faults",
     TEXT_AT(faults),
     .unit = "FILE",
     .needs = "PLAN",
     .excludes = "failures|mtbf|spot|days|interval|samples|storage|repair|memory-interval",
     .help = "fault script of a run (musher run --faults), whose goodput is predicted instead, e.g. faults.yaml"},
    COUNT("steps", steps, 0, 1e9, "steps of that run, e.g. 500", .needs = "faults"),
    COUNT("save-every", save_every, 0, 1e9, "steps between its checkpoints, e.g. 50", .needs = "faults", .preset = "0: one at the end"),
    COUNT("memory-every", memory_every, 0, 1e9, "steps between its checkpoints in host memory, e.g. 5", .needs = "faults", .preset = "0: none"),
    COUNT("max-restarts", max_restarts, 0, 1e6, "its restarts after failures", .needs = "faults"),
    {.name = "elastic", FLAG_AT(elastic), .needs = "faults", .help = "plan again without lost devices, as run --elastic does"},
    {.name = "measured",
     TEXT_AT(measured),
     .unit = "FILE",
     .needs = "faults",
     .help = "output of run --json, whose step, checkpoints, detection and restarts are the costs, e.g. run.json",
     .preset = "costs are simulated or assumed"},
    TIME("step", step, "measured, or simulated", "time of a step, e.g. 120ms", .needs = "faults"),
    COUNT("samples", samples, 1, 1e6, "number of simulated runs, e.g. 1000"),
    COUNT("threads", threads, 1, 1024, "threads, e.g. 8; the result does not depend on them"),
    {0}};

const struct verb cmd_goodput = {
    .name = "goodput",
    .summary = "predict days to months of training with failures and checkpoints",
    .about =
        "Goodput is the share of the time that ends up in kept training steps. A run is sampled "
        "with failures, lost work, restarts, checkpoints and, with --spot, preempted devices; "
        "the output states the goodput of each checkpoint interval and where the time goes. "
        "Times are numbers with ms, s, min, h or d.",
    .options = options,
    .examples = {"musher goodput --days 54 --gpus 16384 --checkpoint 5s --restart 5min",
                 "musher goodput plan.yaml --mtbf 12h --repair 2h --replan-speeds --storage 1GB/s",
                 "musher goodput plan.yaml --faults faults.yaml --steps 500 --save-every 50 --measured run.json",
                 "musher goodput --spot spot.csv --speed V100=0.4 --mtbf never --notice 30s"},
    REQUEST(.interval = "auto", .gpus = 16384, .per_node = 8, .unit = 1, .shape = 1, .samples = 100,
            .threads = 1, .max_restarts = 1000),
    .run = run_goodput,
};
