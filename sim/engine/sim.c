/* The event loop. engine.h lists the parts. */
#include "sim/engine/sim.h"

#include "core/base/arena.h"
#include "core/base/ranges.h"
#include "core/base/stop.h"
#include "core/base/units.h"
#include "core/program/ahead.h"
#include "sim/engine/engine.h"
#include "sim/engine/fold.h"
#include "sim/engine/ring_flow.h"
#include "sim/engine/work.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* The first step starts from rest, and nothing disturbs the end of the last: the third of four is steady in 1500 of
 * 1500 random plans, the second in 1498, the third of three, being the last, in 1465. */
enum { MIN_STEPS = 4 };
/* Of servers that handle pushes by arrival: the first quarter is left out of the mean (server_order_iteration_ns), and the rest has to hold
 * several rounds of the slowest worker, whose phase against the others is different in each. */
enum { MIN_STEPS_SERVED = 32 };

/* Of pipelines without a flush: the mean is of 22 steps (core/program/ahead.h). Of 400 random pipelines with slow links it is within
 * 0.3 % of that of 60 later steps in all, with 16 steps within 0.4 %, with 8 within 1.7 %. */
enum { MIN_STEPS_UNFLUSHED = 32 };

void engine_fail(struct engine *e, enum status status, const char *fmt, ...)
{
    if (e->stop == STOP_ERROR) return;
    va_list ap;
    va_start(ap, fmt);
    char text[sizeof e->error.text];
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    e->stop = STOP_ERROR;
    e->status = error_set(&e->error, status, "%s", text);
}

static enum status find_lanes(struct engine *e, struct error *err)
{
    const struct program *p = e->program;
    e->lane_of_stage = ARENA_ARRAY(e->arena, int32_t, (size_t)p->n_stages);
    for (int32_t s = 0; s < p->n_stages; s++) e->lane_of_stage[s] = -1;
    for (int32_t i = 0; i < p->n_devices; i++)
        for (int32_t c = 0; c < p->lanes[i].n_stages; c++)
            e->lane_of_stage[p->lanes[i].stages[c]] = i;
    for (int32_t s = 0; s < p->n_stages; s++)
        if (e->lane_of_stage[s] < 0)
            return error_set(err, ERR_INPUT, "stage %" PRId32 " has no lane", s);
    e->offloads = ARENA_ARRAY(e->arena, struct offload_state, (size_t)p->n_stages);
    for (int32_t s = 0; s < p->n_stages; s++)
        if (p->stages[s].offload.count) offload_start(e->arena, &p->stages[s], &e->offloads[s]);
    return OK;
}

static enum status make_lanes(struct engine *e, struct cost *k, const struct sim_scale *scale,
                              enum sim_detail detail, struct error *err)
{
    const struct program *p = e->program;
    const struct code_pricing by = {p, k, scale, e->folded_ns,
                                    e->jitter || (e->trace && detail == SIM_OPERATOR)};
    struct arena *a = e->arena;
    struct code *scratch = ARENA_ARRAY(a, struct code, code_max(p));
    struct code_procedure **of = ARENA_ARRAY(a, struct code_procedure *, (size_t)p->n_stages);
    e->lanes = ARENA_ARRAY(a, struct lane_state, (size_t)p->n_devices);
    for (int32_t i = 0; i < p->n_devices; i++) {
        const struct lane *lane = &p->lanes[i];
        struct lane_state *l = &e->lanes[i];
        l->procedures = ARENA_ARRAY(a, const struct code_procedure *, (size_t)lane->n_stages);
        for (int32_t c = 0; c < lane->n_stages; c++) {
            struct code_procedure **at = &of[lane->stages[c]];
            TRY(code_stage(a, &by, lane->stages[c], i, scratch, at, err));
            l->procedures[c] = *at;
        }
    }
    if (detail == SIM_STAGE && !e->jitter) code_merge_collectives(a, p, of);
    return OK;
}

/* A lane's changes are in order of its time, a channel's in order of its messages; none precedes the next event. */
static int64_t memory_settled(const void *engine, int32_t device)
{
    const struct engine *e = engine;
    int64_t own = e->lanes[device].now_ns, messages = messages_settled(e, device);
    int64_t least = own < messages ? own : messages;
    return least > e->now_ns ? least : e->now_ns;
}

