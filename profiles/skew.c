/* Work between collectives, and the late members. skew.h states the model.
 *
 * A trace is processed device by device: the compute time since the call's begin or its last collective is the work of the next
 * collective. The works of one collective (group, phase) form a table of occasions (step, microbatch) × devices; a collective
 * with a missing member in some occasion is excluded.
 */
#include "profiles/skew.h"

#include "core/base/arena.h"
#include "traces/quantile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double stopped = 10; /* an occasion of more work than so many times its median is left out (skew.h) */

struct work { /* of one device before one collective */
    size_t run;
    int32_t group, step, microbatch, device;
    enum phase phase;
    double ns;
};

struct works {
    struct arena *a;
    struct work *items;
    size_t n, capacity;
};

struct sums {
    double late,
        expected; /* expected: × standard deviations of the latest of n above the middle */
    int32_t collectives;
};

/* Expected maximum of n members, in standard deviations above the middle. */
static double latest_of(int32_t n) { return n > 1 ? log((n - 0.375) / 0.625) / 1.702 : 0; }

double skew_share(const struct profile *p, int32_t n)
{
    return p->n_skews ? p->skews[0].spread * latest_of(n) : 0;
}

/* --- works of a trace ------------------------------------------------------------------------ */

static bool same_call(const struct span *x, const struct span *y)
{
    return x->step == y->step && x->microbatch == y->microbatch && x->phase == y->phase &&
           x->stage == y->stage;
}

/* spans: of one device, indices by begin. */
static void walk(struct works *w, const struct trace *t, size_t run, const size_t *spans, size_t n)
{
    const struct span *call = NULL;
    int32_t group = -1;
    double ns = 0;
    for (size_t i = 0; i < n; i++) {
        const struct span *x = &t->spans[spans[i]];
        if (!call || !same_call(call, x)) ns = 0, group = -1;
        call = x;
        if (x->kind == SPAN_COMPUTE) {
            ns += (double)(x->end_ns - x->begin_ns);
            group = -1;
            continue;
        }
        if (x->op == group) continue; /* another part of the same collective */
        group = x->op;
        w->items = arena_grow(w->a, w->items, w->n, &w->capacity, sizeof *w->items);
        w->items[w->n++] =
            (struct work){run, group, x->step, x->microbatch, x->device, x->phase, ns};
        ns = 0;
    }
}

struct place { /* for sorting indices: a device's spans by begin */
    const struct span *span;
    size_t index;
};

static int by_device_and_begin(const void *a, const void *b)
{
    const struct span *x = ((const struct place *)a)->span, *y = ((const struct place *)b)->span;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    if (x->stream != y->stream) return x->stream < y->stream ? -1 : 1;
    return x->part != y->part ? (x->part < y->part ? -1 : 1) : x < y ? -1 : x > y;
}

static void collect(struct works *w, const struct trace *t, size_t run)
{
    struct place *places = ARENA_ARRAY(w->a, struct place, t->n_spans + 1);
    size_t *device = ARENA_ARRAY(w->a, size_t, t->n_spans + 1);
    const int32_t from = trace_first_counted_step(t);
    size_t n = 0;
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *x = &t->spans[i];
        if (x->step < from) continue;
        if (x->kind == SPAN_COMPUTE || (x->kind == SPAN_REDUCE && x->collective))
            places[n++] = (struct place){x, i};
    }
    if (n) qsort(places, n, sizeof *places, by_device_and_begin);
    for (size_t first = 0, end = 0; first < n; first = end) {
        for (end = first; end < n && places[end].span->device == places[first].span->device; end++)
            device[end - first] = places[end].index;
        walk(w, t, run, device, end - first);
    }
}

/* --- lateness -------------------------------------------------------------------------------- */

static int compare(int64_t x, int64_t y) { return x < y ? -1 : x > y; }

static bool same_collective(const struct work *x, const struct work *y)
{
    return x->run == y->run && x->group == y->group && x->phase == y->phase;
}

static int by_collective(const void *a, const void *b)
{
    const struct work *x = a, *y = b;
    int order = compare((int64_t)x->run, (int64_t)y->run);
    if (!order) order = compare(x->group, y->group);
    if (!order) order = compare(x->phase, y->phase);
    if (!order) order = compare(x->step, y->step);
    if (!order) order = compare(x->microbatch, y->microbatch);
    return order ? order : compare(x->device, y->device);
}

/* Works of one collective, sorted: number of devices per occasion if all occasions have the same devices; else 0. */
static size_t devices_of(const struct work *w, size_t n)
{
    size_t devices = 1;
    while (devices < n && w[devices].step == w[0].step && w[devices].microbatch == w[0].microbatch)
        devices++;
    if (n % devices || n / devices < 2) return 0;
    for (size_t i = 0; i < n; i++) {
        const struct work *first = &w[i / devices * devices];
        if (w[i].device != w[i % devices].device || w[i].step != first->step ||
            w[i].microbatch != first->microbatch)
            return 0;
    }
    return devices;
}

/* Removes occasions with an outlier, in place; returns the number of works that are left. room: (n / devices + devices) */
static size_t without_outliers(struct work *w, size_t n, size_t devices, double *room)
{
    double *median = room, *values = room + devices;
    size_t kept = 0;
    for (size_t d = 0; d < devices; d++) {
        for (size_t k = 0; k < n / devices; k++) values[k] = w[k * devices + d].ns;
        median[d] = quantile_median_double(values, n / devices);
    }
    for (size_t k = 0; k < n; k += devices) {
        bool outlier = false;
        for (size_t d = 0; d < devices; d++) outlier |= median[d] > 0 && w[k + d].ns > stopped * median[d];
        if (outlier) continue;
        if (kept < k) memcpy(w + kept, w + k, devices * sizeof *w);
        kept += devices;
    }
    return kept;
}

/* One collective over all its occasions. */
static void judge(struct arena *scratch, struct work *w, size_t n, struct sums *out)
{
    size_t devices = devices_of(w, n);
    if (devices > 1) n = without_outliers(w, n, devices, ARENA_ARRAY(scratch, double, n / devices + devices));
    for (size_t occasion = 0; devices > 1 && n > devices && occasion < n / devices; occasion++) {
        const struct work *here = w + occasion * devices;
        size_t expected = 0;
        double most = -1, latest = 0;
        for (size_t d = 0; d < devices; d++) {
            double others = -here[d].ns;
            for (size_t k = d; k < n; k += devices) others += w[k].ns;
            if (others > most) most = others, expected = d;
            latest = fmax(latest, here[d].ns);
        }
        out->late += latest - here[expected].ns;
        out->expected += here[expected].ns * latest_of((int32_t)devices);
        out->collectives++;
    }
}

void skew_learn(struct arena *a, struct trace *const *runs, size_t n_runs, const char *provenance,
                struct profile *p)
{
    struct arena *scratch = arena_new();
    struct works w = {.a = scratch};
    struct sums sums = {0};
    for (size_t i = 0; i < n_runs; i++) collect(&w, runs[i], i);
    if (w.n) qsort(w.items, w.n, sizeof *w.items, by_collective);
    for (size_t first = 0, end = 0; first < w.n; first = end) {
        for (end = first; end < w.n && same_collective(&w.items[first], &w.items[end]); end++) {
        }
        judge(scratch, w.items + first, end - first, &sums);
    }
    arena_free(scratch);
    if (!(sums.expected > 0)) return;
    p->skews = ARENA_ARRAY(a, struct skew_row, 1);
    p->n_skews = 1;
    p->skews[0] =
        (struct skew_row){"collectives", sums.late / sums.expected, sums.collectives, provenance};
}
