#include "tools/script_goodput.h"

#include "core/base/arena.h"
#include "core/base/settings.h"
#include "core/base/units.h"
#include "core/faults/script.h"
#include "sim/goodput/goodput.h"
#include "tools/adapt.h"
#include "tools/common.h"
#include "tools/restart.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define HORIZON_NS (INT64_MAX / 16) /* the run ends by its steps */
/* Assumed where nothing was measured or given: those of a small model on one host (docs/measurements.md). */
#define DETECT_NS INT64_C(200000000)
#define RESTART_NS INT64_C(200000000)
#define REPLAN_NS INT64_C(1000000000)
#define TIMEOUTS_SHARE 0.5 /* a detection that took this part of MUSHER_TIMEOUT was one by time-out */

enum { GIVEN, MEASURED, SIMULATED, ASSUMED };
static const char *const source_names[] = {"given", "measured", "simulated", "assumed"};
struct cost_of { /* a cost of the machine */
    int64_t ns;
    int source;
};

struct study {
    struct arena *a;
    const struct script_request *q;
    struct plan plan;
    struct program program;
    struct profile profile;
    struct fault_script script;
    int64_t simulated_ns; /* the plan's step */
    struct cost_of step, checkpoint, detect, restart, replan, memory, memory_copy, memory_restart;
    /* speeds of the plan without some devices: those of the last call */
    struct plan now;
    struct program now_program;
    bool *away; /* (n_devices of program) in `now` */
    double now_speed;
    struct goodput_job job;
    struct goodput_tally tally;
};

/* --- costs ------------------------------------------------------------------------------------ */

static enum status step_time(struct study *s, const struct plan *plan, const struct program *p, const struct sim_scale *scale, int64_t *out,
                             struct error *err)
{
    struct sim_options o = {.scale = scale, .detail = SIM_STAGE};
    struct sim_result r;
    TRY(sim_run(s->a, p, cost_new(s->a, &s->profile, &plan->cluster), &o, &r, err));
    *out = r.iteration_ns;
    return OK;
}

/* Share of the speed that is left where one device or link is `factor` times slower. */
static enum status slowed_speed(struct study *s, const struct fault *f, double *out, struct error *err)
{
    const struct program *p = &s->program;
    double *device = ARENA_ARRAY(s->a, double, (size_t)p->n_devices), *link = ARENA_ARRAY(s->a, double, (size_t)p->n_links + 1);
    double *kind = ARENA_ARRAY(s->a, double, OP_KIND_COUNT);
    int64_t ns;
    for (int32_t i = 0; i < p->n_devices; i++) device[i] = fault_hits(f, p->devices[i].name) ? f->factor : 1;
    for (int32_t i = 0; i < p->n_links; i++) link[i] = f->kind == FAULT_link_slow && !strcmp(f->place, p->links[i].name) ? f->factor : 1;
    for (int i = 0; i < OP_KIND_COUNT; i++) kind[i] = 1;
    TRY(step_time(s, &s->plan, p, &(struct sim_scale){device, link, kind}, &ns, err));
    *out = fmin(1, (double)s->simulated_ns / (double)ns);
    return OK;
}

/* struct goodput_job.speed: the plan that --elastic makes, from the one in use where it has fewer devices, else from the first one. */
static double speed(const void *user, const int64_t *devices)
{
    struct study *s = (struct study *)user; /* one walk, one thread */
    const struct program *p = &s->program;
    bool first = false, same = true, any = false;
    struct error err;
    int64_t ns;
    for (int32_t i = 0; i < p->n_devices; i++) {
        first |= s->away[i] && devices[i];
        same &= s->away[i] == !devices[i];
        any |= !devices[i];
    }
    if (same) return s->now_speed;
    if (any && !s->q->elastic) return 0;
    if (first) {
        s->now = s->plan, s->now_program = s->program, s->now_speed = 1;
        memset(s->away, 0, (size_t)p->n_devices * sizeof *s->away);
    }
    const char *without = NULL;
    for (int32_t i = 0; i < p->n_devices; i++) {
        if (devices[i] || s->away[i]) continue;
        s->away[i] = true;
        without = without ? arena_printf(s->a, "%s,%s", without, p->devices[i].name) : p->devices[i].name;
    }
    if (!without) return s->now_speed;
    bool found = restart_plan(s->a, s->q->db, &s->plan.cluster, without, &s->now, &s->now_program, &err) == OK &&
                 step_time(s, &s->now, &s->now_program, NULL, &ns, &err) == OK;
    s->now_speed = found ? fmin(1, (double)s->simulated_ns / (double)ns) : 0;
    return s->now_speed;
}

