/* tests/support/flow_workload.h - a network to time shares on, with makespans that are known.
 *
 * 64 hosts with an up and a down link of 12.5e9 B/s and one backbone of 4e11 B/s, no latency. Flow i starts at i · dt with
 * (1 + i mod 7) · 1e8 bytes from host i mod 64 to host (37 i + 13 ⌊i/64⌋ + 11) mod 64, or the next one where that is
 * itself.
 */
#ifndef TESTS_SUPPORT_FLOW_WORKLOAD_H
#define TESTS_SUPPORT_FLOW_WORKLOAD_H

#include "core/base/arena.h"
#include "sim/network/flows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { W2_HOSTS = 64 };

struct w2_result {
    double makespan_s, sum_s; /* the last end; the sum of all ends */
};

struct w2 {
    struct flows *flows;
    int32_t up[W2_HOSTS], down[W2_HOSTS], backbone;
    int32_t route[W2_HOSTS][W2_HOSTS]; /* -1: not met yet */
};

static inline int32_t w2_resource(struct flows *f, double capacity_Bps)
{
    struct error err = {0};
    int32_t out;
    if (flows_resource(f, "w2", capacity_Bps, &out, &err) == OK) return out;
    fprintf(stderr, "%s\n", err.text);
    exit(err.code);
}

static inline int32_t w2_route(struct w2 *w, int32_t i)
{
    int32_t from = i % W2_HOSTS, to = (int32_t)((37 * (int64_t)i + 13 * (i / 64) + 11) % W2_HOSTS);
    if (to == from) to = (to + 1) % W2_HOSTS;
    int32_t *route = &w->route[from][to];
    if (*route < 0) {
        const int32_t route_of[3] = {w->up[from], w->backbone, w->down[to]};
        *route = flows_route(w->flows, route_of, 3);
    }
    return *route;
}

static inline struct w2_result w2_run(struct arena *a, int32_t n, double dt_ns)
{
    struct w2 *w = ARENA_ARRAY(a, struct w2, 1);
    struct w2_result r = {0};
    struct flow_end e;
    w->flows = flows_new(a);
    w->backbone = w2_resource(w->flows, 4e11);
    for (int32_t i = 0; i < W2_HOSTS; i++) {
        w->up[i] = w2_resource(w->flows, 12.5e9), w->down[i] = w2_resource(w->flows, 12.5e9);
        for (int32_t k = 0; k < W2_HOSTS; k++) w->route[i][k] = -1;
    }
    for (int32_t i = 0; i <= n; i++) {
        /* What starts in one instant starts before anybody asks what ends. */
        bool start = i < n;
        double until = start ? i * dt_ns : INFINITY;
        while (!(start && i && !(dt_ns > 0)) && flows_end(w->flows, until, &e)) {
            r.sum_s += e.end_ns / 1e9;
            if (e.end_ns / 1e9 > r.makespan_s) r.makespan_s = e.end_ns / 1e9;
        }
        if (start) flows_start(w->flows, until, w2_route(w, i), (1 + i % 7) * 1e8, i);
    }
    return r;
}

#endif