static void start_memory(struct engine *e)
{
    const struct program *p = e->program;
    bool *joins = ARENA_ARRAY(e->arena, bool, (size_t)p->n_devices);
    e->memory = memory_new(e->arena, p->n_devices, memory_settled, e);
    for (int32_t i = 0; i < p->n_channels; i++) {
        const struct channel_state *c = &e->channels[i];
        if (c->born_bytes) joins[c->to_lane] = true;
        if (c->dead_bytes) joins[c->from_lane] = true;
    }
    for (int32_t i = 0; i < p->n_devices; i++) {
        int64_t bytes = program_lane_bytes(p, i);
        for (int32_t c = 0; c < p->lanes[i].n_stages; c++)
            bytes -= p->stages[p->lanes[i].stages[c]].class_bytes[SLOT_BUFFER_RING] - offload_ring_bytes(&p->stages[p->lanes[i].stages[c]]);
        memory_always(e->memory, i, bytes, !joins[i]);
    }
}

static enum status set_up(struct engine *e, struct cost *k, const struct sim_options *o,
                          struct error *err)
{
    const struct program *p = e->program;
    period_make(e->arena, &p->outer, o->steps > 0, &e->period);
    for (int32_t i = 0; i < p->n_devices; i++) e->unflushed |= ahead_on_lane(p, i);
    int32_t least = parameter_server_by_arrival(&p->server) ? MIN_STEPS_SERVED : e->unflushed ? MIN_STEPS_UNFLUSHED : MIN_STEPS;
    e->steps = o->steps > 0      ? o->steps
               : e->period.n     ? 2 * e->period.n
               : p->steps > least ? p->steps
                                  : least;
    e->limit_ns = o->limit_ns > 0 ? o->limit_ns : INT64_MAX;
    e->until_ns = INT64_MAX;
    e->event_ns = work_event_ns(p->n_devices);
    e->most_work_ns = o->most_work_ns;
    e->jitter = o->jitter;
    e->queue = event_queue_new(e->arena, (size_t)p->n_channels + 4 * (size_t)p->n_devices + 16);
    e->network = network_new(e->arena, p, e->queue, EVENT_FLOW, o->scale ? o->scale->link : NULL);
    e->trace_replicas = o->trace_replicas;
    e->trace_step = !o->trace_one_step ? -1 : e->steps > 2 ? e->steps - 2 : e->steps - 1;
    e->trace = o->keep_trace ? trace_new(e->arena, TRACE_SIM, p) : NULL;
    e->wake = ARENA_ARRAY(e->arena, int32_t, (size_t)p->n_devices);
    e->awake = ARENA_ARRAY(e->arena, bool, (size_t)p->n_devices);
    e->step_lanes = ARENA_ARRAY(e->arena, int32_t, (size_t)e->steps);
    e->step_last = ARENA_ARRAY(e->arena, int32_t, (size_t)e->steps);
    e->step_end_ns = ARENA_ARRAY(e->arena, int64_t, (size_t)e->steps);
    e->step_shift_ns = ARENA_ARRAY(e->arena, int64_t, (size_t)e->steps);
    TRY(find_lanes(e, err));
    TRY(collect_new(e, k, err));
    TRY(make_lanes(e, k, o->scale, o->detail, err));
    TRY(messages_new(e, k, err));
    served_new(e);
    TRY(collective_new(e, k, err));
    if (e->trace) TRY(report_reserve(e, o, err));
    network_start(e->network, e->arena);
    overlap_new(e);
    queues_new(e);
    ahead_new(e);
    messages_start(e);
    start_memory(e);
    return OK;
}

static void moved(struct engine *e, int32_t owner, const struct passage *passage)
{
    if (passage->arrival_ns > ENGINE_MAX_NS)
        engine_fail(e, ERR_INPUT, "simulated time exceeds 73 years");
    else if (owner < e->program->n_channels)
        messages_left_link(e, owner, passage);
    else
        collective_moved(e, owner - e->program->n_channels, passage);
}

