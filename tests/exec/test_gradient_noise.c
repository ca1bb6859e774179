/* Gradient noise scale: the estimator on drawn gradients of which |G|² and tr S are known; then real ranks, forked, whose squares are
 * compared with gradients that one device computes alone, share by share. */
#include "exec/gradient_noise.h"

#include "core/base/rng.h"
#include "exec/backend.h"
#include "exec/comm/launch_local.h"
#include "exec/worker/worker.h"

#include "tests/support/data.h"
#include "tests/support/device_ranks.h"
#include "tests/support/plans.h"

#include <math.h>
#include <stdio.h>
#include <sys/mman.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

enum { LIMIT_S = 60, DIMENSIONS = 16, DRAWN_STEPS = 4000 };

/* ---- the estimator ----------------------------------------------------------------------------- */

/* Of every sequence the gradient is G + noise with the variance `spread` in each dimension; G is all `mean`. */
static void draw(double *squares, int64_t steps, const int64_t *share, int32_t replicas, double mean, double spread)
{
    uint64_t n = 0;
    int64_t batch = 0;
    for (int32_t r = 0; r < replicas; r++) batch += share[r];
    for (int64_t s = 0; s < steps; s++) {
        double sum[DIMENSIONS] = {0}, small = 0, all = 0;
        for (int32_t r = 0; r < replicas; r++) {
            for (int d = 0; d < DIMENSIONS; d++) {
                double of_replica = 0; /* its term of the mean over the batch */
                for (int64_t i = 0; i < share[r]; i++) of_replica += (mean + sqrt(spread) * rng_normal(7, 1, n++)) / (double)batch;
                small += of_replica * of_replica * (double)batch / (double)share[r];
                sum[d] += of_replica;
            }
        }
        for (int d = 0; d < DIMENSIONS; d++) all += sum[d] * sum[d];
        squares[2 * s] = small, squares[2 * s + 1] = all;
    }
}

/* Over thousands of steps, averaged in runs of which each forgets nothing, the means are the true ones, for equal and unequal shares. */
START_TEST(both_terms_are_unbiased_for_unequal_shares)
{
    static const int64_t shares[][4] = {{1, 1, 1, 1}, {7, 3, 1, 2}, {1, 12, 1, 1}};
    const int64_t *share = shares[_i];
    int64_t batch = share[0] + share[1] + share[2] + share[3];
    double *squares = ARENA_ARRAY(arena, double, 2 * DRAWN_STEPS);
    draw(squares, DRAWN_STEPS, share, 4, 0.5, 3);
    double variance = 0, square = 0, covered = 0;
    enum { RUN = 20, RUNS = DRAWN_STEPS / RUN };
    for (int64_t i = 0; i < RUNS; i++) {
        struct gradient_noise x = gradient_noise_of(squares + 2 * RUN * i, RUN, 4, batch);
        ck_assert_int_eq(x.steps, RUN);
        variance += x.variance / RUNS, square += x.square / RUNS;
    }
    ck_assert_double_eq_tol(variance, 3 * DIMENSIONS, 0.02 * 3 * DIMENSIONS);
    ck_assert_double_eq_tol(square, 0.25 * DIMENSIONS, 0.04 * 0.25 * DIMENSIONS);
    /* the standard error of longer runs: about two of three are within it */
    for (int64_t i = 0; i < DRAWN_STEPS / 200; i++) {
        struct gradient_noise x = gradient_noise_of(squares + 400 * i, 200, 4, batch);
        ck_assert_double_gt(x.scale, 0);
        covered += fabs(x.scale - 12) < x.error;
        ck_assert_double_lt(fabs(x.scale - 12), 4 * x.error);
    }
    ck_assert(covered >= 9 && covered <= 19);
}
END_TEST

START_TEST(an_uncertain_scale_is_not_given)
{
    double *squares = ARENA_ARRAY(arena, double, 2 * 50);
    ck_assert_int_eq(gradient_noise_of(squares, 0, 2, 8).steps, 0);
    draw(squares, 50, (const int64_t[]){4, 4}, 2, 0, 1); /* no gradient but noise */
    struct gradient_noise x = gradient_noise_of(squares, 50, 2, 8);
    ck_assert(x.steps == 50 && x.variance > 0 && !(x.scale > 0));
    draw(squares, 50, (const int64_t[]){4, 4}, 2, 1, 1);
    x = gradient_noise_of(squares, 50, 2, 8);
    ck_assert_double_gt(x.scale, 0);
    squares[6] = NAN, squares[9] = INFINITY;
    struct gradient_noise fewer = gradient_noise_of(squares, 50, 2, 8);
    ck_assert(fewer.steps == 48 && fabs(fewer.scale / x.scale - 1) < 0.2);
    x = gradient_noise_of(squares, 1, 2, 8); /* one step has no spread */
    ck_assert(x.steps == 1 && isfinite(x.variance) && !(x.scale > 0));
}
END_TEST

