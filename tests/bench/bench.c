/* Speeds, as lines `bench NAME VALUE UNIT`. CPU time of this process, the minimum of a few rounds, because other
 * load on the machine can only slow a round down. Ratios between lines of one run are more reliable
 * than single lines. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/base/units.h"
#include "core/document/document.h"
#include "exec/worker/worker.h"
#include "planner/search.h"
#include "profiles/fit.h"
#include "profiles/team.h"
#include "sim/engine/sim.h"
#include "tests/bench/bench_static.h"
#include "tests/support/data.h"
#include "tests/support/hybrid.h"
#include "tests/support/pipelines.h"
#include "tools/team/edit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void bench_flows(void);   /* bench_flows.c */
void bench_layers(void);  /* bench_layers.c */
void bench_questions(void); /* bench_questions.c */
void bench_spmd(void);    /* bench_spmd.c */
void bench_scaling(void); /* bench_simgrid.c */
void bench_simgrid(void); /* the same */

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void line(const char *name, double value, const char *unit)
{
    printf("bench %s %.6g %s\n", name, value, unit);
}

static void must(enum status st, const struct error *err)
{
    if (st == OK) return;
    fprintf(stderr, "bench: %s\n", err->text);
    exit(st);
}

/* W1: strict 1F1B, 64 stages, 1,024 microbatches; 2PM computes and 2(P-1)M messages. Known makespan
 * 4,138,400,000 ns. */
static void bench_p2p(void)
{
    enum { STAGES = 64, MICROBATCHES = 1024, ROUNDS = 3 };
    double best = 1e9;
    struct arena *a = arena_new();
    for (int round = 0; round < ROUNDS; round++) {
        struct pipes in = {.n_stages = STAGES, .microbatches = MICROBATCHES};
        struct sim_result r;
        struct error err = {0};
        for (int i = 0; i < STAGES; i++) {
            in.forward_ns[i] = 1000000;
            in.backward_ns[i] = 2000000;
            in.transfer_ns[i] = 400000;
            in.latency_ns[i] = 10000;
        }
        arena_reset(a);
        struct pipes_made *w = pipes_make(a, &in);
        struct sim_options o = {.steps = 1};
        double start = cpu_seconds();
        must(sim_run(a, &w->program, w->cost, &o, &r, &err), &err);
        double took = cpu_seconds() - start;
        if (took < best) best = took;
        if (r.makespan_ns != 4138400000) {
            fprintf(stderr, "bench: W1 64 x 1024 ends at %lld ns, not 4138400000\n",
                    (long long)r.makespan_ns);
            exit(ERR_INTERNAL);
        }
    }
    double tasks = 2.0 * STAGES * MICROBATCHES + 2.0 * (STAGES - 1) * MICROBATCHES;
    line("sim_p2p_tasks", tasks / best, "tasks/cpu_s");
    arena_free(a);
}

/* A pipeline as lowering makes it: 16 stages, 256 microbatches, 50 operators a procedure; a steady iteration. */
static void bench_operators(void)
{
    enum { STAGES = 16, MICROBATCHES = 256, OPERATORS = 50, ROUNDS = 5 };
    double best = 1e9;
    int64_t operators = 0, events = 0;
    struct arena *a = arena_new();
    for (int round = 0; round < ROUNDS; round++) {
        struct pipes in = {.n_stages = STAGES, .microbatches = MICROBATCHES, .ops = OPERATORS};
        struct sim_result r;
        struct error err = {0};
        for (int i = 0; i < STAGES; i++) {
            in.forward_ns[i] = 1000000 + 10000 * i;
            in.backward_ns[i] = 2000000 + 15000 * i;
            in.transfer_ns[i] = 100000;
        }
        arena_reset(a);
        struct pipes_made *w = pipes_make(a, &in);
        struct sim_options o = {0};
        double start = cpu_seconds();
        must(sim_run(a, &w->program, w->cost, &o, &r, &err), &err);
        double took = cpu_seconds() - start;
        if (took < best) best = took;
        operators = r.operators;
        events = r.events;
    }
    line("sim_operators", (double)operators / best, "operators/cpu_s");
    line("sim_events", (double)events / best, "events/cpu_s");
    arena_free(a);
}

