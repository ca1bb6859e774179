#include "core/base/arena.h"
#include "core/base/units.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/print/kernels.h"
#include "traces/compare.h"
#include "traces/stats.h"

#include <stdio.h>

/* Both traces and the time breakdown of their devices. */
struct sides {
    const struct trace *trace[2]; /* predicted, then measured */
    struct stats stats[2];
};
enum { DEVICES_SHOWN = 16, PARTS = 4 };
static const char *const part_names[PARTS] = {"busy", "message", "collective", "bubble"};

/* Breakdown of a device's steady iteration: compute, wait for a message, wait for a collective only, idle without anything in flight. */
static double part_of(const struct stats *s, int32_t device, int part)
{
    const struct stats_device *d = &s->devices[device];
    const int64_t ns[PARTS] = {d->busy_ns, d->idle_message_ns, d->idle_collective_ns, d->bubble_ns};
    return s->window_ns > 0 ? (double)ns[part] / (double)s->window_ns : 0;
}

static void put_devices(struct json *j, const struct sides *x)
{
    static const char *const sides[] = {"sim", "run"};
    json_put_list(j, "devices");
    for (int32_t d = 0; d < x->stats[0].n_devices && d < x->stats[1].n_devices; d++) {
        json_put_object(j, NULL);
        json_put_text(j, "device", x->trace[0]->devices[d].name);
        for (int side = 0; side < 2; side++) {
            json_put_object_line(j, sides[side]);
            for (int part = 0; part < PARTS; part++)
                json_put_double(j, part_names[part], part_of(&x->stats[side], d, part));
            json_close(j);
        }
        json_close(j);
    }
    json_close(j);
}

static void print_devices(const struct sides *x)
{
    int32_t n = x->stats[0].n_devices;
    if (x->stats[1].n_devices < n) n = x->stats[1].n_devices;
    printf("  %-16s", "% of an iteration");
    for (int part = 0; part < PARTS; part++) printf(" %14s", part_names[part]);
    puts("   (predicted | measured)");
    for (int32_t d = 0; d < n && d < DEVICES_SHOWN; d++) {
        printf("  %-17s", x->trace[0]->devices[d].name);
        for (int part = 0; part < PARTS; part++)
            printf("  %5.1f | %5.1f", 100 * part_of(&x->stats[0], d, part),
                   100 * part_of(&x->stats[1], d, part));
        puts("");
    }
    if (n > DEVICES_SHOWN) printf("  and %d more devices\n", (int)(n - DEVICES_SHOWN));
}

static void print_json(struct arena *a, const struct comparison *c, const struct sides *x)
{
    struct json j;
    common_json_begin(&j);
    json_put_double(&j, "iteration_error", c->iteration_error);
    json_put_double(&j, "iteration_bias", c->iteration_bias);
    json_put_int(&j, "sim_iteration_ns", c->sim_iteration_ns);
    json_put_int(&j, "run_iteration_ns", c->run_iteration_ns);
    json_put_int(&j, "joined", c->joined);
    json_put_int(&j, "only_sim", c->only_sim);
    json_put_int(&j, "only_run", c->only_run);
    json_put_list(&j, "by_kind");
    for (size_t i = 0; i < c->n_kinds; i++) {
        const struct compare_kind *k = &c->kinds[i];
        json_put_object_line(&j, NULL);
        json_put_text(&j, "kind", k->kind);
        json_put_double(&j, "median", k->median);
        json_put_double(&j, "p95", k->p95);
        json_put_double(&j, "bias", k->bias);
        json_put_int(&j, "joined", k->joined);
        json_put_int(&j, "sim_ns", k->sim_ns);
        json_put_int(&j, "run_ns", k->run_ns);
        json_close(&j);
    }
    json_close(&j);
    put_devices(&j, x);
    if (x->trace[1]->kernels) print_kernels(a, x->trace[1], &j);
    common_json_end(&j);
}

static void print_text(struct arena *a, const struct comparison *c, const struct sides *x)
{
    const struct trace *real = x->trace[1];
    char sim[32], run[32];
    printf("iteration: predicted %s, %s %s: %+.1f %%\n", units_print_ns(sim, c->sim_iteration_ns),
           trace_is_predicted(real) ? "other prediction"
           : real->emulated         ? "measured (emulated devices)"
                                    : "measured",
           units_print_ns(run, c->run_iteration_ns), 100 * c->iteration_bias);
    printf("  %-24s %8s %9s %9s %9s %11s %11s\n", "kind", "spans", "median", "p95", "bias",
           "predicted", "measured");
    for (size_t i = 0; i < c->n_kinds; i++) {
        const struct compare_kind *k = &c->kinds[i];
        printf("  %-24s %8lld %8.1f%% %8.1f%% %+8.1f%% %11s %11s\n", k->kind, (long long)k->joined,
               100 * k->median, 100 * k->p95, 100 * k->bias, units_print_ns(sim, k->sim_ns),
               units_print_ns(run, k->run_ns));
    }
    print_devices(x);
    if (c->only_sim || c->only_run)
        printf("  unmatched spans: %lld predicted, %lld measured\n", (long long)c->only_sim,
               (long long)c->only_run);
    if (real->kernels) print_kernels(a, real, NULL);
}

struct request {
    const char *sim, *run;
    double within;
};

static enum status compare(struct arena *a, void *request, const struct common *common,
                           struct error *err)
{
    const struct request *q = request;
    struct trace *sim = NULL, *run = NULL;
    struct comparison c;
    TRY(trace_read(a, q->sim, &sim, err));
    TRY(trace_read(a, q->run, &run, err));
    if (!trace_is_predicted(sim))
        return error_set(err, ERR_INPUT,
                         "%s: not a simulated trace; the order is SIM_TRACE RUN_TRACE", q->sim);
    TRY(compare_traces(a, sim, run, &c, err));
    struct sides sides = {.trace = {sim, run}};
    for (int i = 0; i < 2; i++) stats_of_trace(a, sides.trace[i], &sides.stats[i]);
    if (common->json)
        print_json(a, &c, &sides);
    else
        print_text(a, &c, &sides);
    if (q->within > 0 && c.iteration_error > q->within / 100)
        return error_set(err, ERR_TOLERANCE, "iteration error %.1f %% exceeds %g %%",
                         100 * c.iteration_error, q->within);
    return OK;
}

static const struct option options[] = {
    {.name = "SIM_TRACE", ARGUMENT_AT(sim), .help = "trace of simulate"},
    {.name = "RUN_TRACE",
     ARGUMENT_AT(run),
     .help = "trace of run, or of another simulate, of the same plan"},
    {.name = "assert-within",
     DOUBLE_AT(within),
     .unit = "PERCENT",
     .min = 0,
     .max = 1e6,
     .help = "largest accepted error of the iteration time, e.g. 5; a larger one ends with exit "
             "code 5",
     .preset = "0: any error"},
    {0}};

const struct verb cmd_compare = {
    .name = "compare",
    .summary = "compare a predicted with a measured trace, span by span",
    .about =
        "The table has, for every kind of span, the median and 95th percentile of the absolute "
        "error, the bias, and predicted and measured time; then the share of an iteration that "
        "each device computes, waits for messages and collectives, or idles.",
    .options = options,
    .examples = {"musher compare sim.trace run.trace",
                 "musher compare sim.trace run.trace --assert-within 10"},
    REQUEST(0),
    .run = compare,
};
