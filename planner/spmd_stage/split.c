#include "planner/spmd_stage/split.h"

#include "core/base/arena.h"

enum { LAYERS_MAX = 512 };

/* Of a layer on device k of n. */
static int64_t bytes_of(const struct spmd_stage_layers *x, int32_t layer, int32_t n, int32_t k,
                        int32_t in_flight)
{
    int64_t at = (int64_t)layer * n + k;
    return x->fixed_bytes[at] + in_flight * x->kept_bytes[at];
}

const int32_t *spmd_stage_far(struct arena *a, const struct spmd_stage_layers *x, int32_t n_layers,
                              int32_t n, const int64_t *room, int32_t in_flight)
{
    int32_t *far = ARENA_ARRAY(a, int32_t, (size_t)n_layers);
    for (int32_t l = 0; l < n_layers; l++) far[l] = n_layers - 1;
    for (int32_t k = 0; k < n; k++) {
        int64_t had = 0;
        int32_t last = -1;
        for (int32_t l = 0; l < n_layers; l++) {
            for (; last + 1 < n_layers; last++) {
                int64_t more = bytes_of(x, last + 1, n, k, in_flight);
                if (had + more > room[k]) break;
                had += more;
            }
            if (last < far[l]) far[l] = last;
            if (last >= l)
                had -= bytes_of(x, l, n, k, in_flight);
            else
                last = l;
        }
    }
    return far;
}

int64_t spmd_stage_range_ns(const struct spmd_stage_line *l, int32_t i, int32_t first, int32_t last)
{
    const struct spmd_stage_member *x = l->member[i];
    int64_t best = INT64_MAX;
    for (int32_t k = 0; k < x->n_modes; k++) {
        const struct spmd_stage_mode *m = &x->mode[k];
        if (last > l->far[i][k][first]) continue;
        int64_t ns = m->call_ns[last + 1] - m->call_ns[first] +
                     (m->step_ns[last + 1] - m->step_ns[first]) / l->microbatches;
        if (ns < best) best = ns;
    }
    return best;
}

static int64_t cross_of(const struct spmd_stage_line *l, int32_t i, int32_t last)
{
    return i + 1 < l->n ? l->cross_ns[i][last] : 0;
}

int64_t spmd_stage_line_ns(const struct spmd_stage_line *l, const int32_t *last)
{
    int64_t slowest = 0, sum = 0;
    for (int32_t i = 0; i < l->n; i++) {
        int64_t c = spmd_stage_range_ns(l, i, i ? last[i - 1] + 1 : 0, last[i]),
                x = cross_of(l, i, last[i]);
        if (c == INT64_MAX || x == INT64_MAX) return INT64_MAX;
        if (c > slowest) slowest = c;
        if (x > slowest) slowest = x;
        sum += c + 2 * x;
    }
    return (l->microbatches - 1) * slowest + sum;
}

/* The least sum with every group below `limit`; false: infeasible. */
static bool min_sum(const struct spmd_stage_line *l, int64_t limit, struct spmd_stage_cut *out)
{
    int64_t best[2][LAYERS_MAX + 1];
    int16_t from[SPMD_STAGE_LINE_MAX][LAYERS_MAX + 1];
    int32_t layers = l->n_layers;
    for (int32_t e = 0; e <= layers; e++) best[0][e] = e ? INT64_MAX : 0;
    for (int32_t i = 0; i < l->n; i++) {
        const int64_t *had = best[i % 2];
        int64_t *now = best[(i + 1) % 2];
        int32_t least = i + 1, most = layers - (l->n - 1 - i); /* ends that leave a layer for every other group */
        for (int32_t e = 0; e <= layers; e++) now[e] = INT64_MAX;
        for (int32_t e = least; e <= (i + 1 == l->n ? layers : most); e++) {
            int64_t x = cross_of(l, i, e - 1);
            if ((i + 1 == l->n && e < layers) || x >= limit) continue;
            for (int32_t f = e - 1; f >= i; f--) {
                out->steps++;
                if (had[f] == INT64_MAX) continue;
                int64_t c = spmd_stage_range_ns(l, i, f, e - 1);
                if (c >= limit) break; /* longer ranges take longer, or do not fit either */
                if (had[f] + c + 2 * x >= now[e]) continue;
                now[e] = had[f] + c + 2 * x, from[i][e] = (int16_t)f;
            }
        }
    }
    if (best[l->n % 2][layers] == INT64_MAX) return false;
    for (int32_t i = l->n - 1, e = layers; i >= 0; e = from[i][e], i--) out->last[i] = e - 1;
    return true;
}

static int64_t slowest_of(const struct spmd_stage_line *l, const int32_t *last)
{
    int64_t slowest = 0;
    for (int32_t i = 0; i < l->n; i++) {
        int64_t c = spmd_stage_range_ns(l, i, i ? last[i - 1] + 1 : 0, last[i]),
                x = cross_of(l, i, last[i]);
        slowest = c > slowest ? c : slowest;
        slowest = x > slowest ? x : slowest;
    }
    return slowest;
}

/* Solves under the limit and keeps the answer if it is the best so far; false: infeasible. */
static bool answer(const struct spmd_stage_line *l, int64_t limit, struct spmd_stage_cut *now,
                   struct spmd_stage_cut *best)
{
    if (!min_sum(l, limit, now)) return false;
    now->ns = spmd_stage_line_ns(l, now->last);
    now->slowest_ns = slowest_of(l, now->last);
    now->sum_ns = now->ns - (l->microbatches - 1) * now->slowest_ns;
    if (now->ns < best->ns) *best = *now;
    return true;
}

/* Upper bound of the slowest group of any better answer. */
static int64_t limit_of(const struct spmd_stage_line *l, const struct spmd_stage_cut *best,
                        int64_t least)
{
    return (best->ns - 1 - least) / (l->microbatches - 1) + 1;
}

void spmd_stage_split(const struct spmd_stage_line *l, struct spmd_stage_cut *out)
{
    struct spmd_stage_cut now = {.steps = 0};
    *out = (struct spmd_stage_cut){.ns = INT64_MAX};
    if (l->n_layers > LAYERS_MAX || l->n > l->n_layers) return;
    bool any = answer(l, INT64_MAX, &now, out);
    int64_t least = now.sum_ns, low = 0, high = now.slowest_ns;
    if (any && l->microbatches > 1) {
        /* low is infeasible; bisection until the interval is below 1 % */
        while (high - low > 1 && (high - low) * 128 > high) {
            int64_t limit = low + (high - low) / 2;
            if (answer(l, limit, &now, out))
                high = now.slowest_ns;
            else
                low = limit;
        }
        int64_t limit = limit_of(l, out, least);
        while (limit > low && answer(l, limit, &now, out)) {
            if (now.sum_ns + (l->microbatches - 1) * low >= out->ns) break;
            limit =
                limit_of(l, out, least) < now.slowest_ns ? limit_of(l, out, least) : now.slowest_ns;
        }
    }
    out->steps = now.steps;
}
