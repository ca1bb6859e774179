/* tests/programs/shard_ranks.c - one rank of random plans whose operators are sharded; started by mpirun.
 *
 * shard_ranks alone FIRST COUNT         the jobs of these seeds on one device: their losses and norms of
 *                                       gradients (0 without clipping), a line each
 * shard_ranks show SEED RANKS           the plan of this seed for so many devices
 * shard_ranks FIRST COUNT FILE          the plans of these seeds for as many devices as ranks (tests/support/sharded_plans.h): losses of
 * 20 steps and norms are those of FILE, which `alone` printed (fp32 1e-5, fp64 1e-9); the program survives its file, and the
 * simulator runs it. None is refused. Rank 0 says "ok" and how many.
 */
#include "core/base/log.h"
#include "exec/comm/launch.h"
#include "exec/worker/worker.h"
#include "profiles/profile.h"
#include "sim/engine/sim.h"

#include "tests/support/sharded_plans.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { STEPS = 20 };

static void broken(uint64_t seed, const char *what)
{
    fprintf(stderr, "rank %d, seed %" PRIu64 ": %s\n", (int)launch_rank(), seed, what);
    abort();
}

static void lower_to(struct arena *a, const struct plan *p, uint64_t seed, struct program *out)
{
    static const enum op_kind fused[] = {OP_bias_gelu, OP_swiglu, OP_flat_adamw, OP_flat_sgd, OP_flat_momentum, OP_flat_lion};
    struct lower_options o = {.n_fused = seed % 2 ? 6 : 0, .fused = fused, .check_memory = true};
    struct error err = {0};
    if (lower_plan(a, p, &o, out, &err) != OK) broken(seed, err.text);
}

static void run(struct arena *a, const struct program *p, uint64_t seed, struct run_result *out)
{
    struct run_options o = {.steps = STEPS};
    struct error err = {0};
    if (worker_run(a, p, &o, out, &err) != OK) broken(seed, err.text);
}

static double norm_of(const struct run_result *r, int step) { return r->gradient_norms ? r->gradient_norms[step] : 0; }

static void alone(uint64_t seed)
{
    struct arena *a = arena_new();
    struct sharded s;
    struct program p;
    struct run_result r;
    if (sharded_make(&s, a, seed, 1, false) != OK) broken(seed, s.err.text);
    lower_to(a, &s.one, seed, &p);
    run(a, &p, seed, &r);
    printf("%" PRIu64, seed);
    for (int i = 0; i < STEPS; i++) printf(" %.17g", r.losses[i]);
    for (int i = 0; i < STEPS; i++) printf(" %.17g", norm_of(&r, i));
    printf("\n");
    arena_free(a);
}

/* The program as its file says, checked again. */
static void reread(struct arena *a, const struct program *p, uint64_t seed, struct program *out)
{
    char *text = NULL;
    size_t n = 0;
    struct error err = {0};
    FILE *f = open_memstream(&text, &n);
    program_write(f, p);
    fclose(f);
    if (program_parse(a, "made", text, n, out, &err) != OK) broken(seed, err.text);
    if (program_check(a, out, &err) != OK) broken(seed, err.text);
    free(text);
}

/* How much later a folded program may end (sim/engine/fold.h): rings of unequal chunks take the longest one, by one element, in
 * every step, on links that the other members may share. 0: all chunks are equal. */
static int64_t unequal_ns(const struct program *p, struct cost *k, uint64_t seed)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < p->n_collectives; i++) {
        const struct collective *g = &p->collectives[i];
        int64_t slowest = 0;
        if (!g->link || g->n_members < 2 || g->elements % g->n_members == 0) continue;
        for (int32_t m = 0; m < g->n_members; m++) {
            struct cost_link l;
            struct error err = {0};
            if (g->link[m] < 0) continue;
            if (cost_path(k, &p->links[g->link[m]], g->link[m], &l, &err) != OK)
                broken(seed, err.text);
            int64_t ns = cost_occupancy_ns(&l, g->n_members * dtype_bytes(g->dtype)) + 1;
            if (ns > slowest) slowest = ns;
        }
        sum += 2 * (g->n_members - 1) * slowest;
    }
    return sum;
}

