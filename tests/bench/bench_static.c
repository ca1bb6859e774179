/* The static pass over W1: strict 1F1B of 64 stages and 1,024 microbatches with occupied links. */
#include "tests/bench/bench_static.h"
#include "core/base/arena.h"
#include "sim/pipeline/static.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(enum status st, const struct error *err)
{
    if (st == OK) return;
    fprintf(stderr, "bench: %s\n", err->text);
    exit(st);
}

void bench_static(void)
{
    enum { STAGES = 64, MICROBATCHES = 1024, ROUNDS = 30, PASSES = 10 };
    static struct pipeline_stage stages[STAGES];
    static struct pipeline_link links[STAGES];
    struct pipeline p = {.n_devices = STAGES, .n_stages = STAGES, .stages = stages, .links = links};
    struct schedule_spec spec = {
        .kind = SCHEDULE_1F1B, .n_devices = STAGES, .n_microbatches = MICROBATCHES};
    struct schedule s;
    struct static_timer *t;
    struct error err = {0};
    struct arena *a = arena_new();
    for (int i = 0; i < STAGES; i++) {
        stages[i] = (struct pipeline_stage){.forward_ns = 1000000, .fused_ns = 2000000};
        links[i] = (struct pipeline_link){{400000, 400000}, {10000, 10000}};
    }
    must(schedule_make(a, &spec, &s, &err), &err);
    double start = cpu_seconds();
    must(static_new(a, &s, &t, &err), &err);
    double built = cpu_seconds() - start, best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t makespan = 0;
        start = cpu_seconds();
        for (int pass = 0; pass < PASSES; pass++)
            if (!static_time(t, &p, &makespan) || makespan != 4138400000) {
                fprintf(stderr, "bench: W1 64 x 1024 ends at %lld ns, not 4138400000\n",
                        (long long)makespan);
                exit(ERR_INTERNAL);
            }
        double took = (cpu_seconds() - start) / PASSES;
        if (took < best) best = took;
    }
    printf("bench sim_static_ops %.6g ops/cpu_s\n", (double)schedule_ops(&s) / best);
    printf("bench sim_static_sort_ops %.6g ops/cpu_s\n", (double)schedule_ops(&s) / built);
    arena_free(a);
}
