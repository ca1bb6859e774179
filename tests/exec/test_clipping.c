/* Gradient clipping by global norm, and the optimizers, in real ranks, forked, on the host's kernels: whatever the plan, losses and norms
 * are those of one device, and norms are those of the gradients that updates read. */
#include "core/base/arena.h"
#include "core/program/program.h"
#include "exec/backend.h"
#include "exec/comm/launch_local.h"
#include "exec/worker/worker.h"

#include "tests/support/plans.h"

#include <math.h>
#include <stdio.h>
#include <sys/mman.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

enum { STEPS = 20, LIMIT_S = 60, MICROBATCHES = 6 };

/* ---- ranks ------------------------------------------------------------------------------------- */

struct outcome {
    double losses[STEPS], norms[STEPS];
    double seen[STEPS]; /* squares of the gradients that rank 0's updates read */
};

struct training {
    const struct program *p;
    struct outcome *out; /* shared by all ranks */
};

static struct outcome *seen_by;
static enum status (*host_run)(struct backend *b, int32_t stream, const struct op_call *call, struct error *err);

/* The host's, and the squares of what an update reads, before it is scaled. */
static enum status run_seen(struct backend *b, int32_t stream, const struct op_call *c, struct error *err)
{
    if (seen_by && op_is_update(c->kind) && c->dtype == DTYPE_fp64) {
        const double *g = c->input[1];
        for (int64_t i = 0; i < shape_elements(&c->shapes->input[1]); i++) seen_by->seen[c->optimizer->step - 1] += g[i] * g[i];
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

static int train_rank(void *owner, int32_t rank)
{
    const struct training *t = owner;
    struct run_options o = {.steps = STEPS, .backends = make_backend};
    struct run_result r;
    struct error err = {0};
    struct arena *a = arena_new();
    seen_by = rank ? NULL : t->out;
    enum status st = worker_run(a, t->p, &o, &r, &err);
    if (st != OK) fprintf(stderr, "rank %d: %s\n", (int)rank, err.text);
    for (int i = 0; i < STEPS && st == OK && rank == 0; i++) {
        t->out->losses[i] = r.losses[i];
        t->out->norms[i] = r.gradient_norms ? r.gradient_norms[i] : -1;
    }
    arena_free(a);
    return (int)st;
}

static struct outcome train(const struct program *p)
{
    struct outcome *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(shared != MAP_FAILED);
    struct training t = {p, shared};
    struct error err = {.code = OK};
    ck_assert_msg(launch_local(p->n_devices, train_rank, &t, LIMIT_S * TEST_SLOWDOWN, &err) == OK, "%s", err.text);
    struct outcome out = *shared;
    munmap(shared, sizeof *shared);
    return out;
}

/* ---- plans ------------------------------------------------------------------------------------- */

enum shape_of_plan { ONE, UNEVEN, ZERO_1, ZERO_2, ZERO_3, PIPELINE, BOTH, CHAIN, CHUNKS, CHUNKS_TWICE, N_PLANS };
static const char *const plan_names[] = {"one", "uneven", "zero 1", "zero 2", "zero 3", "pipeline", "both", "chain", "chunks", "chunks twice"};

static void replicas_of(struct plan *p, int32_t n, int32_t stages, int32_t more)
{
    int32_t end = plans_layers(arena, p) - 1, last[4];
    for (int32_t s = 0; s < stages; s++) last[s] = s + 1 == stages ? end : s + 1;
    for (int32_t r = 0; r < n; r++) plans_replica(arena, p, MICROBATCHES / n + (r ? -more : more), stages, last);
}

static struct plan plan_of(enum shape_of_plan shape, const char *model, enum dtype t, struct optimizer o)
{
    static const int32_t devices[] = {1, 2, 2, 2, 2, 4, 4, 4, 2, 4};
    struct plan p = plans_new(arena, model, 2, devices[shape]);
    p.job.precision = t, p.job.optimizer = o;
    if (t == DTYPE_fp16) p.job.loss_scale = (struct loss_scale){LOSS_SCALE_INITIAL, LOSS_SCALE_GROWS_AFTER};
    p.deterministic = shape == CHAIN;
    switch (shape) {
    case CHUNKS: plans_scheduled(arena, &p, "interleaved", 2, 2, MICROBATCHES); break;
    case CHUNKS_TWICE:
        for (int r = 0; r < 2; r++) plans_scheduled(arena, &p, "interleaved", 2, 2, r ? 2 : 4);
        break;
    case ONE: replicas_of(&p, 1, 1, 0); break;
    case PIPELINE: replicas_of(&p, 1, 4, 0); break;
    case BOTH:
    case CHAIN: replicas_of(&p, 2, 2, 1); break;
    default: replicas_of(&p, 2, 1, shape == UNEVEN);
    }
    for (int32_t r = 0; shape >= ZERO_1 && shape <= ZERO_3 && r < 2; r++) p.replicas[r].stages[0].zero = (int32_t)shape - ZERO_1 + 1;
    return p;
}

static struct outcome train_plan(enum shape_of_plan shape, const char *model, enum dtype t, struct optimizer o, bool fused)
{
    struct plan p = plan_of(shape, model, t, o);
    struct program *made = plans_lower(arena, &p, fused);
    plans_read_back(arena, made);
    return train(made);
}

static const struct optimizer optimizers[] = {
    {.kind = OPTIMIZER_ADAMW, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .max_grad_norm = 0.5},
    {.kind = OPTIMIZER_SGD, .lr = 1e-2, .max_grad_norm = 0.5},
    {.kind = OPTIMIZER_SGD, .lr = 1e-2, .beta1 = 0.9, .nesterov = true, .weight_decay = 0.01, .decay_all = true, .max_grad_norm = 0.5},
    {.kind = OPTIMIZER_SGD, .lr = 1e-2, .beta1 = 0.8},
    {.kind = OPTIMIZER_LION, .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1, .max_grad_norm = 0.5}};
enum { N_OPTIMIZERS = sizeof optimizers / sizeof *optimizers };

static void compare(const struct outcome *x, const struct outcome *one, double tolerance, const char *name)
{
    for (int i = 0; i < STEPS; i++) {
        ck_assert_msg(fabs(x->losses[i] - one->losses[i]) <= tolerance * one->losses[i], "%s: loss %.17g at step %d, on one device %.17g", name,
                      x->losses[i], i + 1, one->losses[i]);
        ck_assert_msg(fabs(x->norms[i] - one->norms[i]) <= 10 * tolerance * fabs(one->norms[i]), "%s: norm %.17g at step %d, on one device %.17g",
                      name, x->norms[i], i + 1, one->norms[i]);
    }
}

START_TEST(losses_and_norms_are_those_of_one_device)
{
    static const char *const models[] = {"gpt2", "llama"}; /* tied, untied */
    const struct optimizer o = optimizers[_i];
    for (int m = 0; m < 2; m++) {
        struct outcome one = train_plan(ONE, models[m], DTYPE_fp64, o, false);
        bool clipped = false;
        for (int shape = 1; shape < N_PLANS; shape++) {
            struct outcome x = train_plan(shape, models[m], DTYPE_fp64, o, shape % 2);
            compare(&x, &one, 1e-11, plan_names[shape]);
        }
        for (int i = 0; i < STEPS; i++) {
            if (!(o.max_grad_norm > 0)) continue;
            clipped |= one.norms[i] > o.max_grad_norm;
            ck_assert_double_eq_tol(one.norms[i] * one.norms[i], one.seen[i], 1e-12 * one.seen[i]);
        }
        ck_assert(clipped == (o.max_grad_norm > 0));
    }
}
END_TEST

/* The generator's plans. Its global batch is the seed's, so that each has a job of its own. */
START_TEST(random_plans_have_the_losses_and_norms_of_one_device)
{
    uint64_t n = suites_long() ? 60 : 4;
    for (uint64_t seed = (uint64_t)_i * n; seed < ((uint64_t)_i + 1) * n; seed++) {
        struct plan p = plans_random_any(arena, seed), alone = p;
        int32_t end = plans_layers(arena, &p) - 1;
        p.job.precision = DTYPE_fp64, p.job.optimizer = optimizers[seed % N_OPTIMIZERS];
        alone.job = p.job, alone.job.global_batch = 0, alone.n_replicas = 0, alone.deterministic = false;
        alone.replicas = ARENA_ARRAY(arena, struct plan_replica, 1);
        plans_replica(arena, &alone, (int32_t)(p.job.global_batch / p.microbatch), 1, &end);
        struct outcome one = train(plans_lower(arena, &alone, false)), x = train(plans_lower(arena, &p, seed % 2));
        compare(&x, &one, 1e-11, arena_printf(arena, "seed %d", (int)seed));
        arena_reset(arena);
    }
}
END_TEST

/* The scale is a power of two and so changes no digit of a norm; activations are rounded. */
START_TEST(norms_are_of_unscaled_gradients)
{
    struct outcome exact = train_plan(ONE, "gpt2", DTYPE_fp64, optimizers[1], false);
    static const enum shape_of_plan shapes[] = {ONE, ZERO_2, BOTH, CHUNKS, CHUNKS_TWICE};
    for (int k = 0; k < 5; k++) {
        struct outcome x = train_plan(shapes[k], "gpt2", DTYPE_fp16, optimizers[1], true);
        for (int i = 0; i < STEPS; i++) {
            ck_assert_double_eq_tol(x.norms[i], exact.norms[i], 0.02 * exact.norms[i]);
            ck_assert_double_eq_tol(x.losses[i], exact.losses[i], 2e-3 * exact.losses[i]);
        }
    }
}
END_TEST

START_TEST(a_deterministic_plan_repeats_every_bit)
{
    struct outcome x = train_plan(CHAIN, "gpt2", DTYPE_fp32, optimizers[0], true), y = train_plan(CHAIN, "gpt2", DTYPE_fp32, optimizers[0], true);
    ck_assert_mem_eq(x.losses, y.losses, sizeof x.losses);
    ck_assert_mem_eq(x.norms, y.norms, sizeof x.norms);
}
END_TEST

/* Each island, here of one device, clips by the norm of its own gradients, without a collective. */
static void islands(struct plan *p, int32_t every)
{
    int32_t *of = ARENA_ARRAY(arena, int32_t, 2);
    of[1] = 1;
    p->local_sgd = (struct plan_local_sgd){.n_islands = 2, .island = of, .outer = {.every = every, .kind = OUTER_AVERAGE, .fragments = 1}};
}

START_TEST(islands_clip_by_their_own_norms)
{
    struct plan p = plan_of(UNEVEN, "gpt2", DTYPE_fp64, optimizers[1]);
    islands(&p, 2);
    const struct program *made = plans_lower(arena, &p, true);
    struct outcome x = train(made);
    for (int i = 0; i < STEPS; i++) ck_assert_double_eq_tol(x.norms[i] * x.norms[i], x.seen[i], 1e-12 * x.seen[i]);
    for (int32_t i = 0; i < made->n_collectives; i++) ck_assert(strncmp(made->collectives[i].name, "gradient_norm", 13) != 0);
    p.job.precision = DTYPE_fp16, p.job.loss_scale = (struct loss_scale){LOSS_SCALE_INITIAL, 0};
    struct error err = {0};
    ck_assert_int_eq(plans_refused(arena, &p, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "islands have one loss scale"));
}
END_TEST

Suite *clipping_suite(void)
{
    Suite *s = suite_create("clipping");
    TCase *t = tcase_create("clipping");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, losses_and_norms_are_those_of_one_device, 0, N_OPTIMIZERS);
    tcase_add_loop_test(t, random_plans_have_the_losses_and_norms_of_one_device, 0, 5);
    tcase_add_test(t, norms_are_of_unscaled_gradients);
    tcase_add_test(t, a_deterministic_plan_repeats_every_bit);
    tcase_add_test(t, islands_clip_by_their_own_norms);
    suite_add_tcase(s, t);
    return s;
}