/* Of as few steps as give a scale, the standard error still tells how far off it may be; fewer give none. */
START_TEST(few_steps_have_an_honest_error)
{
    enum { RUNS = DRAWN_STEPS / GRADIENT_NOISE_STEPS_MIN };
    double *squares = ARENA_ARRAY(arena, double, 2 * DRAWN_STEPS);
    int known = 0, far = 0;
    draw(squares, DRAWN_STEPS, (const int64_t[]){4, 4}, 2, 1, 1);
    for (int64_t i = 0; i < RUNS; i++) {
        const double *mine = squares + 2 * GRADIENT_NOISE_STEPS_MIN * i;
        struct gradient_noise x = gradient_noise_of(mine, GRADIENT_NOISE_STEPS_MIN, 2, 8);
        known += x.scale > 0, far += x.scale > 0 && fabs(x.scale - 1) > 3 * x.error;
        x = gradient_noise_of(mine, 2, 2, 8);
        ck_assert(x.steps == 2 && isfinite(x.variance) && !(x.scale > 0));
    }
    ck_assert_msg(known > RUNS / 2 && far <= known / 20, "%d of %d known, %d far", known, RUNS, far);
}
END_TEST

/* Later steps count more: a scale that changes is followed. */
START_TEST(old_steps_are_forgotten)
{
    double *squares = ARENA_ARRAY(arena, double, 2 * 1000);
    draw(squares, 500, (const int64_t[]){4, 4}, 2, 1, 1);
    draw(squares + 1000, 500, (const int64_t[]){4, 4}, 2, 1, 9);
    struct gradient_noise x = gradient_noise_of(squares, 1000, 2, 8);
    ck_assert_double_eq_tol(x.scale, 9, 2);
}
END_TEST

/* ---- runs -------------------------------------------------------------------------------------- */

static double *seen; /* the gradient of this process' updates, in order … */
static int64_t n_seen, seen_max;
static enum status (*host_run)(struct backend *b, int32_t stream, const struct op_call *call, struct error *err);

static enum status run_seen(struct backend *b, int32_t stream, const struct op_call *c, struct error *err)
{
    if (c->kind == OP_sgd) {
        int64_t n = shape_elements(&c->shapes->input[1]);
        ck_assert_int_le(n_seen + n, seen_max);
        memcpy(seen + n_seen, c->input[1], (size_t)n * sizeof *seen);
        n_seen += n;
    }
    return host_run(b, stream, c, err);
}

static enum status make_backend(const char *kind, struct backend *out, struct error *err)
{
    (void)kind, (void)err;
    backend_host(out);
    host_run = out->run;
    out->run = run_seen;
    return OK;
}

static struct plan plan_of(const char *model, enum dtype t, int32_t devices)
{
    struct plan p = plans_new(arena, model, 2, devices);
    p.job.precision = t;
    p.job.model.vocabulary = 256;
    p.job.model.tied = p.job.model.tied && t != DTYPE_fp64; /* in the exact test each parameter has one use */
    p.job.optimizer = (struct optimizer){.kind = OPTIMIZER_SGD, .lr = 0.1};
    return p;
}

/* The mean gradient of the first sequences, from one device: (n) elements in fp64. */
static double *gradient_of(const char *model, int32_t microbatches, int64_t *n)
{
    struct plan p = plan_of(model, DTYPE_fp64, 1);
    int32_t last = plans_layers(arena, &p) - 1;
    struct run_result r;
    struct error err = {0};
    plans_replica(arena, &p, microbatches, 1, &last);
    seen_max = 1 << 20, n_seen = 0, seen = ARENA_ARRAY(arena, double, (size_t)seen_max);
    struct run_options o = {.steps = 1, .data = DATA_FILE("LICENSE"), .backends = make_backend};
    ck_assert_msg(worker_run(arena, plans_lower(arena, &p, false), &o, &r, &err) == OK, "%s", err.text);
    ck_assert_int_gt(n_seen, 1000);
    *n = n_seen;
    return seen;
}

