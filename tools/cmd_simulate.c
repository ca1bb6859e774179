#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "sim/uncertainty/loading.h"
#include "sim/uncertainty/montecarlo.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/predict.h"
#include "tools/print/classes.h"
#include "tools/print/explain.h"
#include "tools/print/metrics.h"
#include "tools/print/stated.h"
#include "tools/print/use.h"

#include <math.h>
#include <stdio.h>

enum { WHAT_IF_TRIALS = 32 }; /* default of --what-if */

struct request {
    const char *plan, *db, *trace, *trace_memory;
    int64_t profile, steps, what_if, samples, threads;
    double model_error, straggler_share, straggler_factor;
    int64_t straggler_steps, loaders, prefetch;
    const char *load;
    double load_cv;
    bool deterministic, explain, jitter_alone, fold, all;
    int detail; /* 0 operator, 1 stage */
    int64_t seed;
    struct texts runs; /* --jitter: traces of runs */
    struct run_length length;
};

enum { LOADED_STEPS = 20000, LOADERS_MAX = 256 };

/* Steps that wait for data: what the loaders of a run make of the prediction. */
struct fed {
    struct loading loading; /* loaders 0: no --loaders */
    struct loading_result result;
    int32_t enough;
};

static void put_interval(struct json *j, const char *key, const struct montecarlo_summary *s)
{
    const struct montecarlo_end *ends[] = {&s->p5, &s->p50, &s->p95};
    const char *const names[] = {"p5", "p50", "p95"};
    json_put_object_line(j, key);
    for (int i = 0; i < 3; i++) json_put_int(j, names[i], llround(ends[i]->value));
    json_close(j);
}

/* 95 % confidence interval of an end; null with too few samples. */
static void put_confidence(struct json *j, const char *key, const struct montecarlo_end *e)
{
    if (!e->bounded) {
        json_put_null(j, key);
        return;
    }
    json_put_list_line(j, key);
    json_put_int(j, NULL, llround(e->low));
    json_put_int(j, NULL, llround(e->high));
    json_close(j);
}

static void put_jitter(struct json *j, const struct cluster *c, const struct jitter_model *m)
{
    json_put_list(j, "jitter");
    for (int32_t t = 0; t < m->n_types; t++) {
        double own = 0;
        for (int32_t k = 0; k < OP_KIND_COUNT; k++)
            if (m->types[t].own_cv[k] > own) own = m->types[t].own_cv[k];
        json_put_object_line(j, NULL);
        json_put_text(j, "type", c->types[t].name);
        json_put_bool(j, "from_runs", m->types[t].fitted);
        json_put_double(j, "step_cv", m->types[t].step_cv);
        json_put_double(j, "call_cv", m->types[t].call_cv);
        json_put_double(j, "max_operator_cv", own);
        json_close(j);
    }
    json_close(j);
    json_put_double(j, "straggler_share", m->straggler_share);
    json_put_double(j, "straggler_factor", m->straggler_factor);
}

static void put_samples(struct json *j, const struct cluster *c, const struct montecarlo_result *m,
                        const struct jitter_model *x)
{
    put_jitter(j, c, x);
    json_put_int(j, "samples", m->samples);
    put_interval(j, "interval_ns", &m->iteration);
    put_confidence(j, "p5_confidence_ns", &m->iteration.p5);
    put_confidence(j, "p95_confidence_ns", &m->iteration.p95);
    json_put_double(j, "mean_ns", m->iteration.mean);
    json_put_double(j, "standard_error_ns", m->iteration.error);
}

static void put_fed(struct json *j, const struct fed *f)
{
    json_put_object_line(j, "loading");
    json_put_int(j, "loaders", f->loading.loaders);
    json_put_double(j, "step_ns", f->result.step_ns);
    json_put_double(j, "waiting", f->result.waiting);
    json_put_int(j, "first_ns", f->result.first_ns);
    json_put_int(j, "enough_loaders", f->enough);
    json_close(j);
}

