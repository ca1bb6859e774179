/* tests/programs/late_ranks.c - one rank of random programs on devices that are late; started by mpirun.
 *
 * late_ranks pipelines|collectives|shared FIRST COUNT lazy|threads|cuda FOLDER
 * The programs of these seeds that have as many devices as ranks: pipelines, replicas, several stages a device, state,
 * gradients and parameters divided (tests/support/plans.h); collectives inside calls (tests/support/tensor_collectives.h); sharded stages
 * (tests/support/sharded_plans.h). Each runs on the host and then with all or some of its devices late (tests/support/deferred.h): losses are the same
 * bits, every device's operators, messages and collectives come in the same order, none of one stream overlaps. Every third
 * saves on one device class and goes on on the other: the same bits as in one go. Rank 0 says "ok" and how many.
 * cuda: devices are the plugin's; losses agree to CUDA_TOLERANCE.
 */
#include "core/base/log.h"
#include "exec/comm/launch.h"
#include "exec/worker/worker.h"

#include "tests/support/suites.h"

/* Plans are made outside of a test, where Check has nobody to tell. */
#undef ck_assert_msg
#undef ck_assert_ptr_nonnull
#undef ck_assert_int_lt
#undef ck_assert
#define ck_assert(x)                                                                               \
    do {                                                                                           \
        if (!(x)) abort();                                                                         \
    } while (0)
#define ck_assert_msg(x, ...) ck_assert(x)
#define ck_assert_ptr_nonnull(x) ck_assert((x) != NULL)
#define ck_assert_int_lt(x, y) ck_assert((x) < (y))

#include "tests/support/deferred.h"
#include "tests/support/tensor_collectives.h"
#include "tests/support/plans.h"
#include "tests/support/sharded_plans.h"

#include <inttypes.h>
#include <math.h>
#include <unistd.h>

enum { STEPS = 4 };
#define CUDA_TOLERANCE 1e-4 /* fp32: products and sums in another order, four steps long */
static bool on_cuda;

static void broken(uint64_t seed, const char *what)
{
    fprintf(stderr, "rank %d, seed %" PRIu64 ": %s\n", (int)launch_rank(), seed, what);
    abort();
}

/* ---- programs ---------------------------------------------------------------------------------
 */

/* State, gradients, parameters divided: at level 1 over replicas of any shape, from level 2 on over copies of the first. */
static void divide(struct arena *a, struct plan *p, int32_t zero, int64_t bucket)
{
    struct plan_replica *first = &p->replicas[0];
    p->deterministic = false;
    for (int32_t k = 1; zero > 1 && k < p->n_replicas; k++) {
        struct plan_replica *x = &p->replicas[k];
        *x = *first;
        x->stages = ARENA_ARRAY(a, struct plan_stage, (size_t)x->n_stages);
        memcpy(x->stages, first->stages, (size_t)x->n_stages * sizeof *x->stages);
        for (int32_t s = 0; s < x->n_stages; s++)
            x->stages[s].device = first->stages[0].device + k * x->n_stages + s;
    }
    if (zero > 1) p->job.global_batch = p->n_replicas * first->microbatches * p->microbatch;
    for (int32_t k = 0; k < p->n_replicas; k++)
        for (int32_t s = 0; s < p->replicas[k].n_stages; s++)
            p->replicas[k].stages[s].zero = zero, p->replicas[k].stages[s].bucket_bytes = bucket;
}

/* NULL: another number of devices, or none that can be lowered. */
static struct program *pipelines(struct arena *a, uint64_t seed)
{
    struct plans_random r = {seed, 9000};
    int32_t zero = plans_below(&r, 4);
    struct plan plan = zero ? plans_random_plan(a, seed) : plans_random_any(a, seed);
    struct lower_options o = {.n_fused = seed % 2 ? 4 : 0, .fused = plans_fused};
    struct program *p = ARENA_ARRAY(a, struct program, 1);
    struct error err = {0};
    if (zero && plan.n_replicas > 1) divide(a, &plan, zero, plans_below(&r, 2) ? 0 : 4096);
    if (lower_plan(a, &plan, &o, p, &err) != OK) return NULL;
    return p->n_devices == launch_size() ? p : NULL;
}

static struct program *shared(struct arena *a, uint64_t seed)
{
    struct sharded *s = ARENA_ARRAY(a, struct sharded, 1);
    struct program *p = ARENA_ARRAY(a, struct program, 1);
    struct lower_options o = {.n_fused = seed % 2 ? 4 : 0, .fused = plans_fused};
    struct error err = {0};
    if (sharded_make(s, a, seed, launch_size(), false) != OK) return NULL;
    return lower_plan(a, &s->plan, &o, p, &err) == OK ? p : NULL;
}

static struct program *made(const char *what, struct arena *a, uint64_t seed)
{
    if (!strcmp(what, "pipelines")) return pipelines(a, seed);
    if (!strcmp(what, "shared")) return shared(a, seed);
    struct met *m = tensor_collectives_make(a, seed, launch_size(), seed % 4 == 3);
    return &m->p;
}

