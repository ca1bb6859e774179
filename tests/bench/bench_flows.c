/* Speed of max-min sharing: starts and ends of flows in a three-tier tree, and W2 (tests/support/flow_workload.h).
 *
 * The tree: 64 hosts with links of 12.5 GB/s, 8 in a rack, 4 racks in a pod, 2 pods. Full duplex: up and down are
 * resources of their own. 32 flows of 1 … 10 MB are alive at any time between hosts drawn at random; when one ends the
 * next one starts. sim_flow_events: full bisection bandwidth, as in a fat tree, so flows share only
 * host links. sim_flow_events_thin: half of it at either tier, so most flows share an uplink. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "sim/network/flows.h"
#include "tests/support/flow_workload.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { HOSTS = 64, IN_RACK = 8, IN_POD = 32, LIVE = 32, FLOWS = 1000000, DRAWS = 65536 };

void bench_flows(void);

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int32_t pair(int32_t from, int32_t to) { return from * HOSTS + to; }

static void make_tree(struct flows *f, double width, int32_t route[HOSTS * HOSTS])
{
    int32_t host[HOSTS][2], rack[HOSTS / IN_RACK][2], pod[HOSTS / IN_POD][2];
    for (int32_t direction = 0; direction < 2; direction++) {
        for (int32_t i = 0; i < HOSTS; i++) host[i][direction] = w2_resource(f, 12.5e9);
        for (int32_t i = 0; i < HOSTS / IN_RACK; i++)
            rack[i][direction] = w2_resource(f, width * IN_RACK * 12.5e9);
        for (int32_t i = 0; i < HOSTS / IN_POD; i++)
            pod[i][direction] = w2_resource(f, width * width * IN_POD * 12.5e9);
    }
    for (int32_t from = 0; from < HOSTS; from++)
        for (int32_t to = 0; to < HOSTS; to++) {
            int32_t direction[6], n = 0;
            if (from == to) continue;
            direction[n++] = host[from][0], direction[n++] = host[to][1];
            if (from / IN_RACK != to / IN_RACK)
                direction[n++] = rack[from / IN_RACK][0], direction[n++] = rack[to / IN_RACK][1];
            if (from / IN_POD != to / IN_POD)
                direction[n++] = pod[from / IN_POD][0], direction[n++] = pod[to / IN_POD][1];
            route[pair(from, to)] = flows_route(f, direction, n);
        }
}

static double time_tree(struct arena *a, double width, const int32_t *pairs, const double *bytes)
{
    int32_t *route = ARENA_ARRAY(a, int32_t, HOSTS * HOSTS);
    struct flows *f = flows_new(a);
    struct flow_end e = {0};
    int64_t events = 0;
    make_tree(f, width, route);
    double start = cpu_seconds();
    for (int32_t i = 0; i < FLOWS + LIVE; i++) {
        if (i >= LIVE) events += flows_end(f, INFINITY, &e);
        if (i >= FLOWS) continue;
        flows_start(f, e.end_ns, route[pairs[i % DRAWS]], bytes[i % DRAWS], i);
        events++;
        if (e.end_ns > 1e12) {
            flows_rebase(f, e.end_ns);
            e.end_ns = 0;
        }
    }
    return (double)events / (cpu_seconds() - start);
}

void bench_flows(void)
{
    struct arena *a = arena_new(), *all = arena_new();
    int32_t *pairs = ARENA_ARRAY(all, int32_t, DRAWS);
    double *bytes = ARENA_ARRAY(all, double, DRAWS), best[2] = {0, 0}, least = INFINITY;
    for (uint64_t i = 0; i < DRAWS; i++) {
        int32_t from = (int32_t)rng_below(5, 0, i, HOSTS),
                to = (int32_t)rng_below(5, 1, i, HOSTS - 1);
        pairs[i] = pair(from, to < from ? to : to + 1);
        bytes[i] = (double)(1000000 + rng_below(5, 2, i, 9000000));
    }
    for (int round = 0; round < 3; round++) {
        for (int thin = 0; thin < 2; thin++) {
            double rate = time_tree(a, thin ? 0.5 : 1, pairs, bytes);
            if (rate > best[thin]) best[thin] = rate;
            arena_reset(a);
        }
        double start = cpu_seconds();
        struct w2_result r = w2_run(a, 10000, 1e5);
        double took = cpu_seconds() - start;
        if (took < least) least = took;
        if (fabs(r.makespan_s - 10.000147030) > 5e-10 || fabs(r.sum_s - 70661.710889) > 5e-7) {
            fprintf(stderr, "bench: W2 ends at %.9f s, not 10.000147030\n", r.makespan_s);
            exit(ERR_INTERNAL);
        }
        arena_reset(a);
    }
    printf("bench sim_flow_events %.6g events/cpu_s\n", best[0]);
    printf("bench sim_flow_events_thin %.6g events/cpu_s\n", best[1]);
    printf("bench sim_w2_seconds %.6g cpu_s\n", least);
    arena_free(a), arena_free(all);
}
