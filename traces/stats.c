/* Streams as lists of intervals, and three operations on lists: union, difference, length. Lists are
 * sorted and their intervals neither touch nor overlap, so each operation is one walk.
 */
#include "traces/stats.h"

#include "core/base/arena.h"

#include <string.h>

struct interval {
    int64_t begin, end;
};
struct intervals {
    size_t n, capacity;
    struct interval *items;
};

static void add(struct arena *a, struct intervals *l, int64_t begin, int64_t end)
{
    if (end <= begin) return;
    struct interval *last = l->n ? &l->items[l->n - 1] : NULL;
    if (last && begin <= last->end) { /* spans are sorted by begin */
        if (end > last->end) last->end = end;
        return;
    }
    l->items = arena_grow(a, l->items, l->n, &l->capacity, sizeof *l->items);
    l->items[l->n++] = (struct interval){begin, end};
}

static int64_t length(const struct intervals *l)
{
    int64_t sum = 0;
    for (size_t i = 0; i < l->n; i++) sum += l->items[i].end - l->items[i].begin;
    return sum;
}

/* Difference: x without y. */
static struct intervals without(struct arena *a, const struct intervals *x,
                                const struct intervals *y)
{
    struct intervals out = {0};
    size_t k = 0;
    for (size_t i = 0; i < x->n; i++) {
        int64_t from = x->items[i].begin, end = x->items[i].end;
        while (k < y->n && y->items[k].end <= from) k++;
        for (size_t m = k; m < y->n && y->items[m].begin < end; m++) {
            add(a, &out, from, y->items[m].begin);
            from = y->items[m].end;
        }
        add(a, &out, from, end);
    }
    return out;
}

/* From the end of the step before the last one, or with local SGD of a period before, to the end of the last step: ends of updates, or
 * of steps whose spans are not kept. */
static void find_window(const struct trace *t, struct stats *out)
{
    int32_t last = -1, before;
    for (size_t i = 0; i < t->n_spans; i++)
        if (t->spans[i].kind == SPAN_COMPUTE && t->spans[i].phase == PHASE_U &&
            t->spans[i].step > last)
            last = t->spans[i].step;
    before = last - (t->period > 1 ? t->period : 1);
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i];
        if (s->kind != SPAN_STEP && (s->kind != SPAN_COMPUTE || s->phase != PHASE_U)) continue;
        if (s->step == last && s->kind != SPAN_STEP && s->end_ns > out->end_ns) out->end_ns = s->end_ns;
        if (s->step == before && s->end_ns > out->begin_ns) out->begin_ns = s->end_ns;
    }
    if (out->end_ns < out->begin_ns) out->end_ns = out->begin_ns;
}

static void measure(struct arena *a, const struct intervals stream[STREAM_COUNT], int64_t begin,
                    int64_t end, struct stats_device *d)
{
    struct intervals whole = {0};
    add(a, &whole, begin, end);
    struct intervals idle = without(a, &whole, &stream[STREAM_compute]);
    struct intervals quiet = without(a, &idle, &stream[STREAM_receive]);
    struct intervals bubble = without(a, &quiet, &stream[STREAM_collective]);
    d->busy_ns = length(&stream[STREAM_compute]);
    d->idle_ns = length(&idle);
    d->send_ns = length(&stream[STREAM_send]);
    d->receive_ns = length(&stream[STREAM_receive]);
    d->collective_ns = length(&stream[STREAM_collective]);
    d->idle_message_ns = d->idle_ns - length(&quiet);
    d->idle_collective_ns = length(&quiet) - length(&bubble);
    d->bubble_ns = length(&bubble);
}

void stats_of_trace(struct arena *a, const struct trace *t, struct stats *out)
{
    static const char phases[] = "FBIWU";
    struct arena *scratch = arena_new();
    size_t *order = trace_order(scratch, t), next = 0;
    *out = (struct stats){.n_devices = t->n_devices,
                          .devices = ARENA_ARRAY(a, struct stats_device, (size_t)t->n_devices)};
    find_window(t, out);
    for (int32_t d = 0; d < t->n_devices; d++) {
        struct intervals stream[STREAM_COUNT] = {0};
        for (; next < t->n_spans && t->spans[order[next]].device == d; next++) {
            const struct span *s = &t->spans[order[next]];
            int64_t begin = s->begin_ns > out->begin_ns ? s->begin_ns : out->begin_ns;
            int64_t end = s->end_ns < out->end_ns ? s->end_ns : out->end_ns;
            const char *phase =
                s->kind == SPAN_COMPUTE && s->phase ? strchr(phases, s->phase) : NULL;
            add(scratch, &stream[s->stream], begin, end);
            if (phase && end > begin) out->devices[d].phase_ns[phase - phases] += end - begin;
        }
        measure(scratch, stream, out->begin_ns, out->end_ns, &out->devices[d]);
    }
    arena_free(scratch);
}