static void ready(struct engine *e, int32_t owner, uint64_t order)
{
    struct passage passage;
    bool channel = owner < e->program->n_channels;
    e->order = order;
    if (!channel && !collective_due(e, owner - e->program->n_channels)) return;
    int64_t occupancy_ns = channel ? messages_occupancy(e, owner) : 0;
    int32_t resource = channel
                           ? e->channels[owner].resource
                           : collective_resource(e, owner - e->program->n_channels, &occupancy_ns);
    if (e->watches_order && network_overtaken(e->network, resource, order, e->now_ns)) {
        e->stop = STOP_ORDER;
        return;
    }
    bool known = network_ready(e->network, owner, resource, occupancy_ns, e->now_ns, &passage);
    int64_t start_ns = known ? passage.start_ns : e->now_ns;
    if (channel)
        messages_started(e, owner, start_ns);
    else
        collective_started(e, owner - e->program->n_channels, start_ns);
    if (known) moved(e, owner, &passage);
    if (channel) messages_follow(e, owner);
}

void engine_wake(struct engine *e, int32_t lane)
{
    if (e->awake[lane]) return;
    e->awake[lane] = true;
    int32_t at = e->first_wake + e->n_wake++;
    e->wake[at < e->program->n_devices ? at : at - e->program->n_devices] = lane;
}

/* Processes all consequences that need no further event. */
static void follow_up(struct engine *e)
{
    while (e->n_wake && e->stop == STOP_NOT) {
        int32_t lane = e->wake[e->first_wake];
        if (++e->first_wake == e->program->n_devices) e->first_wake = 0;
        e->n_wake--;
        e->awake[lane] = false;
        lane_run(e, lane);
    }
}

enum { EVENTS_A_CHECK = 1024 }; /* about 0.1 ms */

static void check_work(struct engine *e)
{
    if (stop_check(&e->error) != OK) e->stop = STOP_ERROR, e->status = ERR_INTERRUPTED;
    if (e->most_work_ns && e->events * e->event_ns > e->most_work_ns)
        engine_fail(e, ERR_RESOURCE, "its simulation takes more than %" PRId64 " ms of counted work",
                    e->most_work_ns / 1000000);
}

static void run(struct engine *e)
{
    for (int32_t i = 0; i < e->program->n_devices; i++) lane_start(e, i);
    for (int32_t i = 0; i < e->program->n_devices; i++) engine_wake(e, i);
    follow_up(e);
    while (e->stop == STOP_NOT && event_queue_size(e->queue)) {
        struct event x = event_queue_pop(e->queue);
        struct passage passage;
        int32_t owner;
        if (x.time_ns < e->now_ns) BUG("an event of kind %d is %" PRId64 " ns in the past", x.kind, e->now_ns - x.time_ns);
        e->now_ns = x.time_ns;
        if (++e->events % EVENTS_A_CHECK == 0) check_work(e);
        if (e->stop != STOP_NOT) return;
        if (e->now_ns > e->until_ns)
            e->stop = STOP_STEADY;
        else if (e->now_ns > e->limit_ns)
            e->stop = STOP_LIMIT;
        else if (x.kind == EVENT_COLLECTIVE)
            collective_over(e, x.index, x.time_ns);
        else if (x.kind == EVENT_ARRIVED)
            served_event(e, x.index);
        else if (x.kind >= EVENT_AHEAD)
            ahead_event(e, &x);
        else if (x.kind == EVENT_READY)
            ready(e, x.index, x.seq >> 40);
        else if (x.kind != EVENT_FLOW)
            overlap_event(e, &x);
        else if (network_flow(e->network, &x, &owner, &passage))
            moved(e, owner, &passage);
        follow_up(e);
    }
    if (e->until_ns < INT64_MAX && e->stop == STOP_NOT) e->stop = STOP_STEADY;
}

const char *sim_wait_name(enum sim_wait wait)
{
    static const char *const names[SIM_WAIT_COUNT] = {
#define X(name) #name,
        SIM_WAITS(X)
#undef X
    };
    if ((int)wait < 0 || wait >= SIM_WAIT_COUNT) BUG("kind of wait %d", (int)wait);
    return names[wait];
}

static int64_t step_ns(const struct engine *e, int32_t step)
{
    return e->step_end_ns[step] - (step > 0 ? e->step_end_ns[step - 1] : 0);
}

