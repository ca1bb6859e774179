#include "core/arena.h"
#include "core/log.h"
#include "core/units.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/options.h"
#include "tools/print_explain.h"

#include <stdio.h>

struct request {
    const char *plan, *db, *trace;
    int64_t profile, steps, what_if;
    bool deterministic, explain;
    int64_t seed;
};

static void print_json(const struct plan *plan, const struct program *p,
                       const struct profile *profile, const struct sim_result *r,
                       const struct explain *x)
{
    struct json j;
    common_json_begin(&j);
    json_put_text(&j, "plan", plan->name);
    json_put_int(&j, "profile_id", profile->id);
    json_put_bool(&j, "emulated", plan->cluster.emulated);
    json_put_int(&j, "iteration_ns", r->iteration_ns);
    json_put_int(&j, "events", r->events);
    json_put_list(&j, "devices");
    for (int32_t i = 0; i < p->n_devices; i++) {
        json_put_object_line(&j, NULL);
        json_put_text(&j, "id", p->devices[i].name);
        json_put_int(&j, "busy_ns", r->devices[i].busy_ns);
        json_put_int(&j, "idle_ns", r->devices[i].idle_ns);
        json_put_int(&j, "peak_bytes", r->devices[i].peak_bytes);
        json_put_int(&j, "reserved_bytes", r->devices[i].reserved_bytes);
        json_close(&j);
    }
    json_close(&j);
    if (x) print_explain_json(&j, p, r, x);
    common_json_end(&j);
}

static void print_text(struct arena *a, const struct plan *plan, const struct program *p,
                       const struct profile *profile, const struct sim_result *r)
{
    char text[32], peak[32];
    printf("%s: %s an iteration%s (predicted with %s)\n", plan->name,
           units_print_ns(text, r->iteration_ns),
           plan->cluster.emulated ? " of emulated devices" : "", common_profile_label(a, profile));
    for (int32_t i = 0; i < p->n_devices; i++) {
        const struct sim_device *d = &r->devices[i];
        int64_t whole = d->busy_ns + d->idle_ns;
        printf("  %-10s busy %5.1f %%, peak memory %s\n", p->devices[i].name,
               whole ? 100.0 * (double)d->busy_ns / (double)whole : 0.0,
               units_print_bytes(peak, (double)d->peak_bytes));
    }
}

static enum status explain(struct arena *a, const struct request *q, const struct plan *plan,
                           const struct program *p, const struct profile *profile,
                           const struct sim_result *r, struct explain *out, struct error *err)
{
    struct cost *k = cost_new(a, profile, &plan->cluster);
    struct sim_options o = {.steps = (int32_t)q->steps};
    TRY(explain_result(a, p, k, r, out, err));
    return explain_what_if(p, k, &o, (size_t)q->what_if, out, err);
}

static enum status simulate(struct arena *a, const struct request *q, bool as_json,
                            struct error *err)
{
    struct plan plan;
    struct profile profile;
    struct program program;
    struct sim_result r;
    struct explain x;
    TRY(common_not_stdout(as_json, "--trace", q->trace, err));
    TRY(common_plan(a, q->plan, &plan, err));
    if (plan.profile_id && !q->db)
        log_warn("this plan was made with profile %lld of a database; without --db costs are the "
                 "catalogue's prior",
                 (long long)plan.profile_id);
    plan.deterministic |= q->deterministic;
    if (q->seed) plan.seed = plan.job.seed = (uint64_t)q->seed;
    TRY(common_profile(a, &plan.cluster, q->db, q->profile, &profile, err));
    TRY(common_simulate(a, &plan, &profile, (int32_t)q->steps, q->trace || q->explain, &r, &program,
                        err));
    if (q->trace) TRY(trace_write(r.trace, q->trace, err));
    if (q->explain) TRY(explain(a, q, &plan, &program, &profile, &r, &x, err));
    if (as_json) {
        print_json(&plan, &program, &profile, &r, q->explain ? &x : NULL);
        return OK;
    }
    print_text(a, &plan, &program, &profile, &r);
    if (q->explain) print_explain(a, &program, &r, &x);
    return OK;
}

enum status cmd_simulate(int argc, char **argv, struct error *err)
{
    struct common common = COMMON_DEFAULTS;
    struct request q = {.what_if = 32};
    const struct option options[] = {
        {.name = "PLAN", .type = OPTION_ARGUMENT, .value = &q.plan, .help = "plan.yaml"},
        {.name = "db",
         .type = OPTION_TEXT,
         .value = &q.db,
         .unit = "DB",
         .help = "profile database; without it costs are the catalogue's prior"},
        {.name = "profile",
         .type = OPTION_INT,
         .value = &q.profile,
         .unit = "ID",
         .min = 0,
         .max = 1e15,
         .help = "profile of the database; 0: the cluster's newest"},
        {.name = "steps",
         .type = OPTION_INT,
         .value = &q.steps,
         .unit = "N",
         .min = 0,
         .max = 1e6,
         .help = "steps to simulate; 0: enough for a steady one"},
        {.name = "trace",
         .type = OPTION_TEXT,
         .value = &q.trace,
         .unit = "T",
         .help = "file to write the trace to"},
        {.name = "deterministic",
         .type = OPTION_FLAG,
         .value = &q.deterministic,
         .help = "as run --deterministic would"},
        {.name = "explain",
         .type = OPTION_FLAG,
         .value = &q.explain,
         .help = "why it takes so long: critical path, idle devices, exposed messages, what if"},
        {.name = "what-if",
         .type = OPTION_INT,
         .value = &q.what_if,
         .unit = "N",
         .min = 0,
         .max = 1e5,
         .help = "with --explain: try the N longest devices, links and kinds of operator on the "
                 "path at no time and at half"},
        {0}};
    const struct command command = {"simulate",
                                    "run a plan in predicted time",
                                    options,
                                    {"musher simulate plan.yaml --db profiles.db --trace sim.trace",
                                     "musher simulate plan.yaml --explain",
                                     "musher simulate plan.yaml --json"}};
    struct arena *a = arena_new();
    enum status st = options_parse(a, &command, &common, argc, argv, err);
    q.seed = common.seed;
    if (st == OK && !common.help) st = simulate(a, &q, common.json, err);
    arena_free(a);
    return st;
}
