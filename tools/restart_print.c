/* What became of a run's time: its trace, goodput and restarts. */
#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/document/json.h"
#include "tools/restart.h"

#include <inttypes.h>
#include <stdio.h>

void restart_note_start(struct restart *r)
{
    const struct run_board *b = &r->shared->board;
    struct restart_event none, *e = r->n ? &r->events[r->n - 1] : &none;
    e->launch_ns = e->load_ns = e->first_step_ns = 0;
    if (b->loaded_ns) e->load_ns = b->loaded_ns - b->joined_ns;
    if (b->begun_ns) e->launch_ns = b->joined_ns - b->forked_ns + b->begun_ns - b->loaded_ns;
    if (b->first_ns) e->first_step_ns = b->first_ns - b->begun_ns;
    if (!r->n) r->launch_ns = e->launch_ns;
}

/* ---- trace ----------------------------------------------------------------------------------- */

const char *restart_span_text(struct arena *a, int64_t before, int64_t ended, int32_t n_devices)
{
    const char *devices = n_devices == 1 ? "1 device" : arena_printf(a, "%" PRId32 " devices", n_devices);
    if (ended <= before) return arena_printf(a, "no complete step on %s", devices);
    return arena_printf(a, "steps %" PRId64 " to %" PRId64 " on %s", before + 1, ended, devices);
}

void restart_trace_add(const struct restart *r, struct trace *t, const struct restart_span *s)
{
    int64_t zero_ns = r->shared->board.zero_ns;
    int64_t begin_ns = s->begin_ns > zero_ns ? s->begin_ns - zero_ns : 0, end_ns = s->end_ns - zero_ns;
    if (end_ns <= begin_ns) return;
    trace_add(t, (struct span){.kind = s->kind,
                               .stream = STREAM_run,
                               .peer = -1,
                               .stage = -1,
                               .phase = PHASE_SEND,
                               .microbatch = -1,
                               .op = -1,
                               .begin_ns = begin_ns,
                               .end_ns = end_ns,
                               .name = s->text});
}

void restart_trace(struct restart *r, struct trace *t)
{
    const struct run_board *b = &r->shared->board;
    if (!r->n) return;
    const struct restart_event *last = &r->events[r->n - 1];
    trace_shift(t, b->begun_ns - b->zero_ns);
    for (int32_t i = 0; i < r->n_spans; i++) restart_trace_add(r, t, &r->spans[i]);
    restart_trace_add(r, t, &(struct restart_span){SPAN_RESTART, b->forked_ns, b->begun_ns, last->why});
    restart_trace_add(r, t, &(struct restart_span){SPAN_TRAIN, b->begun_ns, b->last_ns, restart_span_text(r->a, last->step, b->ended, t->n_devices)});
    trace_sort(t);
}

/* ---- goodput --------------------------------------------------------------------------------- */

/* Where the time from the first step of the first start to the end of the last checkpoint went. */
struct summary {
    int64_t elapsed_ns, step_ns, steps, lost_steps;
    int64_t useful_ns, fewer_ns, slow_ns, lost_ns, checkpoint_ns, detection_ns, waiting_ns, replan_ns, restart_ns;
    int32_t resumed;   /* restarts after failures that reached their first new step */
    int64_t found_ns, resume_ns; /* sums over these: detection; from its end to the end of the first new step, without waiting for nodes */
};

/* What the kept steps of starts on fewer devices than the first one took beyond its median step. */
static int64_t on_fewer_devices(const struct restart *r, int64_t step_ns)
{
    const struct run_board *b = &r->shared->board;
    int64_t sum_ns = 0;
    for (int32_t i = 0; i < r->n; i++) {
        int64_t from = r->events[i].step, to = i + 1 < r->n ? r->events[i + 1].step : b->ended;
        if (to - from > RUN_BOARD_STEPS) from = to - RUN_BOARD_STEPS;
        int64_t beyond_ns = run_board_time(b, from, to) - (to - from) * step_ns;
        if (r->events[i].n_devices < r->program.n_devices && beyond_ns > 0) sum_ns += beyond_ns;
    }
    return sum_ns;
}