/* 16,384 devices: TP 8 × PP 16 × DP 128, 128 microbatches, 6 layers a stage, 12 operators a layer. Alike, or each with its own
 * speed. Returns the makespan. */
static int64_t scale_once(const char *name, bool alike, enum sim_detail detail)
{
    const struct hybrid h = {.tensor = 8,
                             .pipeline = 16,
                             .data = 128,
                             .microbatches = 128,
                             .layers = 6,
                             .ops = 12,
                             .forward_ns = 100000,
                             .backward_ns = 200000,
                             .update_ns = 1000000,
                             .transfer_bytes = 400000,
                             .collective_elements = 100000,
                             .gradient_elements = 1280000,
                             .latency_ns = 2000};
    struct arena *a = arena_new();
    struct hybrid_made *m = hybrid_make(a, &h);
    double *slow = ARENA_ARRAY(a, double, (size_t)m->program.n_devices);
    for (int32_t i = 0; i < m->program.n_devices; i++)
        slow[i] = alike ? 1 : 1 + 0.1 * rng_uniform(3, 0, (uint64_t)i);
    const struct sim_scale scale = {.device = slow};
    struct sim_options o = {.steps = 1, .detail = detail, .scale = &scale, .fold = alike};
    struct sim_result r;
    struct error err = {0};
    double start = cpu_seconds();
    must(sim_run(a, &m->program, m->cost, &o, &r, &err), &err);
    line(name, cpu_seconds() - start, "cpu_s");
    arena_free(a);
    return r.makespan_ns;
}

static void bench_scale(void)
{
    int64_t stage = scale_once("sim_16384_stage", false, SIM_STAGE);
    int64_t whole = scale_once("sim_16384_operator", false, SIM_OPERATOR);
    if (stage != whole) {
        fprintf(stderr, "bench: the levels of detail differ\n");
        exit(ERR_INTERNAL);
    }
    scale_once("sim_16384_folded", true, SIM_OPERATOR);
}

static void read_example(struct arena *a, const char *cluster, struct job *j, struct cluster *c)
{
    struct error err = {0};
    must(job_read(a, "examples/job.yaml", j, &err), &err);
    must(cluster_read(a, cluster, c, &err), &err);
}

struct plan_case {
    struct job job;
    struct cluster cluster;
    struct profile profile; /* the catalogue's prior */
};

static void read_case(struct arena *a, const char *job, const char *cluster, struct plan_case *x)
{
    struct error err = {0};
    must(job_read(a, job, &x->job, &err), &err);
    must(cluster_read(a, cluster, &x->cluster, &err), &err);
    must(team_complete(&x->cluster, &err), &err);
    must(profile_prior(a, &x->cluster, &x->profile, &err), &err);
}

static double plan_case(struct arena *a, const char *name, const struct plan_case *x,
                        struct search_result *r)
{
    struct error err = {0};
    struct search_options o = {.top = 1};
    double start = cpu_seconds();
    must(search_plans(a, &x->job, &x->cluster, &x->profile, &o, r, &err), &err);
    double took = cpu_seconds() - start;
    line(name, took, "cpu_s");
    return took;
}

static double plan_once(const char *name, const char *job, const char *cluster,
                        struct search_result *r)
{
    struct arena *a = arena_new();
    struct plan_case x;
    read_case(a, job, cluster, &x);
    double took = plan_case(a, name, &x, r);
    arena_free(a);
    return took;
}

