/* The clustering recurrence, twice: first for the least maximum cut, then for the least sum among cuts no larger. A single
 * pass for both would keep only the least maximum for each prefix, although a later cut may be larger anyway.
 */
#include "core/model/layers.h"

#include "core/base/arena.h"

#include <string.h>

struct table {
    const struct layers_work *w;
    int32_t n_groups;
    double most_flops;
    const double *flops;     /* (n + 1) before operator i */
    const int32_t *products; /* (n + 1) before operator i */
    int64_t limit;           /* no cut is larger */
    bool sum;                /* minimise the sum of the cuts, not the largest */
    int64_t *value; /* (n_groups + 1, n + 1): of the first q groups up to operator r; -1: none */
    int32_t *from;  /* likewise: where the last of them begins */
};

static bool is_group(const struct table *t, int32_t from, int32_t to)
{
    if (from > 0 && (t->w->in_bytes[from] < 0 || t->w->in_bytes[from] > t->limit)) return false;
    return t->products[to] > t->products[from];
}

/* Later beginnings first, so that ties keep the later cut; a group only grows from there, so the first excess ends the loop. */
static void fill_one(struct table *t, int32_t q, int32_t r)
{
    size_t row = (size_t)t->w->n + 1, at = (size_t)q * row + (size_t)r;
    t->value[at] = -1;
    for (int32_t k = r - 1; k >= 0 && t->flops[r] - t->flops[k] < t->most_flops; k--) {
        int64_t before = t->value[(size_t)(q - 1) * row + (size_t)k];
        if (before < 0 || !is_group(t, k, r)) continue;
        int64_t cut = k > 0 ? t->w->in_bytes[k] : 0;
        int64_t value = t->sum ? before + cut : before > cut ? before : cut;
        if (t->value[at] < 0 || value < t->value[at]) t->value[at] = value, t->from[at] = k;
    }
}

static int64_t fill(struct table *t)
{
    int32_t n = t->w->n;
    size_t row = (size_t)n + 1;
    for (int32_t r = 0; r <= n; r++) t->value[r] = r ? -1 : 0;
    for (int32_t q = 1; q <= t->n_groups; q++)
        for (int32_t r = 0; r <= n; r++) fill_one(t, q, r);
    return t->value[(size_t)t->n_groups * row + (size_t)n];
}

bool layers_cluster(struct arena *a, const struct layers_work *w, int32_t n_groups, int32_t *last)
{
    size_t row = (size_t)w->n + 1;
    if (n_groups < 1 || n_groups > w->n) return false;
    double *flops = ARENA_ARRAY(a, double, row);
    int32_t *products = ARENA_ARRAY(a, int32_t, row);
    for (int32_t i = 0; i < w->n; i++) {
        flops[i + 1] = flops[i] + w->flops[i];
        products[i + 1] = products[i] + w->product[i];
    }
    struct table t = {.w = w,
                      .n_groups = n_groups,
                      .most_flops = 1.5 * flops[w->n] / n_groups,
                      .flops = flops,
                      .products = products,
                      .limit = INT64_MAX,
                      .value = ARENA_ARRAY(a, int64_t, row * ((size_t)n_groups + 1)),
                      .from = ARENA_ARRAY(a, int32_t, row * ((size_t)n_groups + 1))};
    t.limit = fill(&t);
    if (t.limit < 0) return false;
    t.sum = true;
    fill(&t);
    for (int32_t q = n_groups, r = w->n; q > 0; r = t.from[(size_t)q * row + (size_t)r], q--)
        last[q - 1] = r - 1;
    return true;
}
