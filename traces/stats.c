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

struct window {
    int64_t begin_ns, end_ns, times;
};

/* All spans of a trace (order NULL), or those of one device. */
struct listed {
    const struct trace *t;
    const size_t *order;
    size_t n;
};

/* Of its updates; of all devices, and not of the last step, of the step itself if the spans of its updates are not kept. On emulated devices
 * the end of a step is in wall time, which may be behind the virtual time of spans. 0: the trace has none. */
static int64_t end_of_step(const struct listed *x, int32_t step, bool last)
{
    int64_t updates = 0, whole = 0;
    for (size_t i = 0; i < x->n; i++) {
        const struct span *s = &x->t->spans[x->order ? x->order[i] : i];
        if (s->step != step) continue;
        if (s->kind == SPAN_COMPUTE && s->phase == PHASE_U && s->end_ns > updates) updates = s->end_ns;
        if (s->kind == SPAN_STEP && s->end_ns > whole) whole = s->end_ns;
    }
    return updates || x->order || last ? updates : whole;
}

static int32_t last_step(const struct trace *t)
{
    int32_t last = -1;
    for (size_t i = 0; i < t->n_spans; i++)
        if (t->spans[i].kind == SPAN_COMPUTE && t->spans[i].phase == PHASE_U && t->spans[i].step > last)
            last = t->spans[i].step;
    return last;
}

/* From the end of the step before the last one, or with local SGD of a period before, to the end of the last step's updates; one window, or
 * one for each step where some stand for several. */
static struct window *find_windows(struct arena *a, const struct listed *x, int32_t last, int32_t *n)
{
    const struct trace *t = x->t;
    int32_t before = last - (t->period > 1 ? t->period : 1);
    bool several = t->period_times && before >= -1;
    *n = several ? t->period : 1;
    struct window *w = ARENA_ARRAY(a, struct window, (size_t)*n);
    int64_t begin = end_of_step(x, before, false);
    for (int32_t i = 0; i < *n; i++) {
        int64_t end = end_of_step(x, several ? before + 1 + i : last, i == *n - 1);
        w[i] = (struct window){begin, end > begin ? end : begin, several ? t->period_times[i] : 1};
        begin = w[i].end_ns;
    }
    return w;
}

static int64_t windows_ns(const struct window *w, int32_t n)
{
    int64_t ns = 0;
    for (int32_t i = 0; i < n; i++) ns += w[i].times * (w[i].end_ns - w[i].begin_ns);
    return ns;
}

static void measure(struct arena *a, const struct intervals stream[STREAM_COUNT], const struct window *w,
                    struct stats_device *d)
{
    struct intervals whole = {0};
    add(a, &whole, w->begin_ns, w->end_ns);
    struct intervals idle = without(a, &whole, &stream[STREAM_compute]);
    struct intervals unserved = without(a, &idle, &stream[STREAM_receive]);
    struct intervals quiet = without(a, &unserved, &stream[STREAM_fetch]);
    struct intervals bubble = without(a, &quiet, &stream[STREAM_collective]);
    d->busy_ns += w->times * length(&stream[STREAM_compute]);
    d->idle_ns += w->times * length(&idle);
    d->send_ns += w->times * length(&stream[STREAM_send]);
    d->receive_ns += w->times * length(&stream[STREAM_receive]);
    d->collective_ns += w->times * length(&stream[STREAM_collective]);
    d->idle_message_ns += w->times * (length(&idle) - length(&quiet));
    d->idle_collective_ns += w->times * (length(&quiet) - length(&bubble));
    d->bubble_ns += w->times * length(&bubble);
}

/* Adds what the spans of one device do in a window. */
static void add_window(struct arena *a, const struct listed *x, const struct window *w, struct stats_device *d)
{
    static const char phases[] = "FBIWU";
    struct intervals stream[STREAM_COUNT] = {0};
    for (size_t i = 0; i < x->n; i++) {
        const struct span *s = &x->t->spans[x->order[i]];
        int64_t begin = s->begin_ns > w->begin_ns ? s->begin_ns : w->begin_ns;
        int64_t end = s->end_ns < w->end_ns ? s->end_ns : w->end_ns;
        const char *phase = s->kind == SPAN_COMPUTE && s->phase ? strchr(phases, s->phase) : NULL;
        add(a, &stream[s->stream], begin, end);
        if (phase && end > begin) d->phase_ns[phase - phases] += w->times * (end - begin);
    }
    measure(a, stream, w, d);
}

void stats_of_trace(struct arena *a, const struct trace *t, struct stats *out)
{
    struct arena *scratch = arena_new();
    size_t *order = trace_order(scratch, t), next = 0;
    int32_t n, last = last_step(t);
    const struct window *all = find_windows(scratch, &(struct listed){t, NULL, t->n_spans}, last, &n);
    *out = (struct stats){.begin_ns = all[0].begin_ns,
                          .end_ns = all[n - 1].end_ns,
                          .window_ns = windows_ns(all, n),
                          .n_devices = t->n_devices,
                          .devices = ARENA_ARRAY(a, struct stats_device, (size_t)t->n_devices)};
    for (int32_t d = 0; d < t->n_devices; d++) {
        struct stats_device *x = &out->devices[d];
        struct listed mine = {t, order + next, 0};
        for (; next < t->n_spans && t->spans[order[next]].device == d; next++) mine.n++;
        /* its own ends of steps, because it may be ahead of others */
        const struct window *own = n > 1 ? find_windows(scratch, &mine, last, &n) : all;
        for (int32_t i = 0; i < n; i++) add_window(scratch, &mine, &own[i], x);
        /* In the steps that were not simulated a faster device gets further ahead, and then waits for the exchange as much longer. */
        int64_t ahead_ns = out->window_ns - windows_ns(own, n);
        if (ahead_ns > 0) x->idle_ns += ahead_ns, x->idle_collective_ns += ahead_ns;
    }
    arena_free(scratch);
}