/* Which devices are late: all, or those that the seed says, but one at least. */
static void make_late(struct program *p, uint64_t seed, bool late)
{
    struct plans_random r = {seed, 7000};
    int32_t one = plans_below(&r, p->n_devices);
    bool all = plans_below(&r, 3) == 0;
    for (int32_t i = 0; i < p->n_devices; i++) {
        bool is = late && (all || i == one || plans_below(&r, 2));
        p->devices[i].kind = is ? "cuda" : "host";
        p->devices[i].gpu = NULL, p->devices[i].memory_bytes = 1;
        p->devices[i].index = i % 16;
    }
}

/* ---- runs -------------------------------------------------------------------------------------
 */

static struct run_result run(struct arena *a, struct program *p, uint64_t seed, bool late,
                             struct run_options o)
{
    struct run_result r = {0};
    struct error err = {0};
    o.backends = on_cuda ? NULL : deferred_backends;
    make_late(p, seed, late);
    if (worker_run(a, p, &o, &r, &err) != OK) broken(seed, err.text);
    return r;
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
           x->part == y->part && x->bytes == y->bytes && x->uneven_ppm == y->uneven_ppm;
}

/* Messages may overtake each other between channels; the library of a device does a collective as one. */
static void compare(const struct trace *x, const struct trace *y, int32_t n_devices, uint64_t seed)
{
    if (!on_cuda && x->n_spans != y->n_spans) broken(seed, "other numbers of spans");
    for (int32_t d = 0; d < n_devices; d++)
        for (int s = 0; s < STREAM_COUNT; s++) {
            size_t i = 0, k = 0;
            if (on_cuda && s == STREAM_collective) continue;
            const struct span *u, *v, *before = NULL;
            bool ordered = s == STREAM_compute || s == STREAM_collective;
            while ((u = next(x, &i, d, (enum stream)s)), (v = next(y, &k, d, (enum stream)s)), u) {
                if (!v || (ordered && !same(u, v))) {
                    char why[240];
                    snprintf(why, sizeof why,
                             "device %d, stream %d: span %zu is %c step %d microbatch %d op %d "
                             "uneven %d, not %c %d %d %d %d",
                             (int)d, s, k, v ? v->phase : '-', v ? v->step : 0,
                             v ? v->microbatch : 0, v ? v->op : 0, v ? v->uneven_ppm : 0, u->phase,
                             u->step, u->microbatch, u->op, u->uneven_ppm);
                    broken(seed, why);
                }
                if (v->begin_ns > v->end_ns) broken(seed, "a span ends before it begins");
                if (s == STREAM_compute && before && before->end_ns > v->begin_ns)
                    broken(seed, "operators overlap");
                before = v;
            }
        }
}

static void check_losses(const struct run_result *x, int64_t from, const struct run_result *y,
                         int64_t n, uint64_t seed, const char *what)
{
    char why[160];
    for (int64_t i = 0; i < n; i++) {
        double wanted = x->losses[from + i], is = y->losses[i];
        if (on_cuda ? fabs(is - wanted) <= CUDA_TOLERANCE * fabs(wanted)
                    : !memcmp(&wanted, &is, sizeof is))
            continue;
        snprintf(why, sizeof why, "%s: loss of step %d is %.17g on the host and %.17g", what,
                 (int)(from + i), x->losses[from + i], y->losses[i]);
        broken(seed, why);
    }
}

static void go_on(struct arena *a, struct program *p, uint64_t seed, const char *dir, bool late,
                  const struct run_result *whole)
{
    char folder[96];
    snprintf(folder, sizeof folder, "%s/%" PRIu64 "-%d", dir, seed, late);
    run(a, p, seed, late, (struct run_options){.steps = 2, .save = folder, .save_every = 1});
    struct run_result rest =
        run(a, p, seed, !late, (struct run_options){.steps = STEPS - 2, .resume = folder});
    if (launch_rank() == 0)
        check_losses(whole, 2, &rest, STEPS - 2, seed,
                     late ? "late, then host" : "host, then late");
}

static bool one(const char *what, uint64_t seed, const char *dir)
{
    struct arena *a = arena_new();
    struct program *p = made(what, a, seed);
    if (p) {
        bool traced = seed % 2;
        struct run_options o = {.steps = STEPS, .keep_trace = traced};
        struct run_result host = run(a, p, seed, false, o), late = run(a, p, seed, true, o);
        if (launch_rank() == 0) {
            check_losses(&host, 0, &late, STEPS, seed, "in one go");
            if (traced) compare(host.trace, late.trace, p->n_devices, seed);
        }
        if (seed % 3 == 0 && strcmp(what, "collectives") != 0) {
            go_on(a, p, seed, dir, false, &host);
            go_on(a, p, seed, dir, true, &host);
        }
    }
    arena_free(a);
    return p != NULL;
}

int main(int argc, char **argv)
{
    int done = 0;
    if (argc != 6) {
        fprintf(stderr, "usage: see the head of this file\n");
        return 2;
    }
    on_cuda = !strcmp(argv[4], "cuda");
    log_set_level(LOG_LEVEL_ERROR);
    deferred_options.mode = on_cuda                        ? DEFERRED_LAZY
                            : strcmp(argv[4], "lazy") != 0 ? DEFERRED_THREADS
                                                           : DEFERRED_LAZY;
    uint64_t first = strtoull(argv[2], NULL, 10), count = strtoull(argv[3], NULL, 10);
    for (uint64_t s = first; s < first + count; s++) done += one(argv[1], s, argv[5]);
    if (deferred_left()) broken(0, "memory was not released");
    if (launch_rank() == 0) printf("ok %d\n", done);
    return 0;
}