static void print_json(struct arena *a, const struct plan *plan, const struct program *p,
                       const struct profile *profile, const struct sim_result *r,
                       const struct explain *why, const struct prediction *told,
                       const struct montecarlo_result *m, const struct jitter_model *x,
                       const struct fed *f, const struct metrics *metrics)
{
    struct json j;
    common_json_begin(&j);
    json_put_text(&j, "plan", plan->name);
    json_put_int(&j, "profile_id", profile->id);
    print_stated(a, &plan->cluster, &plan->job, &j);
    common_print_training(a, plan, &r->staleness, &j);
    json_put_bool(&j, "emulated", plan->cluster.emulated);
    json_put_int(&j, "iteration_ns", r->iteration_ns);
    json_put_int(&j, "events", r->events);
    if (m->samples) put_samples(&j, &plan->cluster, m, x);
    if (f->loading.loaders) put_fed(&j, f);
    print_metrics_json(&j, metrics);
    json_put_list(&j, "devices");
    for (int32_t i = 0; i < p->n_devices; i++) {
        json_put_object_line(&j, NULL);
        json_put_text(&j, "id", p->devices[i].name);
        json_put_int(&j, "busy_ns", r->devices[i].busy_ns);
        json_put_int(&j, "idle_ns", r->devices[i].idle_ns);
        json_put_int(&j, "peak_bytes", r->devices[i].peak_bytes);
        json_put_int(&j, "reserved_bytes", r->devices[i].reserved_bytes);
        if (m->samples) put_interval(&j, "busy_interval_ns", &m->devices[i].busy_ns);
        if (m->samples) json_put_int(&j, "max_peak_bytes", m->devices[i].peak_bytes);
        json_close(&j);
    }
    json_close(&j);
    if (told->reduced) json_put_bool(&j, "trace_of_replicas", true);
    if (why) json_put_bool(&j, "explained_by_replicas", told->by_replicas);
    if (why) print_explain_json(&j, told->explained, &told->explained_result, why);
    common_json_end(&j);
}

static void print_samples(const struct montecarlo_result *m)
{
    char mean[32], low[32], high[32], error[32];
    const struct montecarlo_summary *s = &m->iteration;
    printf("iteration %s, 90 %% interval %s ... %s (%d samples, mean known to %s)\n",
           units_print_ns(mean, llround(s->mean)), units_print_ns(low, llround(s->p5.value)),
           units_print_ns(high, llround(s->p95.value)), (int)m->samples,
           units_print_ns(error, llround(s->error)));
    if (!s->p5.bounded || !s->p95.bounded)
        log_warn("%d samples give no confidence limits for the ends of the interval; 72 are needed",
                 (int)m->samples);
}

static void print_fed(const struct fed *f)
{
    char step[32];
    printf("with %d loader%s %s per step, devices wait %.1f %% of it for data",
           (int)f->loading.loaders, f->loading.loaders > 1 ? "s" : "", units_print_ns(step, llround(f->result.step_ns)),
           100 * f->result.waiting);
    if (f->enough)
        printf("; %d loaders would be enough for 1 %%\n", (int)f->enough);
    else
        printf("; not even %d loaders would be enough for 1 %%\n", LOADERS_MAX);
}

static void print_text(struct arena *a, const struct plan *plan, const struct program *p,
                       const struct profile *profile, const struct sim_result *r,
                       const struct montecarlo_result *m, const struct fed *f,
                       const struct metrics *metrics, bool all)
{
    char text[32];
    printf("%s: %s per iteration%s (predicted with %s)\n", plan->name,
           units_print_ns(text, r->iteration_ns),
           plan->cluster.emulated ? " of emulated devices" : "", common_profile_label(a, profile));
    print_stated(a, &plan->cluster, &plan->job, NULL);
    common_print_training(a, plan, &r->staleness, NULL);
    if (m->samples) print_samples(m);
    if (f->loading.loaders) print_fed(f);
    print_metrics(a, metrics);
    print_use(a, plan, p, r, all);
}

static enum status explain(struct arena *a, const struct request *q, const struct plan *plan,
                           const struct program *p, const struct profile *profile,
                           const struct sim_result *r, struct explain *out, struct error *err)
{
    struct cost *k = cost_new(a, profile, &device_speed_plan(a, plan, profile)->cluster);
    const struct sim_options o = {.steps = (int32_t)q->steps};
    TRY(explain_result(a, p, k, r, out, err));
    return explain_what_if(p, k, &o, (size_t)q->what_if, out, err);
}

