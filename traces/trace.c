/* A trace in memory: spans in the order of trace_add, until trace_sort.
 *
 * Names and texts are borrowed from the program (or from the arena of trace_read); the spans are the
 * arena's. Sorting is by (device, stream, begin) and, for equal keys, by the order of adding:
 * equal begins are common (operators of zero duration, messages on two channels), and an unstable library
 * sort would break the guarantee of equal bytes for equal inputs.
 */
#include "traces/trace.h"

#include "core/base/arena.h"
#include "traces/quantile.h"
#include "traces/spill.h"

#include <stdlib.h>
#include <string.h>

const char *span_kind_name(enum span_kind kind)
{
    static const char *const names[SPAN_KIND_COUNT] = {"compute", "send", "receive",
                                                       "reduce",  "step", "kernel",  "offload", "fetch",
                                                       "snapshot", "save", "train", "restart", "replan", "idle"};
    if ((int)kind < 0 || kind >= SPAN_KIND_COUNT) BUG("span kind %d", (int)kind);
    return names[kind];
}

const char *span_title(const struct span *s)
{
    if (s->kind == SPAN_COMPUTE || s->kind == SPAN_KERNEL) return s->name;
    if (s->collective) return collective_kind_word((enum collective_kind)(s->collective - 1));
    return span_kind_name(s->kind);
}

bool span_in_step(const struct span *s) { return s->stream != STREAM_snapshot && s->stream != STREAM_save && s->stream != STREAM_run; }

const char *stream_name(enum stream s)
{
    static const char *const names[STREAM_COUNT] = {
#define X(name) #name,
        STREAMS(X)
#undef X
    };
    if ((int)s < 0 || s >= STREAM_COUNT) BUG("stream %d", (int)s);
    return names[s];
}

bool trace_is_predicted(const struct trace *t) { return !strcmp(t->source, TRACE_SIM); }

struct trace *trace_new(struct arena *a, const char *source, const struct program *p)
{
    struct trace *t = ARENA_ARRAY(a, struct trace, 1);
    *t = (struct trace){.arena = a,
                        .source = source,
                        .plan = p->name,
                        .plan_hash = p->plan_hash,
                        .emulated = p->emulated,
                        .period = p->outer.every,
                        .steps = p->steps,
                        .n_devices = p->n_devices,
                        .n_stages = p->n_stages};
    t->clock = trace_is_predicted(t) ? "simulated" : p->emulated ? "virtual" : "wall";
    t->devices = ARENA_ARRAY(a, struct trace_device, (size_t)p->n_devices);
    for (int32_t i = 0; i < p->n_devices; i++)
        t->devices[i] = (struct trace_device){.name = p->devices[i].name,
                                              .type = p->devices[i].type,
                                              .slowdown = p->devices[i].slowdown};
    return t;
}

void trace_reserve(struct trace *t, size_t n)
{
    if (t->spans) BUG("a trace that has spans already");
    t->spans = ARENA_ARRAY(t->arena, struct span, n);
    t->capacity = n;
}

void trace_stream(struct trace *t, const char *path, size_t n)
{
    trace_reserve(t, n);
    t->spill = spill_new(t->arena, path);
}

void trace_stream_end(struct trace *t)
{
    spill_close(t->spill);
    t->spill = NULL;
}

void trace_add(struct trace *t, struct span s)
{
    /* Ends of steps come last and stay, because trace_keep_devices gives them to another device. */
    if (t->spill && t->n_spans == t->capacity && s.kind != SPAN_STEP) {
        trace_sort(t);
        spill_run(t->spill, t->spans, t->n_spans);
        t->n_spans = 0;
    }
    t->spans = arena_grow(t->arena, t->spans, t->n_spans, &t->capacity, sizeof *t->spans);
    t->spans[t->n_spans++] = s;
}

/* --- order ----------------------------------------------------------------------------------- */

int trace_compare_spans(const struct span *x, const struct span *y)
{
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    if (x->stream != y->stream) return x->stream < y->stream ? -1 : 1;
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    return 0;
}

static int by_place_then_index(const void *a, const void *b, void *spans)
{
    size_t i = *(const size_t *)a, j = *(const size_t *)b;
    int order = trace_compare_spans((const struct span *)spans + i, (const struct span *)spans + j);
    return order ? order : i < j ? -1 : i > j;
}

void trace_keep_devices(struct trace *t, const bool *keep)
{
    struct arena *scratch = arena_new();
    int32_t n = 0, *to = ARENA_ARRAY(scratch, int32_t, (size_t)t->n_devices + 1);
    size_t kept = 0;
    for (int32_t i = 0; i < t->n_devices; i++) {
        to[i] = keep[i] ? n : -1;
        if (keep[i]) t->devices[n++] = t->devices[i];
    }
    const int32_t n_before = t->n_devices;
    t->n_devices = n;
    for (size_t i = 0; i < t->n_spans; i++) {
        struct span s = t->spans[i];
        int32_t device = to[s.device], peer = s.peer >= 0 ? to[s.peer] : -1;
        if (s.kind == SPAN_STEP && device < 0) device = 0;
        if (device < 0 || (s.peer >= 0 && peer < 0)) continue;
        s.device = device, s.peer = peer;
        t->spans[kept++] = s;
    }
    if (t->spill) spill_renumber(t->spill, to, n_before);
    t->n_spans = kept;
    arena_free(scratch);
    trace_sort(t);
}

bool trace_folded(const struct trace *t)
{
    for (int32_t i = 0; i < t->n_devices; i++)
        if (t->devices[i].stands_for > 1) return true;
    return false;
}

int32_t trace_weight(const struct trace *t, int32_t device)
{
    return t->devices[device].stands_for > 1 ? t->devices[device].stands_for : 1;
}

