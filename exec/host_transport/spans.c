#include "exec/host_transport/spans.h"

#include <string.h>

/* Names are addresses in their rank; the program has all of them. */
static const char *name_of(const struct program *p, const struct span *s)
{
    int32_t link = -1;
    switch (s->kind) {
    case SPAN_COMPUTE:
        return op_kind_name(p->stages[s->stage].ops[s->op].kind);
    case SPAN_SEND:
    case SPAN_RECEIVE:
        link = p->channels[s->op].link;
        break;
    case SPAN_REDUCE:
        for (int32_t i = 0;
             i < p->collectives[s->op].n_members && !program_collective_in_rounds(&p->collectives[s->op]);
             i++)
            if (p->collectives[s->op].members[i].stage == s->stage)
                link = p->collectives[s->op].link[i];
        break;
    case SPAN_OFFLOAD:
    case SPAN_FETCH:
        return "host";
    default:
        break;
    }
    if (link >= 0) return p->links[link].name;
    return s->kind == SPAN_REDUCE ? p->collectives[s->op].name : s->kind == SPAN_STEP ? "step" : s->kind == SPAN_SNAPSHOT || s->kind == SPAN_SAVE ? "checkpoint" : "";
}

struct message_times {
    int64_t start_ns, arrival_ns; /* 0: unknown */
};

/* Real ranks: the sender has a message's start, the receiver its arrival. A receive begins when both ends were ready. Between hosts a
 * send ends with the arrival too, because the sender only knows when the operating system has copied the message. */
static void join_messages(struct arena *a, const struct program *p, struct span *spans, size_t n,
                          int64_t steps, bool one_host)
{
    struct message_times **known = ARENA_ARRAY(a, struct message_times *, (size_t)p->n_channels + 1), *x;
    for (int32_t i = 0; i < p->n_channels; i++) {
        int64_t count = steps * program_channel_messages(p, &p->channels[i]);
        known[i] = ARENA_ARRAY(a, struct message_times, (size_t)count + 1);
    }
    for (int pass = 0; pass < 2; pass++)
        for (size_t k = 0; k < n; k++) {
            struct span *s = &spans[k];
            if (s->kind != SPAN_SEND && s->kind != SPAN_RECEIVE) continue;
            x = &known[s->op][s->step * (int64_t)program_channel_messages(p, &p->channels[s->op]) + (s->microbatch < 0 ? 0 : s->microbatch)];
            if (pass == 0 && s->kind == SPAN_SEND) x->start_ns = s->begin_ns;
            if (pass == 0 && s->kind == SPAN_RECEIVE) x->arrival_ns = s->end_ns;
            if (pass == 1 && s->kind == SPAN_RECEIVE && x->start_ns > s->begin_ns) s->begin_ns = x->start_ns;
            if (pass == 1 && s->kind == SPAN_SEND && !one_host && x->arrival_ns > s->end_ns) s->end_ns = x->arrival_ns;
            if (s->begin_ns > s->end_ns)
                s->begin_ns = s->end_ns; /* clocks of two hosts agree to microseconds */
        }
}

static void add_steps(struct trace *t, const struct program *p, const int64_t *ends_ns,
                      int64_t steps)
{
    int64_t before = 0;
    for (int64_t s = 0; s < steps; s++) {
        int32_t last = 0;
        for (int32_t r = 1; r < p->n_devices; r++)
            if (ends_ns[r * steps + s] > ends_ns[last * steps + s]) last = r;
        int64_t end = ends_ns[last * steps + s];
        trace_add(t, (struct span){.kind = SPAN_STEP,
                                   .stream = STREAM_step,
                                   .device = last,
                                   .peer = -1,
                                   .stage = -1,
                                   .phase = PHASE_SEND,
                                   .step = (int32_t)s,
                                   .microbatch = -1,
                                   .op = -1,
                                   .begin_ns = before,
                                   .end_ns = end,
                                   .name = "step"});
        before = end;
    }
}

/* Kernel names, rank by rank. NULL except on rank 0 with kernels recorded. */
struct all_names {
    struct span_names *of; /* (ranks) */
    int64_t lost;          /* of all */
};

static struct all_names *gather_names(struct arena *a, struct comm *c,
                                      const struct span_names *names)
{
    int64_t total;
    if (!names) return NULL;
    struct span_names *of = comm_gather(c, a, names, sizeof *names, &total);
    const char *text = comm_gather(c, a, names->text, names->bytes, &total);
    if (!of) return NULL;
    struct all_names *all = ARENA_ARRAY(a, struct all_names, 1);
    all->of = of;
    for (int32_t r = 0; r < comm_size(c); r++) {
        of[r].text = text;
        text += of[r].bytes;
        all->lost += of[r].lost;
    }
    return all;
}

static void name_kernel(const struct all_names *all, struct span *s)
{
    s->name = all->of[s->device].text + s->key;
    s->key = 0;
}

struct trace *spans_gather(struct arena *a, struct comm *c, const struct program *p,
                           const struct span_list *lists, int n, const struct span_names *names,
                           const int64_t *step_end_ns, int64_t steps)
{
    int64_t bytes = 0;
    int64_t *ends = comm_gather_each(c, a, step_end_ns, steps * (int64_t)sizeof *step_end_ns);
    struct trace *t = comm_rank(c) == 0 ? trace_new(a, "host", p) : NULL;
    struct all_names *all = gather_names(a, c, names);
    for (int i = 0; i < n; i++) {
        struct span *spans =
            comm_gather(c, a, lists[i].spans, (int64_t)(lists[i].n * sizeof *spans), &bytes);
        if (!t) continue;
        size_t count = (size_t)bytes / sizeof *spans;
        for (size_t k = 0; k < count; k++) {
            if (spans[k].kind == SPAN_KERNEL)
                name_kernel(all, &spans[k]);
            else
                spans[k].name = name_of(p, &spans[k]);
            trace_add(t, spans[k]);
        }
    }
    if (!t) return NULL;
    if (!p->emulated) join_messages(a, p, t->spans, t->n_spans, steps, comm_one_host(c));
    t->kernels = all != NULL;
    t->kernels_lost = all ? all->lost : 0;
    t->steps = (int32_t)steps;
    add_steps(t, p, ends, steps);
    trace_sort(t);
    return t;
}