static enum status sample(struct arena *a, const struct request *q, const struct plan *plan,
                          const struct program *program, const struct profile *profile,
                          struct jitter_model *model, struct montecarlo_result *out,
                          struct error *err)
{
    const struct montecarlo_options o = {
        .samples = (int32_t)q->samples, .threads = (int32_t)q->threads, .steps = (int32_t)q->steps};
    struct trace **runs = ARENA_ARRAY(a, struct trace *, q->runs.count);
    jitter_defaults(a, profile, &plan->cluster, model);
    for (size_t i = 0; i < q->runs.count; i++) {
        TRY(trace_read(a, q->runs.items[i], &runs[i], err));
        if (trace_is_predicted(runs[i]))
            return error_set(
                err, ERR_INPUT,
                "%s: a simulated trace has no measured jitter; expected a trace of run",
                q->runs.items[i]);
    }
    if (q->runs.count) TRY(jitter_fit(&plan->cluster, runs, q->runs.count, model, err));
    /* the median absolute error of a normal distribution is its standard deviation ÷ 1.4826 */
    model->model_error = 1.4826 * q->model_error / 100;
    if (q->straggler_share > 0) {
        model->straggler_share = q->straggler_share / 100;
        model->straggler_factor = q->straggler_factor;
        model->straggler_steps = (int32_t)q->straggler_steps;
    }
    model->cost_error = !q->jitter_alone;
    return montecarlo_run(a, program, profile, &plan->cluster, model, plan->seed, &o, out, err);
}

/* Step times: sampled ones, or the prediction for all. */
static enum status feed(const struct request *q, const struct plan *plan,
                        const struct sim_result *r, const struct montecarlo_result *m,
                        struct fed *out, struct error *err)
{
    const double predicted = (double)r->iteration_ns,
                 *steps = m->samples ? m->iteration_ns : &predicted;
    int64_t n = m->samples ? m->samples : 1;
    double load_s = 0;
    char hint[UNITS_HINT] = "";
    if (!q->load || !units_parse_seconds(q->load, &load_s) || !(load_s >= 0 && load_s <= 1e6))
        return error_set(err, ERR_USAGE, "--loaders needs --load TIME, such as 30ms, 0 to 1e6 s%s",
                         q->load ? units_hint(hint, QUANTITY_SECONDS, q->load) : "");
    out->loading =
        (struct loading){.loaders = (int32_t)q->loaders,
                         .prefetch = (int32_t)(q->prefetch ? q->prefetch : 2 * q->loaders),
                         .load_ns = units_ns_from_s(load_s),
                         .cv = q->load_cv};
    TRY(loading_walk(&out->loading, steps, n, LOADED_STEPS, plan->seed, &out->result, err));
    return loading_enough(&out->loading, steps, n, LOADED_STEPS, plan->seed, 0.01, LOADERS_MAX,
                          &out->enough, err);
}

/* Checks of the options that need no file. */
static enum status options_of(const struct request *q, struct sim_options *o, struct error *err)
{
    double bytes = (double)SIM_TRACE_MAX_BYTES;
    char hint[UNITS_HINT];
    if (q->trace_memory && !units_parse_bytes(q->trace_memory, &bytes))
        return error_set(err, ERR_USAGE, "--trace-memory: '%s' is not a size such as 16 GiB%s",
                         q->trace_memory, units_hint(hint, QUANTITY_BYTES, q->trace_memory));
    if (!(bytes >= 1 && bytes < 1e18))
        return error_set(err, ERR_USAGE, "--trace-memory: '%s' is out of range", q->trace_memory);
    *o = (struct sim_options){.steps = (int32_t)q->steps,
                              .keep_trace = q->trace || q->explain,
                              .beside_trace = q->explain ? explain_bytes : NULL,
                              .trace_most_bytes = (int64_t)bytes,
                              .detail = q->detail ? SIM_STAGE : SIM_OPERATOR,
                              .trace_path = q->trace,
                              .fold = q->fold};
    if (q->explain && q->detail)
        return error_set(err, ERR_USAGE, "--explain needs every operator: --detail operator");
    return OK;
}

/* What of the cluster a trace or an explanation is of, where it is not all. */
static void print_reduced(const struct request *q, const struct prediction *p)
{
    char one[32], all[32];
    if (p->reduced)
        printf("the trace of all devices and steps takes its readers more than %s: %s holds one "
               "steady step of one replica of each class, %d of %d devices (--trace-memory)\n",
               q->trace_memory ? q->trace_memory : "4 GiB", q->trace,
               (int)p->result.trace->n_devices, (int)p->program.n_devices);
    if (!q->explain || p->explained->n_devices == p->program.n_devices) return;
    if (p->by_replicas)
        printf("explained: one replica of each class without the traffic of the others, %d of %d "
               "devices; an iteration of %s instead of %s\n",
               (int)p->explained->n_devices, (int)p->program.n_devices,
               units_print_ns(one, p->explained_result.iteration_ns),
               units_print_ns(all, p->result.iteration_ns));
    else
        printf("one of equal devices stands for all: %d of %d\n", (int)p->explained->n_devices,
               (int)p->program.n_devices);
}

