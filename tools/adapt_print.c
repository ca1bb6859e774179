/* tools/adapt_print.c - the decisions of an adapting run, in its output and its trace. */
#include "tools/adapt.h"

#include "core/base/units.h"
#include "core/document/json.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

void adapt_trace(const struct adapt *x, struct trace *t)
{
    int32_t n = x->shared ? atomic_load(&x->shared->n) : 0;
    for (int32_t i = 0; i < n; i++) {
        const struct adapt_event *e = &x->shared->events[i];
        restart_trace_add(x->restart, t, &(struct restart_span){SPAN_REPLAN, e->begin_ns, e->begin_ns + e->replan_ns, e->taken ? e->plan : e->why});
    }
    if (n) trace_sort(t);
}

static void put_causes(struct json *json, int causes)
{
    json_put_list(json, "causes");
#define X(name, text) \
    if (causes & CAUSE_##name) json_put_text(json, NULL, text);
    ADAPT_CAUSES(X)
#undef X
    json_close(json);
}

void adapt_print(const struct adapt *x, struct json *json)
{
    char was[32], is[32], time[32];
    int32_t n = x->shared ? atomic_load(&x->shared->n) : 0;
    if (json && n) json_put_list(json, "adaptations");
    for (int32_t i = 0; i < n; i++) {
        const struct adapt_event *e = &x->shared->events[i];
        if (json) {
            json_put_object(json, NULL);
            json_put_int(json, "step", e->step);
            json_put_text(json, "what", e->what);
            put_causes(json, e->causes);
            json_put_bool(json, "taken", e->taken);
            if (*e->why) json_put_text(json, "why", e->why);
            if (e->old_ns) json_put_int(json, "old_ns", e->old_ns);
            if (e->new_ns) json_put_int(json, "new_ns", e->new_ns);
            if (*e->plan) json_put_text(json, "plan", e->plan);
            json_put_int(json, "replan_ns", e->replan_ns);
            json_put_int(json, "cost_ns", e->cost_ns);
            json_close(json);
        } else if (e->taken) {
            printf("  adapted    after step %" PRId64 ": %s; predicted %s in place of %s per iteration, planned in %s: %s\n", e->step, e->what,
                   units_print_ns(is, e->new_ns), units_print_ns(was, e->old_ns), units_print_ns(time, e->replan_ns), e->plan);
        } else {
            printf("  unchanged  after step %" PRId64 ": %s; %s\n", e->step, e->what, e->why);
        }
    }
    if (json && n) json_close(json);
}