/* Replanning without one of 64 GPUs, from the plan of all: mean and maximum over one GPU of every node. */
static void bench_replan(void)
{
    static const char *const lost[] = {"h0.3", "h1.0", "a0.7", "a1.2",
                                       "b0.0", "b1.5", "v0.0", "v1.6"};
    enum { LOST = sizeof lost / sizeof *lost };
    struct arena *a = arena_new();
    struct job j;
    struct cluster c, less;
    struct profile p;
    struct search_result old, r;
    struct error err = {0};
    double sum = 0, most = 0;
    must(job_read(a, "tests/data/jobs/gpt-2.6b.yaml", &j, &err), &err);
    must(cluster_read(a, "tests/data/clusters/fleet64.yaml", &c, &err), &err);
    must(team_complete(&c, &err), &err);
    must(profile_prior(a, &c, &p, &err), &err);
    must(search_plans(a, &j, &c, &p, &(struct search_options){.top = 1}, &old, &err), &err);
    for (int i = 0; i < LOST; i++) {
        struct search_options o = {.top = 1, .from = &old.plans[0].plan};
        must(team_edit(a, &c, &(struct team_change){TEAM_WITHOUT, lost[i], NULL}, &less, &err),
             &err);
        double start = cpu_seconds();
        must(search_plans(a, &j, &less, &p, &o, &r, &err), &err);
        double took = cpu_seconds() - start;
        sum += took;
        if (took > most) most = took;
    }
    line("replan_seconds_64", sum / LOST, "cpu_s");
    line("replan_seconds_64_most", most, "cpu_s");
    arena_free(a);
}

/* 24 to 402 layers: equal blocks, cut into several layers each. */
static void bench_depth(void)
{
    static const struct {
        int32_t blocks, of_each;
    } depths[] = {{22, 1}, {32, 3}, {48, 4}, {100, 4}};
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        struct arena *a = arena_new();
        struct search_result r;
        struct plan_case x;
        char name[64];
        int32_t layers = 2 + depths[i].blocks * depths[i].of_each;
        read_case(a, "tests/data/jobs/gpt-2.6b-98.yaml", "tests/data/clusters/fleet64.yaml", &x);
        x.job.model.layers = depths[i].blocks;
        x.job.layers = (struct layers_choice){LAYERS_NUMBER, layers};
        snprintf(name, sizeof name, "plan_seconds_64_layers_%" PRId32, layers);
        plan_case(a, name, &x, &r);
        arena_free(a);
    }
}