static enum status measure(struct arena *a, const struct request *q, const struct plan *plan,
                           const struct prediction *p, struct metrics *out, struct error *err)
{
    struct metrics_input in = {.plan = plan,
                               .program = &p->program,
                               .devices = p->result.devices,
                               .simulated_ns = p->result.iteration_ns, .applied = p->result.applied,
                               .iteration_ns = p->result.iteration_ns};
    TRY(print_run_length(&q->length, &plan->job, &in.tokens, err));
    return metrics_of(a, &in, out, err);
}

static enum status simulate(struct arena *a, const struct request *q, bool as_json,
                            struct error *err)
{
    struct plan plan;
    struct profile profile;
    struct prediction p;
    struct explain x;
    struct montecarlo_result m = {0};
    struct jitter_model model = {0};
    struct fed f = {0};
    struct sim_options o;
    struct metrics metrics;
    TRY(options_of(q, &o, err));
    TRY(common_not_stdout(as_json, "--trace", q->trace, err));
    TRY(common_plan(a, q->plan, &plan, err));
    if (plan.profile_id && !q->db)
        log_warn("this plan was made with profile %lld of a database; without --db costs are the "
                 "catalogue's prior",
                 (long long)plan.profile_id);
    plan.deterministic |= q->deterministic;
    if (q->seed) plan.seed = plan.job.seed = (uint64_t)q->seed;
    TRY(common_profile(a, &plan.cluster, q->db, q->profile, &profile, err));
    TRY(predict(a, &plan, &profile, &o, q->explain, 0, &p, err));
    if (q->steps) common_warn_of_period(&plan.local_sgd.outer, q->steps);
    TRY(measure(a, q, &plan, &p, &metrics, err));
    if (q->samples) TRY(sample(a, q, &plan, &p.program, &profile, &model, &m, err));
    if (q->loaders) TRY(feed(q, &plan, &p.result, &m, &f, err));
    if (q->trace) TRY(trace_write(p.result.trace, q->trace, err));
    if (q->trace) trace_stream_end(p.result.trace);
    if (q->explain)
        TRY(explain(a, q, &plan, p.explained, &profile, &p.explained_result, &x, err));
    if (as_json) {
        print_json(a, &plan, &p.program, &profile, &p.result, q->explain ? &x : NULL, &p, &m,
                   &model, &f, &metrics);
        return OK;
    }
    print_text(a, &plan, &p.program, &profile, &p.result, &m, &f, &metrics, q->all);
    print_reduced(q, &p);
    if (q->explain) print_explain(a, &plan, p.explained, &p.explained_result, &x, q->all);
    return OK;
}

static enum status run_simulate(struct arena *a, void *request, const struct common *common,
                                struct error *err)
{
    struct request *q = request;
    q->seed = common->seed;
    return simulate(a, q, common->json, err);
}

