/* Operators and kernels are sorted together by the operator's identity, so that each operator precedes its
 * kernels and these are in order of their begin; one pass then adds up. Kernels without an operator span count as
 * between operators. */
#include "traces/kernels.h"

#include "core/base/arena.h"

#include <stdlib.h>
#include <string.h>

struct adding {
    struct arena *a;
    const struct trace *trace;
    struct kernels *out;
    size_t capacity;
    size_t *named_capacity; /* (n_kinds) */
    size_t n_capacities;
};

static int by_operator(const struct span *x, const struct span *y)
{
    const int32_t ours[] = {x->device, x->step, x->stage, x->phase, x->microbatch, x->op},
                  theirs[] = {y->device, y->step, y->stage, y->phase, y->microbatch, y->op};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (ours[i] != theirs[i]) return ours[i] < theirs[i] ? -1 : 1;
    return 0;
}

static int in_order(const void *a, const void *b)
{
    const struct span *x = *(const struct span *const *)a, *y = *(const struct span *const *)b;
    int order = by_operator(x, y);
    if (order) return order;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1; /* COMPUTE before KERNEL */
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* (n_devices) whether the device has kernel records, so that its operators are included. */
static bool *devices_with_kernels(struct arena *scratch, const struct trace *t)
{
    bool *has_kernels = ARENA_ARRAY(scratch, bool, (size_t)t->n_devices + 1);
    for (int32_t i = 0; i < t->n_devices; i++) has_kernels[i] = !t->kernels;
    for (size_t i = 0; i < t->n_spans; i++)
        if (t->spans[i].kind == SPAN_KERNEL) has_kernels[t->spans[i].device] = true;
    return has_kernels;
}

static const struct span **sorted(struct arena *scratch, const struct trace *t, size_t *n)
{
    const struct span **s = ARENA_ARRAY(scratch, const struct span *, t->n_spans + 1);
    const bool *has_kernels = devices_with_kernels(scratch, t);
    int32_t from = trace_first_counted_step(t);
    *n = 0;
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *x = &t->spans[i];
        bool wanted = x->kind == SPAN_KERNEL || (x->kind == SPAN_COMPUTE && has_kernels[x->device]);
        if (wanted && x->step >= from) s[(*n)++] = x;
    }
    if (*n) qsort(s, *n, sizeof *s, in_order);
    return s;
}

/* --- adding up ------------------------------------------------------------------------------- */

static bool same(const char *x, const char *y) { return x && y ? !strcmp(x, y) : x == y; }

/* Linear search: there are some dozens of kinds. */
static size_t kind_of(struct adding *g, const char *kind)
{
    struct kernels *out = g->out;
    for (size_t i = 0; i < out->n_kinds; i++)
        if (same(out->kinds[i].kind, kind)) return i;
    size_t n = out->n_kinds;
    out->kinds = arena_grow(g->a, out->kinds, n, &g->capacity, sizeof *out->kinds);
    g->named_capacity =
        arena_grow(g->a, g->named_capacity, n, &g->n_capacities, sizeof *g->named_capacity);
    out->kinds[n] = (struct kernels_kind){.kind = kind};
    g->named_capacity[n] = 0;
    return out->n_kinds++;
}

static void add_named(struct adding *g, size_t kind, const struct span *s)
{
    struct kernels_kind *k = &g->out->kinds[kind];
    size_t i = 0;
    while (i < k->n_named && strcmp(k->named[i].name, s->name) != 0) i++;
    if (i == k->n_named) {
        k->named =
            arena_grow(g->a, k->named, k->n_named, &g->named_capacity[kind], sizeof *k->named);
        k->named[k->n_named++] = (struct kernels_named){.name = s->name};
    }
    int64_t weight = trace_weight(g->trace, s->device);
    k->named[i].n += weight;
    k->named[i].ns += weight * (s->end_ns - s->begin_ns);
    k->kernels += weight;
}

/* One operator (NULL: none) and the n kernels inside it. */
static void add(struct adding *g, const struct span *operator_, const struct span *const *s,
                size_t n)
{
    size_t kind = kind_of(g, operator_ ? operator_->name : NULL);
    int64_t busy = 0, until = INT64_MIN;
    int64_t weight = trace_weight(g->trace, operator_ ? operator_->device : s[0]->device);
    for (size_t i = 0; i < n; i++) {
        int64_t begin = s[i]->begin_ns > until ? s[i]->begin_ns : until;
        if (s[i]->end_ns > begin) busy += s[i]->end_ns - begin;
        if (s[i]->end_ns > until) until = s[i]->end_ns;
        add_named(g, kind, s[i]);
    }
    struct kernels_kind *k = &g->out->kinds[kind];
    int64_t ns = operator_ ? operator_->end_ns - operator_->begin_ns : busy;
    k->busy_ns += weight * (busy < ns ? busy : ns);
    if (!operator_) return;
    k->operators += weight;
    k->ns += weight * ns;
}

static int by_time(const void *a, const void *b)
{
    const struct kernels_kind *x = a, *y = b;
    if (!x->kind != !y->kind) return x->kind ? -1 : 1;
    if (x->ns != y->ns) return x->ns > y->ns ? -1 : 1;
    return x->kind ? strcmp(x->kind, y->kind) : 0;
}

static int by_named_time(const void *a, const void *b)
{
    const struct kernels_named *x = a, *y = b;
    if (x->ns != y->ns) return x->ns > y->ns ? -1 : 1;
    return strcmp(x->name, y->name);
}

void kernels_of_trace(struct arena *a, const struct trace *t, struct kernels *out)
{
    struct arena *scratch = arena_new();
    size_t n;
    const struct span **s = sorted(scratch, t, &n);
    *out = (struct kernels){.lost = t->kernels_lost};
    struct adding g = {.a = a, .trace = t, .out = out};
    for (size_t first = 0, end = 0; first < n; first = end) {
        bool has = s[first]->kind == SPAN_COMPUTE;
        for (end = first + 1; end < n && !by_operator(s[first], s[end]) &&
                              s[end]->kind == SPAN_KERNEL;
             end++) {
        }
        add(&g, has ? s[first] : NULL, s + first + has, end - first - has);
    }
    if (out->n_kinds) qsort(out->kinds, out->n_kinds, sizeof *out->kinds, by_time);
    for (size_t i = 0; i < out->n_kinds; i++)
        if (out->kinds[i].n_named)
            qsort(out->kinds[i].named, out->kinds[i].n_named, sizeof *out->kinds[i].named,
                  by_named_time);
    arena_free(scratch);
}
