/* sim/pipeline/report.c - times of a schedule by the static pass or, if links contend, from a trace of the event loop. */
#include "sim/pipeline/program.h"

#include "core/base/arena.h"

/* Operations of a lane are in its trace in the order of the schedule. */
static void spans_from_trace(const struct schedule *s, const struct trace *t, struct arena *a,
                             struct static_span *spans)
{
    int64_t *at = ARENA_ARRAY(a, int64_t, (size_t)s->n_devices), first = 0;
    for (int32_t d = 0; d < s->n_devices; d++) at[d] = first, first += s->lanes[d].n_ops;
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *x = &t->spans[i];
        if (x->kind == SPAN_COMPUTE && x->phase != PHASE_U)
            spans[at[x->device]++] = (struct static_span){x->begin_ns, x->end_ns};
    }
}

static enum status run_events(struct arena *a, const struct schedule *s, const struct pipeline *p,
                              enum link_sharing sharing, struct sim_result *r, struct error *err)
{
    struct pipeline_program *x = ARENA_ARRAY(a, struct pipeline_program, 1);
    struct sim_options o = {.steps = 1, .keep_trace = true};
    TRY(pipeline_program(a, s, p, NULL, sharing, x, err));
    return sim_run(a, &x->program, x->cost, &o, r, err);
}

enum status pipeline_report(struct arena *a, const struct schedule *s, const struct pipeline *p,
                            enum link_sharing sharing, struct static_report *out, bool *events,
                            struct trace **trace, struct error *err)
{
    struct static_timer *t;
    struct sim_result r;
    TRY(static_new(a, s, &t, err));
    TRY(pipeline_check(p, s, err));
    *events = sharing != LINK_FIFO || !static_report(t, p, a, out);
    if (!*events && !trace) return OK;
    TRY(run_events(a, s, p, sharing, &r, err));
    if (trace) *trace = r.trace;
    if (!*events) return OK;
    struct static_span *spans = ARENA_ARRAY(a, struct static_span, (size_t)schedule_ops(s));
    spans_from_trace(s, r.trace, a, spans);
    static_summarize(t, p, a, r.makespan_ns, spans, out);
    return OK;
}
