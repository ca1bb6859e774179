/* tests/programs/collective_ranks.c - one rank of programs of collectives; started by mpirun.
 *
 * collective_ranks FIRST COUNT   runs the random programs of seeds FIRST … on as many devices as ranks
 * (tests/support/tensor_collectives.h): losses equal those of the unsharded computation; every device's streams have
 * the simulator's spans in the simulator's order; collectives before the first operator take the simulator's time to
 * the nanosecond if every pair has its own link. Rank 0 prints "ok" at the end; a rank that fails prints the reason
 * and ends with 1.
 */
#include "core/base/log.h"
#include "exec/comm/launch.h"
#include "exec/worker/worker.h"

#include "tests/support/tensor_collectives.h"

#include <inttypes.h>
#include <stdlib.h>

static void broken(uint64_t seed, const char *what)
{
    fprintf(stderr, "seed %" PRIu64 ": %s\n", seed, what);
    abort();
}

static bool on(const struct span *s, int32_t device, enum stream stream)
{
    return s->device == device && s->stream == stream && s->kind != SPAN_STEP;
}

static const struct span *next(const struct trace *t, size_t *at, int32_t device,
                               enum stream stream)
{
    for (; *at < t->n_spans; ++*at)
        if (on(&t->spans[*at], device, stream)) return &t->spans[(*at)++];
    return NULL;
}

static bool same(const struct span *x, const struct span *y)
{
    return x->kind == y->kind && x->stage == y->stage && x->phase == y->phase &&
           x->step == y->step && x->microbatch == y->microbatch && x->op == y->op &&
           x->part == y->part && x->bytes == y->bytes && !strcmp(x->name, y->name);
}

static int compare(const struct met *m, uint64_t seed, const struct trace *run,
                   const struct trace *sim, bool exact)
{
    char why[300];
    int timed = 0;
    for (int32_t d = 0; d < m->p.n_devices; d++)
        for (int s = 0; s < STREAM_COUNT; s++) {
            size_t a = 0, b = 0;
            for (;;) {
                const struct span *x = next(run, &a, d, (enum stream)s),
                                  *y = next(sim, &b, d, (enum stream)s);
                if (!x && !y) break;
                if (!x || !y || !same(x, y)) {
                    snprintf(why, sizeof why,
                             "device %d, stream %d: %s %d part %d against %s %d part %d", (int)d, s,
                             x ? x->name : "-", x ? x->op : -1, x ? x->part : -1, y ? y->name : "-",
                             y ? y->op : -1, y ? y->part : -1);
                    broken(seed, why);
                }
                if (!exact || x->phase != PHASE_F || x->step) continue;
                timed++;
                if (x->begin_ns == y->begin_ns && x->end_ns == y->end_ns) continue;
                snprintf(why, sizeof why,
                         "device %d, group %d, part %d: %" PRId64 " to %" PRId64
                         ", predicted %" PRId64 " to %" PRId64,
                         (int)d, (int)x->op, (int)x->part, x->begin_ns, x->end_ns, y->begin_ns,
                         y->end_ns);
                broken(seed, why);
            }
        }
    return timed;
}

static int one(uint64_t seed)
{
    struct arena *a = arena_new();
    struct error err = {0};
    bool bus = seed % 4 == 3;
    int timed = 0;
    struct met *m = tensor_collectives_make(a, seed, launch_size(), bus);
    if (program_check(a, &m->p, &err) != OK) broken(seed, err.text);
    struct run_options o = {.steps = 2, .keep_trace = true};
    struct sim_options so = {.steps = 2, .keep_trace = true};
    struct run_result run;
    struct sim_result sim;
    if (worker_run(a, &m->p, &o, &run, &err) != OK) broken(seed, err.text);
    if (launch_rank() == 0) {
        double tolerance = m->p.dtype == DTYPE_fp64 ? 1e-11 : 1e-4;
        for (int s = 0; s < 2; s++)
            if (!(fabs(run.losses[s] - m->expected) <= tolerance * (1 + fabs(m->expected)))) {
                char why[120];
                snprintf(why, sizeof why, "step %d: %.17g, not %.17g", s, run.losses[s],
                         m->expected);
                broken(seed, why);
            }
        if (sim_run(a, &m->p, m->cost, &so, &sim, &err) != OK) broken(seed, err.text);
        timed = compare(m, seed, run.trace, sim.trace, !bus);
    }
    arena_free(a);
    return timed;
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 0,
             count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    int timed = 0;
    log_set_level(LOG_LEVEL_ERROR); /* they are crowded, and only their own clocks matter */
    for (uint64_t s = first; s < first + count; s++) timed += one(s);
    if (launch_rank() == 0) printf("ok %d\n", timed);
    return 0;
}