static void simulate(struct arena *a, const struct plan *plan, const struct program *p,
                     uint64_t seed)
{
    struct profile f;
    struct error err = {0};
    struct sim_result whole, stage, folded;
    struct sim_options o = {.steps = 3}, by_stage = {.steps = 3, .detail = SIM_STAGE},
                       once = {.steps = 3, .fold = true};
    if (profile_prior(a, &plan->cluster, &f, &err) != OK) broken(seed, err.text);
    struct cost *k = cost_new(a, &f, &plan->cluster);
    if (sim_run(a, p, k, &o, &whole, &err) != OK) broken(seed, err.text);
    if (sim_run(a, p, k, &by_stage, &stage, &err) != OK) broken(seed, err.text);
    if (whole.iteration_ns != stage.iteration_ns) broken(seed, "levels of detail differ");
    if (sim_run(a, p, k, &once, &folded, &err) != OK) broken(seed, err.text);
    if (folded.iteration_ns < whole.iteration_ns ||
        folded.iteration_ns - whole.iteration_ns > unequal_ns(p, k, seed))
        broken(seed, "the folded program takes another time");
}

static void compare(const struct run_result *r, uint64_t seed, bool wide, const double *expected)
{
    double tolerance = wide ? 1e-9 : 1e-5;
    char why[160];
    for (int i = 0; i < 2 * STEPS; i++) {
        bool loss = i < STEPS;
        double got = loss ? r->losses[i] : norm_of(r, i - STEPS);
        if (fabs(got - expected[i]) <= tolerance * (loss ? 1 : 10) * fabs(expected[i])) continue;
        snprintf(why, sizeof why, "%s of step %d is %.17g, alone %.17g", loss ? "loss" : "norm", i % STEPS, got, expected[i]);
        broken(seed, why);
    }
}

static void one(uint64_t seed, const double *expected)
{
    struct arena *a = arena_new();
    struct sharded s;
    struct program lowered, p;
    struct run_result r;
    if (sharded_make(&s, a, seed, launch_size(), false) != OK) broken(seed, s.err.text);
    lower_to(a, &s.plan, seed, &lowered);
    reread(a, &lowered, seed, &p);
    run(a, &p, seed, &r);
    if (launch_rank() == 0) {
        compare(&r, seed, s.plan.job.precision == DTYPE_fp64, expected);
        simulate(a, &s.plan, &p, seed);
    }
    arena_free(a);
}

int main(int argc, char **argv)
{
    log_set_level(LOG_LEVEL_ERROR);
    if (argc == 4 && !strcmp(argv[1], "alone")) {
        uint64_t first = strtoull(argv[2], NULL, 10), count = strtoull(argv[3], NULL, 10);
        for (uint64_t s = first; s < first + count; s++) alone(s);
        return 0;
    }
    if (argc == 4 && !strcmp(argv[1], "show")) {
        struct arena *a = arena_new();
        struct sharded s;
        uint64_t seed = strtoull(argv[2], NULL, 10);
        if (sharded_make(&s, a, seed, (int32_t)strtol(argv[3], NULL, 10), false) != OK)
            broken(seed, s.err.text);
        plan_write(stdout, a, &s.plan);
        arena_free(a);
        return 0;
    }
    if (argc != 4) {
        fprintf(stderr, "usage: see the head of this file\n");
        return 2;
    }
    uint64_t first = strtoull(argv[1], NULL, 10), count = strtoull(argv[2], NULL, 10);
    FILE *f = fopen(argv[3], "r");
    int done = 0;
    for (uint64_t s = first; s < first + count; s++) {
        unsigned long long seed = 0;
        double expected[2 * STEPS];
        bool good = f && fscanf(f, "%llu", &seed) == 1 && seed == s;
        for (int i = 0; good && i < 2 * STEPS; i++) good = fscanf(f, "%lf", &expected[i]) == 1;
        if (!good) broken(s, "its losses are not in the file");
        one(s, expected), done++;
    }
    fclose(f);
    if (launch_rank() == 0) printf("ok %d plans\n", done);
    return 0;
}