/* More clusters of 10,240 GPUs: other types, links, models and batches. */
static void bench_fleets(void)
{
    static const struct {
        const char *name, *job, *cluster;
    } cases[] = {{"trunks", "examples/fleet-job.yaml", "trunks"},
                 {"uplinks", "examples/fleet-job.yaml", "uplinks"},
                 {"four", "examples/fleet-job.yaml", "four"},
                 {"two_gpt67b", "tests/data/fleets/gpt-6.7b.yaml", "two"},
                 {"old_llama13b", "tests/data/fleets/llama-13b.yaml", "old"},
                 {"uplinks_llama13b", "tests/data/fleets/llama-13b.yaml", "uplinks"},
                 {"one_llama70b", "tests/data/fleets/llama-70b.yaml", "one"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[64], cluster[64];
        struct search_result r;
        snprintf(cluster, sizeof cluster, "tests/data/fleets/%s.yaml", cases[i].cluster);
        snprintf(name, sizeof name, "plan_seconds_10240_%s", cases[i].name);
        plan_once(name, cases[i].job, cluster, &r);
        snprintf(name, sizeof name, "plan_gap_10240_%s", cases[i].name);
        line(name, r.gap, "ratio");
    }
}

static void bench_planner(void)
{
    struct search_result r;
    double took = plan_once("plan_seconds_4", "examples/job.yaml", "examples/team.yaml", &r);
    line("plans_scored", (double)r.evaluated / took, "plans/cpu_s");
    line("plans_bounded", (double)r.candidates / took, "plans/cpu_s");
    plan_once("plan_seconds_8", "tests/data/jobs/gpt-2.6b.yaml", "examples/rack.yaml", &r);
    plan_once("plan_seconds_64", "tests/data/jobs/gpt-2.6b.yaml",
              "tests/data/clusters/fleet64.yaml", &r);
    line("plan_gap_64", r.gap, "ratio");
    plan_once("plan_seconds_512", "tests/data/jobs/gpt-2.6b-98.yaml",
              "tests/data/clusters/fleet512.yaml", &r);
    line("plan_gap_512", r.gap, "ratio");
    plan_once("plan_seconds_10240", "examples/fleet-job.yaml", "examples/fleet-10240.yaml", &r);
    line("plan_gap_10240", r.gap, "ratio");
}

static void bench_fit(void)
{
    enum { ROWS = 2000, ROUNDS = 5 };
    double *x = malloc(sizeof(double) * ROWS), *y = malloc(sizeof(double) * ROWS), best = 1e9;
    for (int i = 0; i < ROWS; i++) {
        x[i] = 1024.0 * (double)(1 + i % 500);
        y[i] = (5e-6 + x[i] / 1e10) * (1 + 0.05 * rng_normal(1, 2, (uint64_t)i));
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct fit_line f;
        struct error err = {0};
        double start = cpu_seconds();
        must(fit_relative(x, 1, y, ROWS, &f, &err), &err);
        double took = cpu_seconds() - start;
        if (took < best) best = took;
    }
    line("fit_seconds_2000", best, "cpu_s");
    free(x), free(y);
}

/* One device trains the example's model; the share of the compute thread's CPU time that is spent
 * inside BLAS. */
static void bench_exec(void)
{
    struct arena *a = arena_new();
    struct job j;
    struct cluster c;
    struct program program;
    struct run_result r;
    struct error err = {0};
    struct lower_options lower = {0};
    setenv("MUSHER_BLAS_CLOCK", "1", 1);
    read_example(a, "examples/one.yaml", &j, &c);
    struct plan_stage stage = {.last_layer = 0, .receive_ahead = 2};
    struct plan_replica replica = {.microbatches =
                                       (int32_t)(j.global_batch / j.microbatch_sizes[0]),
                                   .n_stages = 1,
                                   .stages = &stage};
    struct plan plan = {.name = "one",
                        .microbatch = j.microbatch_sizes[0],
                        .steps = 1,
                        .n_replicas = 1,
                        .replicas = &replica,
                        .job = j,
                        .cluster = c,
                        .seed = 1};
    struct graph *g = NULL;
    must(lower_graph(a, &j, plan.microbatch, &g, &err), &err);
    stage.last_layer = g->n_layers - 1;
    must(team_fused(a, &c, &lower, &err), &err);
    must(lower_plan(a, &plan, &lower, &program, &err), &err);
    struct run_options o = {.steps = 4, .data = DATA_FILE("LICENSE")};
    must(worker_run(a, &program, &o, &r, &err), &err);
    line("exec_blas_share", r.blas_share, "ratio");
    line("exec_tokens", r.tokens_per_s, "tokens/s");
    arena_free(a);
}

static const struct {
    const char *name;
    void (*run)(void);
} benches[] = {{"static", bench_static}, {"p2p", bench_p2p},         {"operators", bench_operators},
               {"flows", bench_flows},   {"scale", bench_scale},     {"planner", bench_planner},
               {"fleets", bench_fleets}, {"replan", bench_replan},   {"layers", bench_layers},
               {"depth", bench_depth},   {"spmd", bench_spmd},       {"fit", bench_fit},
               {"questions", bench_questions},
               {"exec", bench_exec},     {"scaling", bench_scaling}, {"simgrid", bench_simgrid}};

/* Runs all benchmarks, or those named. */
int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof benches / sizeof *benches; i++) {
        bool wanted = argc < 2;
        for (int k = 1; k < argc; k++) wanted |= !strcmp(argv[k], benches[i].name);
        if (wanted) benches[i].run();
    }
    return 0;
}