static const char *const details[] = {"operator", "stage", NULL};
static const struct option options[] = {
    {.name = "PLAN", ARGUMENT_AT(plan), .help = "plan file, e.g. plan.yaml"},
    OPTION_DB(db),
    OPTION_PROFILE(profile),
    {.name = "steps",
     INT_AT(steps),
     .unit = "N",
     .min = 0,
     .max = 1e6,
     .help = "number of simulated steps, e.g. 4",
     .preset = "0: enough for a steady iteration"},
    {.name = "detail",
     CHOICE_AT(detail),
     .choices = details,
     .help =
         "granularity of the simulation: single operators, or whole forward and backward passes "
         "of a stage (same times, smaller trace)"},
    {.name = "fold",
     FLAG_AT(fold),
     .help =
         "simulate devices with identical timelines only once; the trace holds one steady step "
         "of one replica of each class"},
    {.name = "deterministic",
     FLAG_AT(deterministic),
     .help = "sum gradients in the global order of microbatches, as run --deterministic does"},
    {.name = "trace",
     TEXT_AT(trace),
     .unit = "TRACE",
     .writes = true,
     .help = "trace file to write, e.g. sim.trace, or sim.trace.gz for a compressed one"},
    {.name = "trace-memory",
     TEXT_AT(trace_memory),
     .unit = "SIZE",
     .needs = "trace|explain",
     .help = "largest memory that readers of the trace, or --explain, may take for spans, e.g. "
             "'16 GiB'; a larger trace holds one steady step of one replica of each class, a larger "
             "explanation is of one replica of each class",
     .preset = "4 GiB"},
    {.name = "explain",
     FLAG_AT(explain),
     .help = "break down the iteration time: critical path, idle devices, exposed communication, "
             "and the effect of faster devices, links and operators"},
    {.name = "what-if",
     INT_AT(what_if),
     .unit = "N",
     .min = 0,
     .max = 1e5,
     .needs = "explain",
     .help = "number of devices, links and operator kinds on the critical path that --explain "
             "simulates again at zero and at half their time"},
    {.name = "samples",
     INT_AT(samples),
     .unit = "N",
     .min = 0,
     .max = 1e6,
     .help = "number of Monte Carlo simulations with jitter for a 90 % interval, e.g. 200",
     .preset = "0: no interval"},
    {.name = "threads",
     INT_AT(threads),
     .unit = "N",
     .min = 1,
     .max = 1024,
     .needs = "samples",
     .help = "threads of --samples, e.g. 8; the result does not depend on them"},
    {.name = "jitter",
     TEXTS_AT(runs),
     .unit = "TRACE",
     .needs = "samples",
     .help = "trace of a run that the jitter is fitted to, e.g. run.trace"},
    {.name = "model-error",
     DOUBLE_AT(model_error),
     .unit = "PERCENT",
     .min = 0,
     .max = 100,
     .needs = "samples",
     .help = "median prediction error on plans that calibrate has not seen, e.g. 5",
     .preset = "0: not included"},
    {.name = "jitter-alone",
     FLAG_AT(jitter_alone),
     .needs = "samples",
     .help = "leave the uncertainty of the costs themselves out of the interval"},
    {.name = "straggler-share",
     DOUBLE_AT(straggler_share),
     .unit = "PERCENT",
     .min = 0,
     .max = 100,
     .needs = "samples",
     .help = "share of a device's steps that are slow, e.g. 2",
     .preset = "0: as fitted by --jitter"},
    {.name = "straggler-factor",
     DOUBLE_AT(straggler_factor),
     .unit = "F",
     .min = 1,
     .max = 1000,
     .needs = "samples",
     .help = "slowdown of a straggling step, e.g. 2"},
    {.name = "straggler-steps",
     INT_AT(straggler_steps),
     .unit = "N",
     .min = 1,
     .max = 1e6,
     .needs = "samples",
     .help = "length of a slow period, in steps, e.g. 20"},
    {.name = "loaders",
     INT_AT(loaders),
     .unit = "N",
     .min = 0,
     .max = LOADERS_MAX,
     .help = "number of data-loader threads, e.g. 4; needs --load",
     .preset = "0: data is always ready"},
    {.name = "load",
     TEXT_AT(load),
     .unit = "TIME",
     .needs = "loaders",
     .help = "time in which one loader prepares the batch of a step, e.g. 30ms"},
    {.name = "load-cv",
     DOUBLE_AT(load_cv),
     .unit = "CV",
     .min = 0,
     .max = 10,
     .needs = "loaders",
     .help = "coefficient of variation of --load: standard deviation / mean, e.g. 0.3"},
    {.name = "prefetch",
     INT_AT(prefetch),
     .unit = "N",
     .min = 0,
     .max = 1e6,
     .needs = "loaders",
     .help = "batches loaded ahead, e.g. 8",
     .preset = "0: two per loader"},
    OPTION_TOKENS(length),
    OPTION_IMAGES(length),
    OPTION_ALL,
    {0}};

const struct verb cmd_simulate = {
    .name = "simulate",
    .summary = "predict iteration time, utilisation and peak memory of a plan",
    .options = options,
    .examples = {"musher simulate plan.yaml --db profiles.db --trace sim.trace",
                 "musher simulate plan.yaml --explain", "# a 90 % interval around the prediction",
                 "musher simulate plan.yaml --samples 200 --threads 2", "# with an input pipeline",
                 "musher simulate plan.yaml --loaders 4 --load 30ms --load-cv 0.3"},
    REQUEST(.what_if = WHAT_IF_TRIALS, .threads = 1, .straggler_factor = 1.5, .straggler_steps = 10),
    .run = run_simulate,
};