bool trace_sorted(const struct trace *t)
{
    for (size_t i = 1; i < t->n_spans; i++)
        if (trace_compare_spans(&t->spans[i - 1], &t->spans[i]) > 0) return false;
    return true;
}

/* Index of (device, stream); a device of -1 is before the first. SIZE_MAX: neither is of the trace. */
static size_t place_of(const struct trace *t, const struct span *s)
{
    if (s->device < -1 || s->device >= t->n_devices || (int)s->stream < 0 ||
        s->stream >= STREAM_COUNT)
        return SIZE_MAX;
    return (size_t)(s->device + 1) * STREAM_COUNT + (size_t)s->stream;
}

/* Counting sort by place, which keeps the order of adding, and so most often that of time. *ends: (places) of each place; false: some
 * span has none. */
static bool order_by_place(struct arena *scratch, const struct trace *t, size_t *order,
                           size_t **ends, size_t *places)
{
    *places = (size_t)(t->n_devices + 1) * STREAM_COUNT;
    size_t *end = ARENA_ARRAY(scratch, size_t, *places + 1), sum = 0;
    for (size_t i = 0; i < t->n_spans; i++) {
        size_t place = place_of(t, &t->spans[i]);
        if (place == SIZE_MAX) return false;
        end[place]++;
    }
    for (size_t k = 0; k < *places; k++) {
        size_t n = end[k];
        end[k] = sum;
        sum += n;
    }
    for (size_t i = 0; i < t->n_spans; i++) order[end[place_of(t, &t->spans[i])]++] = i;
    *ends = end;
    return true;
}

static void order_by_time(const struct trace *t, size_t *order, size_t n)
{
    size_t i = 1;
    while (i < n && t->spans[order[i - 1]].begin_ns <= t->spans[order[i]].begin_ns) i++;
    if (i < n) qsort_r(order, n, sizeof *order, by_place_then_index, t->spans);
}

size_t *trace_order(struct arena *a, const struct trace *t)
{
    size_t *order = ARENA_ARRAY(a, size_t, t->n_spans), *ends = NULL, places = 0;
    struct arena *scratch = arena_new();
    if (order_by_place(scratch, t, order, &ends, &places)) {
        for (size_t k = 0, first = 0; k < places; first = ends[k++])
            order_by_time(t, order + first, ends[k] - first);
    } else {
        for (size_t i = 0; i < t->n_spans; i++) order[i] = i;
        qsort_r(order, t->n_spans, sizeof *order, by_place_then_index, t->spans);
    }
    arena_free(scratch);
    return order;
}

void trace_sort(struct trace *t)
{
    if (trace_sorted(t)) return;
    struct arena *scratch = arena_new();
    size_t *order = trace_order(scratch, t);
    /* In place: spans move along the cycles of the permutation, with one in a temporary. */
    for (size_t i = 0; i < t->n_spans; i++) {
        struct span held = t->spans[i];
        size_t at = i;
        for (size_t from; (from = order[at]) != i; at = from)
            t->spans[at] = t->spans[from], order[at] = at;
        t->spans[at] = held, order[at] = at;
    }
    arena_free(scratch);
}

void trace_shift(struct trace *t, int64_t ns)
{
    for (size_t i = 0; i < t->n_spans; i++) t->spans[i].begin_ns += ns, t->spans[i].end_ns += ns;
}

/* --- the iteration --------------------------------------------------------------------------- */

struct step_end {
    int32_t step;
    int64_t end_ns;
};

static int by_step(const void *a, const void *b)
{
    const struct step_end *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return x->end_ns < y->end_ns ? -1 : x->end_ns > y->end_ns;
}

/* The first step has an end but no begin (the program's start precedes it), so the
 * differences of consecutive ends are exactly the counted steps (trace_first_counted_step). */
/* Of ends that are `apart` steps from each other, per step. */
static int64_t median_difference(struct arena *a, const struct step_end *ends, size_t n, size_t apart)
{
    int64_t *d = ARENA_ARRAY(a, int64_t, n);
    if (apart < 1) apart = 1;
    if (apart > n - 1) apart = n - 1;
    for (size_t i = apart; i < n; i++) d[i - apart] = ends[i].end_ns - ends[i - apart].end_ns;
    return quantile_median_ns(d, n - apart) / (int64_t)apart;
}

int32_t trace_first_counted_step(const struct trace *t)
{
    int32_t least = INT32_MAX, most = -1;
    for (size_t i = 0; i < t->n_spans; i++) {
        if (t->spans[i].kind == SPAN_STEP || t->spans[i].stream == STREAM_run) continue;
        if (t->spans[i].step < least) least = t->spans[i].step;
        if (t->spans[i].step > most) most = t->spans[i].step;
    }
    return most < 0 ? 0 : most > least ? least + 1 : least;
}

int64_t trace_iteration(const struct trace *t)
{
    struct arena *scratch = arena_new();
    size_t n = 0, steps = 0, capacity = 0;
    struct step_end *ends = NULL;
    for (size_t i = 0; i < t->n_spans; i++) {
        if (t->spans[i].kind != SPAN_STEP) continue;
        ends = arena_grow(scratch, ends, n, &capacity, sizeof *ends);
        ends[n++] = (struct step_end){t->spans[i].step, t->spans[i].end_ns};
    }
    if (n) qsort(ends, n, sizeof *ends, by_step);
    for (size_t i = 0; i < n; i++) /* for a duplicate step the later end counts */
        if (i + 1 == n || ends[i + 1].step != ends[i].step) ends[steps++] = ends[i];
    int64_t iteration = steps == 0   ? 0
                        : steps == 1 ? ends[0].end_ns
                                     : median_difference(scratch, ends, steps, (size_t)t->period);
    arena_free(scratch);
    return iteration;
}
