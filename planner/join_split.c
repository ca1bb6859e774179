#include "planner/join_split.h"

#include <stddef.h>

enum { LAYERS_MOST = 512 };

int64_t join_range_ns(const struct join_line *l, int32_t i, int32_t first, int32_t last)
{
    const struct join_member *x = l->member[i];
    int32_t in_flight = l->n - i < l->microbatches ? l->n - i : l->microbatches;
    int64_t best = INT64_MAX;
    for (int32_t k = 0; k < x->n_modes; k++) {
        const struct join_mode *m = &x->mode[k];
        if (last > m->far[in_flight - 1][first]) continue;
        int64_t ns = m->call_ns[last + 1] - m->call_ns[first] +
                     (m->step_ns[last + 1] - m->step_ns[first]) / l->microbatches;
        if (ns < best) best = ns;
    }
    return best;
}

static int64_t cross_of(const struct join_line *l, int32_t i, int32_t last)
{
    return i + 1 < l->n ? l->cross_ns[i][last] : 0;
}

int64_t join_line_ns(const struct join_line *l, const int32_t *last)
{
    int64_t slowest = 0, sum = 0;
    for (int32_t i = 0; i < l->n; i++) {
        int64_t c = join_range_ns(l, i, i ? last[i - 1] + 1 : 0, last[i]),
                x = cross_of(l, i, last[i]);
        if (c == INT64_MAX) return INT64_MAX;
        if (c > slowest) slowest = c;
        if (x > slowest) slowest = x;
        sum += c + 2 * x;
    }
    return (l->microbatches - 1) * slowest + sum;
}

/* The cheapest sum with nothing as slow as `limit`; false: there is none. */
static bool least_sum(const struct join_line *l, int64_t limit, struct join_cut *out)
{
    int64_t best[2][LAYERS_MOST + 1];
    int16_t from[JOIN_LINE_MAX][LAYERS_MOST + 1];
    int32_t layers = l->n_layers;
    for (int32_t e = 0; e <= layers; e++) best[0][e] = e ? INT64_MAX : 0;
    for (int32_t i = 0; i < l->n; i++) {
        const int64_t *had = best[i % 2];
        int64_t *now = best[(i + 1) % 2];
        int32_t least = i + 1, most = layers - (l->n - 1 - i); /* ends that leave others a layer */
        for (int32_t e = 0; e <= layers; e++) now[e] = INT64_MAX;
        for (int32_t e = least; e <= (i + 1 == l->n ? layers : most); e++) {
            int64_t x = cross_of(l, i, e - 1);
            if ((i + 1 == l->n && e < layers) || x >= limit) continue;
            for (int32_t f = e - 1; f >= i; f--) {
                out->steps++;
                if (had[f] == INT64_MAX) continue;
                int64_t c = join_range_ns(l, i, f, e - 1);
                if (c >= limit) break; /* longer ranges take longer, or have no room either */
                if (had[f] + c + 2 * x >= now[e]) continue;
                now[e] = had[f] + c + 2 * x, from[i][e] = (int16_t)f;
            }
        }
    }
    if (best[l->n % 2][layers] == INT64_MAX) return false;
    for (int32_t i = l->n - 1, e = layers; i >= 0; e = from[i][e], i--) out->last[i] = e - 1;
    return true;
}

static int64_t slowest_of(const struct join_line *l, const int32_t *last)
{
    int64_t slowest = 0;
    for (int32_t i = 0; i < l->n; i++) {
        int64_t c = join_range_ns(l, i, i ? last[i - 1] + 1 : 0, last[i]),
                x = cross_of(l, i, last[i]);
        slowest = c > slowest ? c : slowest;
        slowest = x > slowest ? x : slowest;
    }
    return slowest;
}

void join_split(const struct join_line *l, struct join_cut *out)
{
    struct join_cut now = {.steps = 0};
    int64_t limit = INT64_MAX;
    *out = (struct join_cut){.ns = INT64_MAX};
    if (l->n_layers > LAYERS_MOST || l->n > l->n_layers) return;
    while (least_sum(l, limit, &now)) {
        now.ns = join_line_ns(l, now.last);
        limit = now.slowest_ns = slowest_of(l, now.last);
        now.sum_ns = now.ns - (l->microbatches - 1) * now.slowest_ns;
        if (now.ns < out->ns) {
            int64_t steps = out->steps;
            *out = now, out->steps = steps;
        }
        /* the slowest takes less from here on, the sum no less than this one's */
        if (now.sum_ns >= out->ns) break;
    }
    out->steps = now.steps;
}
