#include "tools/timeline.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/ranges.h"
#include "core/base/rng.h"

#include <stdlib.h>
#include <string.h>

enum { RUNS_SHOWN = 3, NAMES_MAX = 28, BOXES_ACROSS = 3200 };

const struct timeline_colour timeline_colours[TIMELINE_COLOURS] = {
    {'F', "forward", "#56B4E9", "#0072B2"},        {'B', "backward", "#009E73", "#00614A"},
    {'I', "input gradient", "#CC79A7", "#9A4C78"}, {'W', "weight gradient", "#F0E442", "#B9AE1F"},
    {'U', "update", "#7F7F7F", "#4D4D4D"},         {'s', "message", "#E69F00", "#E69F00"},
    {'r', "collective", "#D55E00", "#D55E00"},     {'g', "all_gather", "#882255", "#882255"},
    {'c', "reduce_scatter", "#A0522D", "#A0522D"}, {'a', "all_reduce", "#B3202A", "#B3202A"},
    {'x', "all_to_all", "#7A7A2E", "#7A7A2E"},
};
static const char kind_letters[COLLECTIVE_CALL_KINDS] = {[COLLECTIVE_ALL_GATHER] = 'g',
                                                         [COLLECTIVE_REDUCE_SCATTER] = 'c',
                                                         [COLLECTIVE_ALL_REDUCE] = 'a',
                                                         [COLLECTIVE_ALL_TO_ALL] = 'x'};

static int32_t colour_of(char letter)
{
    for (int32_t i = 0; i < TIMELINE_COLOURS; i++)
        if (timeline_colours[i].letter == letter) return i;
    return 0;
}

/* The last complete step in the clock of the spans: from the end of the update before it to the end
 * of its own. */
static void steady_window(const struct trace *t, int32_t *step, int64_t *begin_ns, int64_t *end_ns)
{
    int32_t last = 0;
    *begin_ns = *end_ns = 0;
    if (trace_is_predicted(t)) { /* may contain a single step, and the ends of the others */
        for (size_t i = 0; i < t->n_spans; i++)
            if (t->spans[i].kind != SPAN_STEP && t->spans[i].step > last) last = t->spans[i].step;
        for (size_t i = 0; i < t->n_spans; i++)
            if (t->spans[i].kind == SPAN_STEP && t->spans[i].step == last)
                *begin_ns = t->spans[i].begin_ns, *end_ns = t->spans[i].end_ns;
        *step = last;
        if (*end_ns > *begin_ns) return;
        *begin_ns = *end_ns = 0;
    }
    for (size_t i = 0; i < t->n_spans; i++)
        if (t->spans[i].kind == SPAN_COMPUTE && t->spans[i].phase == PHASE_U &&
            t->spans[i].step > last)
            last = t->spans[i].step;
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i];
        if (s->kind != SPAN_COMPUTE || s->phase != PHASE_U) continue;
        if (s->step == last && s->end_ns > *end_ns) *end_ns = s->end_ns;
        if (s->step == last - 1 && s->end_ns > *begin_ns) *begin_ns = s->end_ns;
    }
    *step = last;
}

/* --- classes of devices --- */

struct member {
    uint64_t shape;
    int32_t device;
};

static int by_shape(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    if (x->shape != y->shape) return x->shape < y->shape ? -1 : 1;
    return x->device < y->device ? -1 : x->device > y->device;
}

static int by_first(const void *a, const void *b)
{
    const struct timeline_row *x = a, *y = b;
    return x->device < y->device ? -1 : 1;
}

/* Hash of a device's type and of the calls and operators of the step, in order. */
static struct member *shapes(struct arena *a, const struct trace *t, int32_t step)
{
    struct member *out = ARENA_ARRAY(a, struct member, (size_t)t->n_devices + 1);
    for (int32_t d = 0; d < t->n_devices; d++) {
        const char *type = t->devices[d].type ? t->devices[d].type : "";
        out[d] = (struct member){rng_hash_text(1, type), d};
    }
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i];
        if (s->kind != SPAN_COMPUTE || s->step != step) continue;
        const uint64_t what[] = {(uint64_t)s->phase, (uint64_t)s->microbatch, s->key};
        out[s->device].shape = rng_hash_bytes(out[s->device].shape, what, sizeof what);
    }
    return out;
}

/* A name with control characters escaped (core/base/log.h). */
static const char *shown(struct arena *a, const char *name)
{
    size_t n = 4 * strlen(name) + 1;
    return log_safe(arena_alloc(a, n, 1), n, name);
}

static void name_row(struct arena *a, const struct trace *t, const struct member *m, int32_t n,
                     struct timeline_row *out)
{
    const struct trace_device *first = &t->devices[m->device];
    const char **names = ARENA_ARRAY(a, const char *, (size_t)n + 1), *text;
    bool alike = n == 1 && first->stands_for > 1 && first->alike;
    *out = (struct timeline_row){.device = m->device};
    for (int32_t i = 0; i < n; i++) {
        names[i] = t->devices[m[i].device].name;
        out->n += trace_weight(t, m[i].device);
    }
    text = alike ? first->alike : n > 1 ? ranges_of_names(a, names, (size_t)n, RUNS_SHOWN) : *names;
    if (strlen(text) > NAMES_MAX && out->n > 1) text = arena_printf(a, "%s …", first->name);
    out->names = shown(a, text);
    out->label =
        out->n > 1 ? arena_printf(a, "%s ×%lld", out->names, (long long)out->n) : out->names;
}