struct training {
    const struct program *p;
    int64_t steps;
    struct gradient_noise *out; /* shared by all ranks */
};

static int train_rank(void *owner, int32_t rank)
{
    const struct training *t = owner;
    struct run_options o = {.steps = t->steps, .data = DATA_FILE("LICENSE")};
    struct run_result r;
    struct error err = {0};
    struct arena *a = arena_new();
    enum status st = worker_run(a, t->p, &o, &r, &err);
    if (st != OK) fprintf(stderr, "rank %d: %s\n", (int)rank, err.text);
    if (st == OK && rank == 0) *t->out = r.noise;
    arena_free(a);
    return (int)st;
}

static struct gradient_noise train(const struct program *p, int64_t steps)
{
    struct gradient_noise *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(shared != MAP_FAILED);
    struct training t = {p, steps, shared};
    struct error err = {.code = OK};
    ck_assert_msg(launch_local(p->n_devices, train_rank, &t, LIMIT_S * TEST_SLOWDOWN, &err) == OK, "%s", err.text);
    struct gradient_noise out = *shared;
    munmap(shared, sizeof *shared);
    return out;
}

enum layout { WHOLE, BUCKETS, PIPELINES, CHUNKS, MIXED, N_LAYOUTS };

/* Two replicas with 3 microbatches and with 1. */
static struct plan two_replicas(enum layout layout, const char *model, enum dtype t)
{
    struct plan p = plan_of(model, t, 4);
    int32_t end = plans_layers(arena, &p) - 1, last[2] = {end / 2, end}, later[2] = {end - 1, end};
    p.gradient_noise_scale = true;
    if (layout == CHUNKS) {
        plans_scheduled(arena, &p, "zb-v", 2, 2, 3), plans_scheduled(arena, &p, "zb-v", 2, 2, 1);
        return p;
    }
    plans_replica(arena, &p, 3, layout == PIPELINES || layout == MIXED ? 2 : 1, layout == PIPELINES || layout == MIXED ? last : &end);
    plans_replica(arena, &p, 1, layout == PIPELINES ? 2 : 1, layout == PIPELINES ? later : &end);
    for (int32_t r = 0; r < 2 && layout == BUCKETS; r++) p.replicas[r].stages[0].bucket_bytes = 4096;
    return p;
}

static void compare(struct gradient_noise x, struct gradient_noise y, double tolerance)
{
    ck_assert_int_eq(x.steps, y.steps);
    ck_assert_msg(fabs(x.variance / y.variance - 1) < tolerance && fabs(x.square / y.square - 1) < tolerance,
                  "tr S %.17g and %.17g, |G|² %.17g and %.17g", x.variance, y.variance, x.square, y.square);
}

/* g is the mean of the batch of 4 microbatches, g0 that of the first three: the last one's is 4 g - 3 g0. */
START_TEST(squares_are_those_of_the_gradients)
{
    static const char *const models[] = {"gpt2", "llama"};
    for (int m = 0; m < 2; m++) {
        int64_t n = 0, n0 = 0;
        const double *g0 = gradient_of(models[m], 3, &n0), *g = gradient_of(models[m], 4, &n);
        double squares[2] = {0};
        ck_assert_int_eq(n, n0);
        for (int64_t i = 0; i < n; i++) {
            double g1 = 4 * g[i] - 3 * g0[i];
            squares[0] += 0.75 * g0[i] * g0[i] + 0.25 * g1 * g1;
            squares[1] += g[i] * g[i];
        }
        struct gradient_noise expected = gradient_noise_of(squares, 1, 2, 8);
        for (int fused = 0; fused < 2; fused++) {
            struct plan p = two_replicas((enum layout)_i, models[m], DTYPE_fp64);
            struct program *program = plans_lower(arena, &p, fused);
            plans_read_back(arena, program);
            compare(train(program, 1), expected, 1e-9);
        }
    }
}
END_TEST

/* Tied parameters count by use, so every layout gives the same; bf16 and a loss scale are near. */
START_TEST(layouts_and_precisions_agree)
{
    static const enum dtype types[] = {DTYPE_fp32, DTYPE_bf16, DTYPE_fp16};
    static const double near[] = {1e-4, 0.1, 0.1};
    struct gradient_noise first = {0};
    for (int t = 0; t < 3; t++)
        for (int layout = 0; layout < N_LAYOUTS; layout++) {
            if (layout == CHUNKS && types[t] == DTYPE_fp16) continue;
            struct plan p = two_replicas((enum layout)layout, "gpt2", types[t]);
            if (types[t] == DTYPE_fp16) p.job.loss_scale = (struct loss_scale){256, 2}; /* it grows */
            struct gradient_noise x = train(plans_lower(arena, &p, true), 5);
            if (!first.steps) first = x;
            compare(x, first, near[t]);
        }
}
END_TEST

