/* Scaling of the simulator's time with the number of events, and comparison with SimGrid on two workloads
 * (tests/bench/simgrid/workloads.cpp, built if libsimgrid-dev is installed). CPU time; ours includes setup. */
#include "core/base/arena.h"
#include "tests/support/flow_workload.h"
#include "tests/support/pipeline_workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void bench_simgrid(void);
void bench_scaling(void);

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The minimum of several rounds; more rounds for short runs. */
static double time_w1(struct arena *a, int32_t stages, int32_t microbatches, bool mixed,
                      struct sim_result *r)
{
    double best = INFINITY, sum = 0;
    for (int round = 0; round < 3 || (sum < 0.2 && round < 100); round++) {
        struct error err = {0};
        arena_reset(a);
        struct pipes_made *m = pipeline_workload_make(a, stages, microbatches, mixed);
        struct sim_options o = {.steps = 1};
        double start = cpu_seconds();
        if (sim_run(a, &m->program, m->cost, &o, r, &err) != OK) {
            fprintf(stderr, "bench: %s\n", err.text);
            exit(err.code);
        }
        double took = cpu_seconds() - start;
        if (took < best) best = took;
        sum += took;
    }
    return best;
}

void bench_scaling(void)
{
    struct arena *a = arena_new();
    struct sim_result r;
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (int i = 0; i < W1_KNOWN; i++) {
        time_w1(a, w1_known[i].stages, w1_known[i].microbatches, w1_known[i].mixed, &r);
        if (r.makespan_ns == w1_known[i].makespan_ns) continue;
        fprintf(stderr, "bench: W1%s %d x %d ends at %lld ns, not %lld\n",
                w1_known[i].mixed ? "h" : "", w1_known[i].stages, w1_known[i].microbatches,
                (long long)r.makespan_ns, (long long)w1_known[i].makespan_ns);
        exit(ERR_INTERNAL);
    }
    for (int32_t m = 64; m <= 16384; m *= 2) {
        double took = log(time_w1(a, 64, m, false, &r)), events = log((double)r.events);
        n++, x += events, y += took, xx += events * events, xy += events * took;
    }
    printf("bench sim_cost_exponent %.4g exponent\n", (n * xy - x * y) / (n * xx - x * x));
    arena_free(a);
}

static double time_w2(struct arena *a, double *makespan_s)
{
    double best = INFINITY;
    for (int round = 0; round < 3; round++) {
        arena_reset(a);
        double start = cpu_seconds();
        *makespan_s = w2_run(a, 10000, 1e5).makespan_s;
        double took = cpu_seconds() - start;
        if (took < best) best = took;
    }
    return best;
}

/* One run of the SimGrid program: CPU seconds, with a check of the makespan. */
static double run_theirs(const char *program, const char *name, double makespan_s)
{
    char command[4096];
    double took_s = 0, theirs_s = 0;
    snprintf(command, sizeof command, "'%s' %s 2>/dev/null", program, name);
    FILE *f = popen(command, "r");
    int read = f ? fscanf(f, "%lf %lf", &took_s, &theirs_s) : 0;
    if (f) pclose(f);
    if (read != 2) {
        fprintf(stderr, "bench: %s %s said nothing\n", program, name);
        exit(ERR_INTERNAL);
    }
    if (!(fabs(theirs_s / makespan_s - 1) <= 0.01)) {
        fprintf(stderr, "bench: %s: SimGrid ends at %.9g s, we at %.9g s\n", name, theirs_s,
                makespan_s);
        exit(ERR_INTERNAL);
    }
    return took_s;
}

static void ratio(const char *name, double theirs_s, double ours_s)
{
    printf("bench simgrid_seconds_%s %.6g cpu_s\n", name, theirs_s);
    printf("bench simgrid_ratio_%s %.4g x\n", name, theirs_s / ours_s);
}

/* The minimum of a few alternating rounds of both. */
static void beside_w1(struct arena *a, const char *program)
{
    double ours_s = INFINITY, theirs_s = INFINITY;
    struct sim_result r;
    for (int round = 0; round < 3; round++) {
        ours_s = fmin(ours_s, time_w1(a, 64, 1024, false, &r));
        theirs_s = fmin(theirs_s, run_theirs(program, "w1", (double)r.makespan_ns / 1e9));
    }
    ratio("w1", theirs_s, ours_s);
}

/* One round, because SimGrid takes most of a minute. */
static void beside_w2(struct arena *a, const char *program)
{
    double makespan_s, ours_s = time_w2(a, &makespan_s);
    ratio("w2", run_theirs(program, "w2", makespan_s), ours_s);
}

/* The Makefile passes the path of the program in the environment. */
void bench_simgrid(void)
{
    const char *program = getenv("SIMGRID_BENCH");
    if (!program || !*program) {
        printf("bench simgrid_ratio_w1 skipped: no libsimgrid-dev\n");
        printf("bench simgrid_ratio_w2 skipped: no libsimgrid-dev\n");
        return;
    }
    struct arena *a = arena_new();
    beside_w1(a, program);
    beside_w2(a, program);
    arena_free(a);
}