/* The mean step of the last whole period. */
static int64_t period_ns(const struct engine *e)
{
    const struct period *x = &e->period;
    int32_t first = (e->steps / x->n - 1) * x->n;
    int64_t ns = 0;
    for (int32_t i = 0; i < x->n; i++) ns += x->times[i] * step_ns(e, first + i);
    return (ns + x->every / 2) / x->every;
}

/* The mean step of those that core/program/ahead.h names. */
static int64_t unflushed_ns(const struct engine *e)
{
    int32_t last = e->steps > 2 ? e->steps - 2 : e->steps - 1, first = ahead_first_steady(e->steps);
    int64_t ns = e->step_end_ns[last] - (first ? e->step_end_ns[first - 1] : 0), n = last - first + 1;
    return (ns + n / 2) / n;
}

/* The step whose duration is the iteration: the steady one, else the last one that another follows. */
static int32_t steady_step(const struct engine *e)
{
    if (e->steady_step) return e->steady_step;
    return e->steps > 2 ? e->steps - 2 : e->steps - 1;
}

/* A lane's own step is as long as the iteration if the step is steady. Otherwise, and in stage detail, where a merged collective
 * includes operators, the waits are made to fit: what is missing is imbalance, what is too much is taken from the waits in turn. */
static void fill_use(const struct lane_use *use, int64_t iteration_ns, struct sim_device *d)
{
    d->busy_ns = use->busy_ns;
    d->idle_ns = iteration_ns > d->busy_ns ? iteration_ns - d->busy_ns : 0;
    d->carried_ns = use->carried_ns;
    int64_t left = iteration_ns - (use->busy_ns - use->carried_ns);
    for (int w = 0; w < SIM_WAIT_COUNT; w++) left -= d->wait_ns[w] = use->wait_ns[w];
    if (left > 0) d->wait_ns[SIM_WAIT_imbalance] += left;
    for (int w = SIM_WAIT_COUNT - 1; left < 0 && w >= 0; w--) {
        int64_t less = units_min(d->wait_ns[w], -left);
        d->wait_ns[w] -= less, left += less;
    }
}

static enum status fill_times(struct engine *e, struct sim_result *out, struct error *err)
{
    int32_t steady = steady_step(e), last = e->stop == STOP_STEADY ? steady : e->steps - 1;
    bool periods = e->period.n && e->steps >= e->period.n;
    int64_t iteration = periods     ? period_ns(e)
                        : e->served ? served_iteration_ns(e)
                        : e->unflushed ? unflushed_ns(e)
                                    : step_ns(e, steady),
            end = e->step_end_ns[last];
    out->steps = last + 1;
    if (iteration > 0 && (e->steps - 1 - last) > (ENGINE_MAX_NS - end) / iteration)
        return error_set(err, ERR_INPUT, "simulated time exceeds 73 years");
    out->makespan_ns = end + (e->steps - 1 - last) * iteration;
    out->iteration_ns = iteration;
    for (int32_t i = 0; i < e->program->n_devices; i++) {
        struct sim_device *d = &out->devices[i];
        struct lane_use use = periods         ? lane_period_use(e, i)
                              : e->served      ? served_use(e, i, iteration)
                              : e->steady_step ? e->lanes[i].steady
                                               : e->lanes[i].ended[steady & 1];
        fill_use(&use, iteration, d);
        d->worked_ns = e->lanes[i].worked_ns;
    }
    return OK;
}

static enum status conclude(struct engine *e, struct cost *k, struct sim_result *out,
                            struct error *err)
{
    const struct program *p = e->program;
    if (e->stop == STOP_ERROR) return error_set(err, e->status, "%s", e->error.text);
    if (e->stop == STOP_ORDER) return OK;
    if (e->stop == STOP_NOT) TRY(report_blocked(e, err));
    *out = (struct sim_result){.events = e->events,
                               .period = e->period.n,
                               .staleness = served_counts(e),
                               .applied = served_applied(e),
                               .operators = e->operators,
                               .work_ns = e->events * e->event_ns,
                               .devices =
                                   ARENA_ARRAY(e->arena, struct sim_device, (size_t)p->n_devices)};
    for (int32_t i = 0; i < p->n_devices; i++) {
        out->devices[i].reserved_bytes = program_lane_bytes(p, i);
        out->devices[i].peak_bytes =
            memory_peak(e->memory, i, e->until_ns, &out->devices[i].peak_ns);
    }
    if (e->stop == STOP_LIMIT) {
        out->iteration_ns = out->makespan_ns = INT64_MAX;
        return OK;
    }
    TRY(fill_times(e, out, err));
    if (e->trace) report_steps(e, out, k);
    out->trace = e->trace;
    return OK;
}