struct restarts { /* means over those of the measured run */
    double detect, restart, replan, memory;
    int n_detect, n_restart, n_replan, n_memory;
};

static enum status read_restart(const struct node *n, int64_t step_ns, struct restarts *r, struct error *err)
{
    int64_t detect = 0, launch = 0, load = 0, first = 0, replan = 0;
    bool failed = false;
    TRY(node_get_int(n, "detection_ns", 0, INT64_MAX / 2, &detect, err));
    TRY(node_get_int(n, "launch_ns", 0, INT64_MAX / 2, &launch, err));
    TRY(node_get_int(n, "load_ns", 0, INT64_MAX / 2, &load, err));
    TRY(node_get_int(n, "first_step_ns", 0, INT64_MAX / 2, &first, err));
    TRY(node_get_int(n, "replan_ns", 0, INT64_MAX / 2, &replan, err));
    TRY(node_get_bool(n, "failed", &failed, err));
    if (failed && units_s_from_ns(detect) < TIMEOUTS_SHARE * settings_timeout_s()) r->detect += (double)detect, r->n_detect++;
    if (replan) r->replan += (double)replan, r->n_replan++;
    if (!first) return OK;
    const struct node *from = node_get(n, "from");
    double restart = (double)(launch + load) + (node_get(n, "without") ? 0 : fmax(0, (double)(first - step_ns)));
    if (from && from->kind == NODE_SCALAR && strcmp(from->text, "disk") != 0)
        r->memory += restart, r->n_memory++;
    else
        r->restart += restart, r->n_restart++;
    return OK;
}

static void take(struct cost_of *c, double sum, int n)
{
    if (n && c->source != GIVEN) *c = (struct cost_of){llround(sum / n), MEASURED};
}

/* Whether a fault made steps slower. */
static bool slows(const struct node *faults)
{
    for (size_t i = 0; faults && i < faults->count; i++) {
        const struct node *kind = node_get(faults->members[i], "kind");
        if (kind && kind->kind == NODE_SCALAR && strstr(kind->text, "slow")) return true;
    }
    return false;
}

/* Those in memory, if the run had some: *pauses is the time of all. */
static enum status read_memory(struct study *s, const struct node *root, const struct node *g, int64_t *pauses, struct error *err)
{
    int64_t n = 0, pause = 0, slow = 0, copy = 0;
    const struct node *list = node_get(root, "memory_checkpoints");
    TRY(node_get_int(g, "memory_checkpoints", 0, INT32_MAX, &n, err));
    TRY(node_get_int(g, "memory_checkpoint_ns", 0, INT64_MAX / INT32_MAX, &pause, err));
    if (list) TRY(node_get_int(list, "slowdown_ns", 0, INT64_MAX / 2, &slow, err));
    if (list) TRY(node_get_int(list, "write_ns", 0, INT64_MAX / 2, &copy, err));
    take(&s->memory, (double)pause + (double)slow, n > 0);
    take(&s->memory_copy, (double)copy, list != NULL);
    *pauses = n * pause;
    return OK;
}

/* Slower steps behind checkpoints that were written while training went on: the run has measured them apart from those that other programs slow. */
static enum status read_slowdown(const struct node *root, int64_t checkpoints, int64_t *slow, struct error *err)
{
    const struct node *list = node_get(root, "checkpoints");
    int64_t each = 0, write = 0;
    if (!list) return OK;
    TRY(node_get_int(list, "slowdown_ns", 0, INT64_MAX / INT32_MAX, &each, err));
    TRY(node_get_int(list, "write_ns", 0, INT64_MAX / 2, &write, err));
    if (write && checkpoints <= INT32_MAX && checkpoints * each < *slow) *slow = checkpoints * each;
    return OK;
}