static void find_rows(struct arena *a, const struct trace *t, struct step_timeline *out)
{
    struct member *m = shapes(a, t, out->step);
    bool fold = t->n_devices > TIMELINE_ROWS_ONE_BY_ONE;
    struct timeline_row *all = ARENA_ARRAY(a, struct timeline_row, (size_t)t->n_devices + 1);
    if (fold) qsort(m, (size_t)t->n_devices, sizeof *m, by_shape);
    for (int32_t i = 0, end; i < t->n_devices; i = end) {
        for (end = i + 1; fold && end < t->n_devices && m[end].shape == m[i].shape;) end++;
        name_row(a, t, &m[i], end - i, &all[out->n_classes++]);
        out->n_devices += all[out->n_classes - 1].n;
    }
    qsort(all, (size_t)out->n_classes, sizeof *all, by_first);
    out->classes = all;
    out->n_rows = out->n_classes < TIMELINE_ROWS_MAX ? out->n_classes : TIMELINE_ROWS_MAX;
    out->rows = ARENA_ARRAY(a, struct timeline_row, (size_t)out->n_rows + 1);
    for (int32_t r = 0; r < out->n_rows; r++)
        out->rows[r] = all[(int64_t)r * out->n_classes / out->n_rows];
}

/* --- boxes --- */

/* The stages that a device computes, ascending; spans[0] is its first. */
struct stages {
    size_t n, capacity;
    int32_t *items;
};

static void find_stages(struct arena *a, struct stages *x, const struct span *spans, size_t n)
{
    x->n = 0;
    for (size_t i = 0; i < n && spans[i].device == spans->device; i++) {
        size_t at = 0;
        if (spans[i].kind != SPAN_COMPUTE) continue;
        while (at < x->n && x->items[at] < spans[i].stage) at++;
        if (at < x->n && x->items[at] == spans[i].stage) continue;
        x->items = arena_grow(a, x->items, x->n, &x->capacity, sizeof *x->items);
        memmove(&x->items[at + 1], &x->items[at], (x->n - at) * sizeof *x->items);
        x->items[at] = spans[i].stage;
        x->n++;
    }
}

/* A device's second stage, its fourth, … */
static bool is_dark(const struct stages *x, int32_t stage)
{
    size_t at = 0;
    while (at < x->n && x->items[at] != stage) at++;
    return at % 2;
}

/* Spans inside the window, as boxes; neighbouring operators of one call become one box. Spans come sorted by device, stream and
 * begin. */
static void find_boxes(struct arena *a, const struct trace *t, struct step_timeline *out)
{
    const struct span *open = NULL;
    struct stages stages = {0};
    size_t capacity = 0;
    int32_t *row_of = ARENA_ARRAY(a, int32_t, (size_t)t->n_devices + 1);
    const int64_t from_ns = out->begin_ns, to_ns = out->end_ns,
                  narrow_ns = (to_ns - from_ns) / BOXES_ACROSS; /* less than a pixel */
    const bool crowded = out->n_rows > TIMELINE_ROWS_MAX / 2;
    for (int32_t d = 0; d < t->n_devices; d++) row_of[d] = -1;
    for (int32_t r = 0; r < out->n_rows; r++) row_of[out->rows[r].device] = r;
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i];
        if (!i || s[-1].device != s->device) find_stages(a, &stages, s, t->n_spans - i);
        if (s->end_ns <= from_ns || s->begin_ns >= to_ns || s->kind == SPAN_STEP ||
            s->kind == SPAN_RECEIVE || s->kind == SPAN_KERNEL || s->kind == SPAN_FETCH ||
            !span_in_step(s) || row_of[s->device] < 0)
            continue;
        int64_t begin = (s->begin_ns > from_ns ? s->begin_ns : from_ns) - from_ns;
        int64_t end = (s->end_ns < to_ns ? s->end_ns : to_ns) - from_ns;
        bool compute = s->kind == SPAN_COMPUTE;
        if (compute && open && open->device == s->device && open->stage == s->stage &&
            open->phase == s->phase && open->step == s->step && open->microbatch == s->microbatch) {
            out->boxes[out->n_boxes - 1].end_ns = end;
            continue;
        }
        open = compute ? s : NULL;
        char letter = compute ? (char)s->phase : s->kind == SPAN_REDUCE ? 'r' : 's';
        if (s->collective) letter = kind_letters[s->collective - 1];
        int32_t colour =
            colour_of(letter) + (compute && is_dark(&stages, s->stage) ? TIMELINE_COLOURS : 0);
        int32_t row = row_of[s->device];
        struct timeline_box *before = out->n_boxes ? &out->boxes[out->n_boxes - 1] : NULL;
        if (before && before->row == row && before->colour == colour &&
            begin - before->end_ns < narrow_ns && (crowded || end - begin < 4 * narrow_ns)) {
            if (end > before->end_ns) before->end_ns = end;
            continue;
        }
        out->boxes = arena_grow(a, out->boxes, out->n_boxes, &capacity, sizeof *out->boxes);
        out->boxes[out->n_boxes++] = (struct timeline_box){row, colour, begin, end, compute};
    }
}

void timeline_make(struct arena *a, struct trace *t, struct step_timeline *out)
{
    *out = (struct step_timeline){0};
    trace_sort(t);
    steady_window(t, &out->step, &out->begin_ns, &out->end_ns);
    find_rows(a, t, out);
    find_boxes(a, t, out);
}