/* disorder: NULL, or set if the run ended at a message out of order, without a result. */
static enum status run_whole(struct arena *a, const struct program *p, struct cost *k,
                             const struct sim_options *o, bool *disorder, struct sim_result *out,
                             struct error *err)
{
    struct engine e = {.arena = a, .program = p, .watches_order = disorder != NULL};
    TRY(set_up(&e, k, o, err));
    run(&e);
    if (disorder) *disorder = e.stop == STOP_ORDER;
    return conclude(&e, k, out, err);
}

/* Each device of the trace, with the devices it represents. */
static void name_classes(struct arena *a, const struct program *p, const struct fold *f,
                         struct trace *t)
{
    size_t n = (size_t)p->n_devices;
    int32_t *first = ARENA_ARRAY(a, int32_t, (size_t)t->n_devices + 1);
    const char **names = ARENA_ARRAY(a, const char *, n + 1);
    for (size_t i = 0; i < n; i++) first[f->of[i] + 1]++;
    for (int32_t k = 0; k < t->n_devices; k++) first[k + 1] += first[k];
    int32_t *at = arena_copy(a, first, ((size_t)t->n_devices + 1) * sizeof *first);
    for (size_t i = 0; i < n; i++) names[at[f->of[i]]++] = p->devices[i].name;
    for (int32_t k = 0; k < t->n_devices; k++) {
        t->devices[k].stands_for = first[k + 1] - first[k];
        if (t->devices[k].stands_for > 1)
            t->devices[k].alike =
                ranges_of_names(a, names + first[k], (size_t)t->devices[k].stands_for, SIZE_MAX);
    }
}

/* The folded program's result for all devices. If it fails the full program runs, so that the error has all names. */
static enum status run_folded(struct arena *a, const struct program *p, struct cost *k,
                              const struct sim_options *o, struct sim_result *out,
                              struct error *err)
{
    struct fold f;
    struct sim_options folded = *o;
    bool disorder;
    fold_make(a, p, k, o->scale, &f);
    if (f.program.n_devices == p->n_devices) return run_whole(a, p, k, o, NULL, out, err);
    folded.trace_replicas = NULL, folded.scale = &f.scale;
    enum status st = run_whole(a, &f.program, k, &folded, &disorder, out, err);
    if (st == ERR_INTERRUPTED || st == ERR_RESOURCE) return st;
    if (st != OK || disorder) return run_whole(a, p, k, o, NULL, out, err);
    const struct sim_device *one = out->devices;
    out->devices = ARENA_ARRAY(a, struct sim_device, (size_t)p->n_devices);
    for (int32_t i = 0; i < p->n_devices; i++) out->devices[i] = one[f.of[i]];
    if (!out->trace) return OK;
    out->traced = arena_copy(a, &f.program, sizeof f.program);
    out->traced_devices = arena_copy(a, one, (size_t)f.program.n_devices * sizeof *one);
    name_classes(a, p, &f, out->trace);
    return OK;
}

enum status sim_run(struct arena *a, const struct program *p, struct cost *k,
                    const struct sim_options *o, struct sim_result *out, struct error *err)
{
    int64_t setup_ns = work_setup_ns(p);
    if (p->n_devices < 1) return error_set(err, ERR_INPUT, "the program has no devices");
    bool fold = o->fold && !o->jitter && !p->server.n; /* with jitter all devices differ; workers have channels of their own */
    if (!o->jitter && !o->each_message) p = ring_flow_make(a, p, k, o->scale);
    enum status st = fold ? run_folded(a, p, k, o, out, err) : run_whole(a, p, k, o, NULL, out, err);
    if (st == OK) out->work_ns += setup_ns;
    return st;
}