static void add_up(struct restart *r, struct summary *s)
{
    const struct run_board *b = &r->shared->board;
    *s = (struct summary){.elapsed_ns = b->last_ns - b->zero_ns, .step_ns = run_board_median(r->a, b), .steps = b->ended - b->before};
    for (int32_t i = 0; i < r->n; i++) {
        const struct restart_event *e = &r->events[i];
        s->lost_steps += e->lost_steps;
        s->lost_ns += e->lost_ns;
        s->detection_ns += e->detection_ns;
        s->waiting_ns += e->waiting_ns;
        s->replan_ns += e->replan_ns;
        s->restart_ns += e->launch_ns + e->load_ns;
        if (!e->first_step_ns || !e->failed) continue;
        s->resumed++;
        s->found_ns += e->detection_ns;
        s->resume_ns += e->replan_ns + e->launch_ns + e->load_ns + e->first_step_ns;
    }
    s->checkpoint_ns = b->saves_ns + b->memory_saves_ns;
    s->useful_ns = s->steps * s->step_ns;
    s->fewer_ns = on_fewer_devices(r, s->step_ns);
    s->slow_ns = s->elapsed_ns - s->useful_ns - s->fewer_ns - s->lost_ns - s->checkpoint_ns - s->detection_ns - s->waiting_ns - s->replan_ns - s->restart_ns;
    if (s->slow_ns < 0) { /* the mean of few steps may be below their median */
        s->useful_ns += s->slow_ns;
        s->slow_ns = 0;
    }
}

/* name of a part, its time in the summary */
#define PARTS(X)                                                                                                                           \
    X(useful, "useful training steps")                                                                                                     \
    X(fewer, "steps on fewer devices")                                                                                                     \
    X(slow, "slower steps than the median")                                                                                                \
    X(lost, "steps lost")                                                                                                                  \
    X(checkpoint, "checkpoints")                                                                                                           \
    X(detection, "detection")                                                                                                              \
    X(waiting, "waiting for nodes")                                                                                                        \
    X(replan, "planning again")                                                                                                            \
    X(restart, "launch and load")

static void print_faults_json(const struct restart *r, struct json *j)
{
    if (!r->script) return;
    json_put_list(j, "faults");
    for (int32_t i = 0; i < r->faults.n; i++) {
        const struct fault *f = &r->faults.faults[i];
        const struct fault_state *s = &r->shared->faults.state[i];
        bool happened = s->phase >= FAULT_HAPPENED;
        json_put_object_line(j, NULL);
        json_put_text(j, "kind", fault_kind_name(f->kind));
        if (*f->place) json_put_text(j, "place", f->place);
        json_put_bool(j, "happened", happened);
        if (happened) json_put_int(j, "step", s->step);
        if (happened) json_put_int(j, "at_ns", s->ns - r->shared->board.zero_ns);
        json_close(j);
    }
    json_close(j);
}

