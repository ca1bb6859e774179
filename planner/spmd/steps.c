/* Meetings step by step, on links of their own. */
#include "planner/spmd/price.h"

static int64_t later(int64_t x, int64_t y) { return x > y ? x : y; }

/* A message starts when both ends have come to the step; a member goes on when its own has left and the one to it is there. */
int64_t spmd_pairs_ns(int32_t n, const int64_t *bytes, const struct cost_link *hop)
{
    int64_t now[2][256] = {{0}}, last = 0;
    for (int32_t k = 1; k < n; k++) {
        int64_t *from = now[k % 2 ? 0 : 1], *to = now[k % 2 ? 1 : 0];
        for (int32_t i = 0; i < n; i++) to[i] = from[i];
        for (int32_t i = 0; i < n; i++) {
            int32_t other = (i + k) % n;
            const struct cost_link *h = &hop[i * n + other];
            if (!bytes[i * n + other]) continue;
            int64_t left = later(from[i], from[other]) + cost_occupancy_ns(h, bytes[i * n + other]);
            to[i] = later(to[i], left);
            to[other] = later(to[other], left + h->latency_ns);
        }
        for (int32_t i = 0; i < n; i++) last = later(last, to[i]);
    }
    return last;
}

int64_t spmd_ring_ns(int32_t n, int32_t steps, int64_t chunk_bytes, const struct cost_link *hop)
{
    int64_t slowest = 0;
    for (int32_t i = 0; i < n && chunk_bytes; i++) {
        const struct cost_link *h = &hop[i * n + (i + 1) % n];
        slowest = later(slowest, cost_occupancy_ns(h, chunk_bytes) + h->latency_ns);
    }
    return steps * slowest;
}

/* A message starts when both ends have come to the step, as by pairs. */
int64_t spmd_tiers_ns(const struct meeting *m, int64_t element_bytes, int64_t inside,
                      int64_t between, const struct cost_link *hop)
{
    int64_t now[2][256] = {{0}}, last = 0;
    for (int32_t k = 0; k < meeting_steps(m); k++) {
        int64_t *from = now[k % 2], *to = now[(k + 1) % 2];
        for (int32_t i = 0; i < m->n; i++) to[i] = from[i];
        for (int32_t i = 0; i < m->n; i++) {
            struct meeting_step s = meeting_step(m, i, k);
            if (s.to < 0) continue;
            const struct cost_link *h = &hop[i * m->n + s.to];
            int64_t ns = cost_occupancy_ns(h, s.send * element_bytes);
            ns *= m->tier[i] == m->tier[s.to] ? inside : between;
            int64_t left = later(from[i], from[s.to]) + ns;
            to[i] = later(to[i], left);
            to[s.to] = later(to[s.to], left + h->latency_ns);
        }
        for (int32_t i = 0; i < m->n; i++) last = later(last, to[i]);
    }
    return last;
}