/* On the stand-in of CUDA, where the host reads a step's numbers while the next one runs. */
START_TEST(devices_measure_as_hosts)
{
    static const enum layout layouts[] = {WHOLE, MIXED, CHUNKS};
    for (int half = 0; half < 2; half++) {
        struct plan p = two_replicas(layouts[_i], "gpt2", half ? DTYPE_bf16 : DTYPE_fp32);
        struct gradient_noise host = train(plans_lower(arena, &p, true), 4);
        p.cluster.types[0].catalogue = "H200-SXM", p.cluster.types[0].backend = "cuda", p.cluster.types[0].memory_bytes = INT64_C(100) << 30;
        struct program *program = plans_lower(arena, &p, true);
        for (int32_t i = 0; i < program->n_devices; i++) program->devices[i].gpu = "";
        device_ranks_environment(program->n_devices);
        compare(train(program, 4), host, half ? 0.1 : 1e-4);
    }
}
END_TEST

START_TEST(the_training_is_the_same)
{
    struct plan with = two_replicas(MIXED, "gpt2", DTYPE_fp32), without = with;
    without.gradient_noise_scale = false;
    struct program *a = plans_lower(arena, &with, true), *b = plans_lower(arena, &without, true);
    int32_t squares = 0, others = 0;
    for (int32_t s = 0; s < a->n_stages; s++) {
        for (int32_t i = 0; i < a->stages[s].n_ops; i++) squares += a->stages[s].ops[i].kind == OP_square_sum;
        others += a->stages[s].n_ops - b->stages[s].n_ops;
    }
    ck_assert(squares == others && squares >= 2 * a->n_stages && squares <= 8 * a->n_stages);
    ck_assert(!b->gradient_noise && train(b, 1).steps == 0);
}
END_TEST

START_TEST(plans_that_have_no_gradient_of_a_replica_are_refused)
{
    static const char *const why[] = {"must be 2 or more", "deterministic", "zero: ", "compression", "one stage on a device", "local_sgd"};
    static const int32_t islands[] = {0, 1};
    for (int i = 0; i < 6; i++) {
        struct plan p = two_replicas(i == 4 ? CHUNKS : WHOLE, "gpt2", i == 4 ? DTYPE_fp16 : DTYPE_fp32);
        struct error err = {0};
        if (i == 0) p.n_replicas = 1, p.job.global_batch = 6;
        if (i == 1) p.deterministic = true;
        if (i == 2) p.replicas[1].stages[0].zero = 1;
        if (i == 3) p.compression.gradients = (struct compressor){.kind = COMPRESSION_SIGN, .block = 256, .feedback = FEEDBACK_EF};
        if (i == 4) p.job.loss_scale = (struct loss_scale){LOSS_SCALE_INITIAL, 2};
        if (i == 5) {
            p.local_sgd.outer = (struct outer_optimizer){.every = 2, .fragments = 1};
            p.local_sgd.n_islands = 2;
            p.local_sgd.island = islands;
        }
        ck_assert_int_eq(plans_refused(arena, &p, &err), ERR_INPUT);
        ck_assert_msg(strstr(err.text, why[i]) && strstr(err.text, "gradient"), "%s", err.text);
    }
}
END_TEST

Suite *gradient_noise_suite(void)
{
    Suite *suite = suite_create("gradient_noise");
    TCase *t = tcase_create("gradient_noise");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, both_terms_are_unbiased_for_unequal_shares, 0, 3);
    tcase_add_test(t, an_uncertain_scale_is_not_given);
    tcase_add_test(t, few_steps_have_an_honest_error);
    tcase_add_test(t, old_steps_are_forgotten);
    tcase_add_loop_test(t, squares_are_those_of_the_gradients, 0, N_LAYOUTS);
    tcase_add_test(t, layouts_and_precisions_agree);
    tcase_add_loop_test(t, devices_measure_as_hosts, 0, 3);
    tcase_add_test(t, the_training_is_the_same);
    tcase_add_test(t, plans_that_have_no_gradient_of_a_replica_are_refused);
    suite_add_tcase(suite, t);
    return suite;
}