static void print_json(const struct restart *r, const struct summary *s, struct json *j)
{
    const struct run_board *b = &r->shared->board;
    json_put_object(j, "goodput");
    json_put_double(j, "goodput", (double)s->useful_ns / (double)s->elapsed_ns);
    json_put_int(j, "elapsed_ns", s->elapsed_ns);
    json_put_int(j, "step_ns", s->step_ns);
    json_put_int(j, "steps", s->steps);
    json_put_int(j, "restarts", r->n);
    json_put_int(j, "lost_steps", s->lost_steps);
    json_put_int(j, "launch_ns", r->launch_ns);
    json_put_int(j, "checkpoints", b->saves);
    if (b->saves) json_put_int(j, "checkpoint_ns", b->saves_ns / b->saves);
    if (b->memory_saves) json_put_int(j, "memory_checkpoints", b->memory_saves);
    if (b->memory_saves) json_put_int(j, "memory_checkpoint_ns", b->memory_saves_ns / b->memory_saves);
    if (s->resumed) json_put_int(j, "resume_ns", s->resume_ns / s->resumed);
    json_put_object(j, "parts_ns");
#define X(name, help) json_put_int(j, #name, s->name##_ns);
    PARTS(X)
#undef X
    json_close(j);
    json_close(j);
    print_faults_json(r, j);
    if (r->n) json_put_list(j, "restarts");
    for (int32_t i = 0; i < r->n; i++) {
        const struct restart_event *e = &r->events[i];
        json_put_object(j, NULL);
        json_put_int(j, "step", e->step);
        json_put_bool(j, "failed", e->failed);
        json_put_text(j, "from", e->copies ? "peer" : e->memory ? "memory" : "disk");
        json_put_text(j, "why", e->why);
        if (e->without) json_put_text(j, "without", e->without);
        json_put_int(j, "devices", e->n_devices);
        if (e->plan) json_put_text(j, "plan", e->plan);
        json_put_int(j, "at_ns", e->at_ns > b->zero_ns ? e->at_ns - b->zero_ns : 0);
        json_put_int(j, "lost_steps", e->lost_steps);
        json_put_int(j, "detection_ns", e->detection_ns);
        if (e->waiting_ns) json_put_int(j, "waiting_ns", e->waiting_ns);
        if (e->replan_ns) json_put_int(j, "replan_ns", e->replan_ns);
        json_put_int(j, "launch_ns", e->launch_ns);
        json_put_int(j, "load_ns", e->load_ns);
        json_put_int(j, "first_step_ns", e->first_step_ns);
        json_close(j);
    }
    if (r->n) json_close(j);
}

static void print_text(const struct restart *r, const struct summary *s)
{
    char x[32], y[32], z[32], u[32], v[32];
    if (!r->max && !r->script) return;
    printf("  goodput    %.2f %%: %" PRId64 " steps of %s in %s; %" PRId32 " restart%s, %" PRId64 " step%s lost\n",
           100 * (double)s->useful_ns / (double)s->elapsed_ns, s->steps, units_print_ns(x, s->step_ns), units_print_ns(y, s->elapsed_ns), r->n,
           r->n == 1 ? "" : "s", s->lost_steps, s->lost_steps == 1 ? "" : "s");
#define X(name, help) \
    if (s->name##_ns) printf("    %-31s %6.2f %%\n", help, 100 * (double)s->name##_ns / (double)s->elapsed_ns);
    PARTS(X)
#undef X
    for (int32_t i = 0; i < r->n; i++) {
        const struct restart_event *e = &r->events[i];
        printf("  restart    after step %" PRId64 "%s: %s", e->step, e->copies ? ", from memory and a peer's" : e->memory ? ", from memory" : "", e->why);
        if (e->without) printf("; without %s, planned in %s", e->without, units_print_ns(x, e->replan_ns));
        printf("\n    detection %s, launch %s, load %s, first step %s; %" PRId64 " step%s lost\n", units_print_ns(x, e->detection_ns),
               units_print_ns(y, e->launch_ns), units_print_ns(z, e->load_ns), units_print_ns(u, e->first_step_ns), e->lost_steps,
               e->lost_steps == 1 ? "" : "s");
    }
    if (s->resumed)
        printf("  mean time to the first new step, beyond %s of detection: %s\n", units_print_ns(u, s->found_ns / s->resumed),
               units_print_ns(v, s->resume_ns / s->resumed));
}

void restart_print(struct restart *r, struct json *json)
{
    struct summary s;
    if (!r->shared || !r->shared->board.steps) return;
    restart_note_start(r);
    add_up(r, &s);
    if (json)
        print_json(r, &s, json);
    else
        print_text(r, &s);
}
