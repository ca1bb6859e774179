#include "sim/collective/rounds.h"
#include "core/base/units.h"

#define MAX_NS (INT64_MAX / 4)

/* A message starts when both ends have reached the step; a member continues when its message has left and the one to it arrived. */
int64_t collective_pairs_ns(int32_t n, const int64_t *bytes, const struct cost_link *hop)
{
    int64_t now[2][256] = {{0}}, last = 0;
    for (int32_t k = 1; k < n; k++) {
        int64_t *from = now[k % 2 ? 0 : 1], *to = now[k % 2 ? 1 : 0];
        for (int32_t i = 0; i < n; i++) to[i] = from[i];
        for (int32_t i = 0; i < n; i++) {
            int32_t other = (i + k) % n;
            const struct cost_link *h = &hop[i * n + other];
            if (!bytes[i * n + other]) continue;
            int64_t left =
                units_max(from[i], from[other]) + cost_occupancy_ns(h, bytes[i * n + other]);
            to[i] = units_max(to[i], left);
            to[other] = units_max(to[other], left + h->latency_ns);
        }
        for (int32_t i = 0; i < n; i++) last = units_max(last, to[i]);
    }
    return last;
}

int64_t collective_ring_ns(int32_t n, int32_t steps, int64_t chunk_bytes,
                           const struct cost_link *hop)
{
    int64_t slowest = 0;
    for (int32_t i = 0; i < n && chunk_bytes; i++) {
        const struct cost_link *h = &hop[i * n + (i + 1) % n];
        slowest = units_max(slowest, cost_occupancy_ns(h, chunk_bytes) + h->latency_ns);
    }
    return steps * slowest;
}

void collective_rounds_ns(const struct collective *c, int64_t element_bytes,
                          const struct collective_hops *h, int64_t *free_ns, int64_t *next)
{
    for (int32_t round = 0; round < collective_steps(c); round++) {
        for (int32_t i = 0; i < c->n_members; i++) next[i] = free_ns[i];
        for (int32_t i = 0; i < c->n_members; i++) {
            struct collective_round s = collective_round(c, i, round);
            if (s.to < 0) continue;
            struct cost_link hop = h->hop(h->of, i, s.to);
            int64_t ns = cost_occupancy_ns(&hop, s.send * element_bytes);
            if (h->beside) ns *= h->beside(h->of, i, s.to);
            int64_t left = units_min(units_max(free_ns[i], free_ns[s.to]) + ns, MAX_NS);
            next[i] = units_max(next[i], left);
            next[s.to] = units_max(next[s.to], units_min(left + hop.latency_ns, MAX_NS));
        }
        for (int32_t i = 0; i < c->n_members; i++) free_ns[i] = next[i];
    }
}