/* What the checkpoints of the run cost: their pauses, and the slower steps behind them. */
static enum status read_measured(struct study *s, struct error *err)
{
    struct node *root;
    const struct node *g, *parts, *list;
    struct restarts r = {0};
    int64_t step = 0, launch = 0, checkpoints = 0, pause = 0, slow = 0, memory = 0;
    if (!s->q->measured) return OK;
    TRY(document_read(s->a, s->q->measured, &root, err));
    const struct node *failed = node_get(root, "error");
    if (failed && (failed = node_get(failed, "message")) && failed->kind == NODE_SCALAR)
        return node_error(failed, err, "--measured: this run ended with an error and has measured nothing: %s", failed->text);
    TRY(node_need(root, "goodput", &g, err));
    TRY(node_need(g, "parts_ns", &parts, err));
    TRY(node_get_int(g, "step_ns", 1, INT64_MAX / 2, &step, err));
    TRY(node_get_int(g, "launch_ns", 0, INT64_MAX / 2, &launch, err));
    TRY(node_get_int(g, "checkpoints", 0, INT64_MAX / 2, &checkpoints, err));
    TRY(node_get_int(parts, "checkpoint", 0, INT64_MAX / 2, &pause, err));
    TRY(node_get_int(parts, "slow", INT64_MIN / 2, INT64_MAX / 2, &slow, err));
    TRY(read_memory(s, root, g, &memory, err));
    TRY(read_slowdown(root, checkpoints, &slow, err));
    if (memory || slows(node_get(root, "faults"))) slow = 0; /* of another cause */
    pause = pause > memory ? pause - memory : 0;
    take(&s->step, (double)step, step > 0);
    take(&s->checkpoint, (double)pause + fmax(0, (double)slow), (int)checkpoints);
    list = node_get(root, "restarts");
    for (size_t i = 0; list && i < list->count; i++) TRY(read_restart(list->members[i], step, &r, err));
    take(&s->detect, r.detect, r.n_detect);
    take(&s->replan, r.replan, r.n_replan);
    take(&s->restart, r.n_restart ? r.restart : (double)launch, r.n_restart ? r.n_restart : 1);
    take(&s->memory_restart, r.memory, r.n_memory);
    if (s->memory_restart.source == ASSUMED) s->memory_restart = s->restart;
    return OK;
}

static enum status find_costs(struct study *s, struct error *err)
{
    const struct script_request *q = s->q;
    TRY(step_time(s, &s->plan, &s->program, NULL, &s->simulated_ns, err));
    const struct {
        struct cost_of *out;
        int64_t given_ns, otherwise_ns;
        int otherwise;
    } all[] = {{&s->step, q->step_ns, s->simulated_ns, SIMULATED},
               {&s->checkpoint, q->checkpoint_ns, 0, ASSUMED},
               {&s->detect, q->detect_ns, DETECT_NS, ASSUMED},
               {&s->restart, q->restart_ns, RESTART_NS, ASSUMED},
               {&s->replan, q->replan_ns, REPLAN_NS, ASSUMED},
               {&s->memory, q->memory_ns, 0, ASSUMED},
               {&s->memory_copy, q->memory_copy_ns, 0, ASSUMED},
               {&s->memory_restart, q->memory_restart_ns, RESTART_NS, ASSUMED}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        *all[i].out = all[i].given_ns >= 0 ? (struct cost_of){all[i].given_ns, GIVEN} : (struct cost_of){all[i].otherwise_ns, all[i].otherwise};
    TRY(read_measured(s, err));
    return s->step.ns > 0 ? OK : error_set(err, ERR_INPUT, "a step of 0 s: pass --step or --measured");
}

/* --- the script ------------------------------------------------------------------------------- */

static int64_t work_at(const struct study *s, int64_t step) { return (step - 1) * s->step.ns; }

static enum status make_event(struct study *s, const struct fault *f, struct goodput_event *e, struct error *err)
{
    const struct program *p = &s->program;
    *e = (struct goodput_event){.kind = GOODPUT_EVENT_FAILURE,
                                .at_work_ns = f->at_step ? work_at(s, f->at_step) : -1,
                                .time_ns = f->at_ns,
                                .lasts_ns = f->steps * s->step.ns,
                                .detect_ns = s->detect.ns,
                                .node = f->kind == FAULT_host_lost,
                                .back_ns = f->back_ns,
                                .back_work_ns = f->back_at_step ? work_at(s, f->back_at_step) : 0};
    if (f->kind == FAULT_stop) e->detect_ns = units_ns_from_s(settings_timeout_s());
    if (f->kind == FAULT_disk_full) e->kind = GOODPUT_EVENT_DISK_FULL;
    if (f->kind == FAULT_slow || f->kind == FAULT_link_slow) {
        e->kind = GOODPUT_EVENT_SLOW;
        TRY(slowed_speed(s, f, &e->speed, err));
    }
    if (f->kind == FAULT_link_slow || f->kind == FAULT_disk_full || !(s->q->elastic || f->back_ns)) return OK;
    int64_t *devices = ARENA_ARRAY(s->a, int64_t, (size_t)p->n_devices);
    for (int32_t i = 0; i < p->n_devices; i++) devices[i] = fault_hits(f, p->devices[i].name);
    e->devices = devices;
    return OK;
}

static enum status make_job(struct study *s, struct error *err)
{
    const struct program *p = &s->program;
    size_t n = (size_t)p->n_devices;
    const char **types = ARENA_ARRAY(s->a, const char *, n);
    int64_t *devices = ARENA_ARRAY(s->a, int64_t, n);
    struct goodput_event *events = ARENA_ARRAY(s->a, struct goodput_event, (size_t)s->script.n);
    if (p->n_devices > GOODPUT_TYPES_MAX) return error_set(err, ERR_INPUT, "--faults: %" PRId32 " devices: at most %d", p->n_devices, GOODPUT_TYPES_MAX);
    for (size_t i = 0; i < n; i++) types[i] = p->devices[i].name, devices[i] = 1;
    for (int32_t i = 0; i < s->script.n; i++) TRY(make_event(s, &s->script.faults[i], &events[i], err));
    s->away = ARENA_ARRAY(s->a, bool, n);
    s->now = s->plan, s->now_program = s->program, s->now_speed = 1;
    s->job = (struct goodput_job){.horizon_ns = HORIZON_NS,
                                  .work_ns = s->q->steps * s->step.ns,
                                  .n_types = p->n_devices,
                                  .types = types,
                                  .devices = devices,
                                  .speed = speed,
                                  .user = s,
                                  .checkpoint_ns = s->checkpoint.ns,
                                  .detect_ns = s->detect.ns,
                                  .restart_ns = s->restart.ns,
                                  .replan_ns = s->q->elastic ? s->replan.ns : 0,
                                  .gain_min = ADAPT_GAIN,
                                  .memory_interval_ns = s->q->memory_every * s->step.ns,
                                  .memory_ns = s->memory.ns,
                                  .memory_copy_ns = s->memory_copy.ns,
                                  .memory_restart_ns = s->memory_restart.ns,
                                  .step_ns = s->step.ns,
                                  .n_events = (size_t)s->script.n,
                                  .events = events,
                                  .failures_max = s->q->max_restarts};
    return OK;
}

static enum status read_inputs(struct study *s, struct error *err)
{
    const struct script_request *q = s->q;
    TRY(common_plan(s->a, q->plan, &s->plan, err));
    TRY(common_profile(s->a, &s->plan.cluster, q->db, q->profile, &s->profile, err));
    TRY(common_lower(s->a, &s->plan, true, &s->program, err));
    if (parameter_server_by_arrival(&s->program.server))
        return error_set(err, ERR_INPUT, "--faults: steps of a parameter server that handles gradients by arrival have no common begin");
    TRY(fault_script_read(s->a, q->script, &s->program, &s->script, err));
    return restart_check_script(&s->script, q->script, q->elastic, q->save_every, err);
}

/* --- output ----------------------------------------------------------------------------------- */

static double share(const struct study *s, enum goodput_part p) { return s->tally.part_ns[p] / s->tally.elapsed_ns; }

static void print_cost(const char *name, const struct cost_of *c, const char *end)
{
    char x[32];
    printf("%s %s (%s)%s", name, units_print_ns(x, c->ns), source_names[c->source], end);
}

static void print_text(const struct study *s)
{
    char x[32], y[32];
    const struct goodput_tally *t = &s->tally;
    printf("predicted goodput %.2f %%: %" PRId64 " steps of %s in %s; %g restart%s, %g step%s lost\n", 100 * share(s, GOODPUT_useful), s->q->steps,
           units_print_ns(x, s->step.ns), units_print_ns(y, llround(t->elapsed_ns)), t->event_failures + t->reconfigurations,
           t->event_failures + t->reconfigurations == 1 ? "" : "s", t->lost_steps, t->lost_steps == 1 ? "" : "s");
    if (t->ended_early) printf("  the run ends with an error: --max-restarts %" PRId64 " are used up, or the last checkpoint has no space\n", s->q->max_restarts);
    for (int p = 0; p < GOODPUT_PART_COUNT; p++)
        if (t->part_ns[p] > 0) printf("    %-31s %6.2f %%\n", goodput_part_help((enum goodput_part)p), 100 * share(s, (enum goodput_part)p));
    print_cost("  step", &s->step, ", ");
    print_cost("checkpoint", &s->checkpoint, ", ");
    print_cost("detection", &s->detect, ", ");
    print_cost("launch and load", &s->restart, s->q->elastic ? ", " : "\n");
    if (s->q->elastic) print_cost("planning again", &s->replan, "\n");
    if (s->q->memory_every) {
        print_cost("  in memory", &s->memory, ", ");
        print_cost("its copy", &s->memory_copy, ", ");
        print_cost("launch and load from there", &s->memory_restart, "\n");
    }
    for (size_t i = 0; i < s->job.n_events; i++) {
        const struct fault *f = &s->script.faults[i];
        if (t->event_ns[i] >= 0)
            printf("  fault      %s %s\n", units_print_ns(x, llround(t->event_ns[i])), fault_text(s->a, f));
        else if (!f->drawn)
            printf("  fault      %s: the run ends before\n", fault_text(s->a, f));
    }
}

static void put_cost(struct json *j, const char *key, const struct cost_of *c)
{
    json_put_object_line(j, key);
    json_put_int(j, "ns", c->ns);
    json_put_text(j, "source", source_names[c->source]);
    json_close(j);
}

static void print_json(const struct study *s)
{
    struct json j;
    const struct goodput_tally *t = &s->tally;
    common_json_begin(&j);
    json_put_object(&j, "goodput");
    json_put_double(&j, "goodput", share(s, GOODPUT_useful));
    json_put_int(&j, "elapsed_ns", llround(t->elapsed_ns));
    json_put_int(&j, "step_ns", s->step.ns);
    json_put_int(&j, "steps", s->q->steps);
    json_put_double(&j, "restarts", t->event_failures + t->reconfigurations);
    json_put_double(&j, "lost_steps", t->lost_steps);
    json_put_bool(&j, "ended_early", t->ended_early);
    json_put_double(&j, "checkpoints", t->checkpoints);
    json_put_object(&j, "parts_ns");
    for (int p = 0; p < GOODPUT_PART_COUNT; p++) json_put_int(&j, goodput_part_name((enum goodput_part)p), llround(t->part_ns[p]));
    json_close(&j);
    json_put_object(&j, "costs");
    put_cost(&j, "step", &s->step);
    put_cost(&j, "checkpoint", &s->checkpoint);
    put_cost(&j, "detection", &s->detect);
    put_cost(&j, "restart", &s->restart);
    put_cost(&j, "replan", &s->replan);
    if (s->q->memory_every) {
        put_cost(&j, "memory", &s->memory);
        put_cost(&j, "memory_copy", &s->memory_copy);
        put_cost(&j, "memory_restart", &s->memory_restart);
    }
    json_close(&j);
    json_close(&j);
    json_put_list(&j, "faults");
    for (size_t i = 0; i < s->job.n_events; i++) {
        const struct fault *f = &s->script.faults[i];
        json_put_object_line(&j, NULL);
        json_put_text(&j, "kind", fault_kind_name(f->kind));
        if (*f->place) json_put_text(&j, "place", f->place);
        json_put_bool(&j, "happens", t->event_ns[i] >= 0);
        if (f->at_step) json_put_int(&j, "step", f->at_step);
        if (t->event_ns[i] >= 0) json_put_int(&j, "at_ns", llround(t->event_ns[i]));
        if (s->job.events[i].kind == GOODPUT_EVENT_SLOW) json_put_double(&j, "speed", s->job.events[i].speed);
        json_close(&j);
    }
    json_close(&j);
    common_json_end(&j);
}

enum status script_goodput(struct arena *a, const struct script_request *q, bool as_json, struct error *err)
{
    struct study s = {.a = a, .q = q};
    TRY(read_inputs(&s, err));
    TRY(find_costs(&s, err));
    TRY(make_job(&s, err));
    int64_t interval_ns = (q->save_every > 0 ? q->save_every : q->steps) * s.step.ns;
    TRY(goodput_walk(a, &s.job, interval_ns, 0, 0, &s.tally, err));
    if (as_json)
        print_json(&s);
    else
        print_text(&s);
    return OK;
}
