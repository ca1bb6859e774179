/* Training with gradients delayed by one step (weight_versions: 2, core/plan/plan.h) beside its formula
 *     W(t+1) = W(t) - lr grad f_t(W(t-1)), W(-1) = W(0)
 * whose gradients are those of synchronous steps from the older version. Pipelines of several ranks are tests/cli/weight_versions.sh's. */
#include "exec/checkpoint/files.h"
#include "exec/worker/worker.h"

#include "tests/support/plans.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static struct arena *arena;
static struct error err;
static char folder[64];
static void setup(void)
{
    arena = arena_new();
    err = (struct error){0};
    snprintf(folder, sizeof folder, "/tmp/delayed.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}
static void teardown(void)
{
    ck_assert_int_eq(system(arena_printf(arena, "rm -rf %s", folder)), 0);
    arena_free(arena);
}

#define MUST(call) ck_assert_msg((call) == OK, "%s", err.text)

static const char *at(const char *name, int64_t step) { return arena_printf(arena, "%s/%s%d", folder, name, (int)step); }

static struct run_result run(const struct program *p, int64_t steps, const char *resume, const char *save, int64_t every)
{
    struct run_result r;
    struct run_options o = {.steps = steps, .data = data_source_of(arena, p->vocabulary > 1 ? "LICENSE" : NULL, DATA_AUTO), .resume = resume, .save = save, .save_every = every};
    MUST(worker_run(arena, p, &o, &r, &err));
    return r;
}

/* --- beside the formula, in fp64 --- */

static struct program *gpt(int32_t versions, enum optimizer_kind kind, double lr)
{
    struct plan p = plans_new(arena, "gpt2", 2, 1);
    p.job.model.vocabulary = 256;
    p.job.precision = DTYPE_fp64;
    p.job.optimizer.kind = kind, p.job.optimizer.lr = lr;
    if (kind == OPTIMIZER_SGD) p.job.optimizer.beta1 = p.job.optimizer.weight_decay = 0; /* of the latest version, the rest of the step is of the older one */
    p.weight_versions = versions;
    int32_t last = plans_layers(arena, &p) - 1;
    plans_replica(arena, &p, 3, 1, &last);
    return plans_lower(arena, &p, kind == OPTIMIZER_SGD);
}

struct weights { /* of a checkpoint; those of `suffix` */
    struct checkpoint c;
    int32_t n;
    struct checkpoint_tensor *tensor; /* (n) */
    double **value;                   /* (n) */
};

static struct weights load(const char *dir, const char *suffix)
{
    struct weights w = {0};
    MUST(checkpoint_find(arena, dir, &w.c, &err));
    w.tensor = ARENA_ARRAY(arena, struct checkpoint_tensor, (size_t)w.c.n_tensors);
    w.value = ARENA_ARRAY(arena, double *, (size_t)w.c.n_tensors);
    for (int32_t i = 0; i < w.c.n_tensors; i++) {
        const struct checkpoint_tensor *t = &w.c.tensors[i];
        const char *mark = strchr(t->name, '#');
        if (strcmp(mark ? mark : "", suffix) != 0) continue;
        w.tensor[w.n] = *t;
        w.value[w.n] = ARENA_ARRAY(arena, double, (size_t)shape_elements(&t->shape));
        MUST(checkpoint_load(&w.c, t->name, &t->shape, DTYPE_fp64, w.value[w.n], &err));
        w.n++;
    }
    ck_assert_int_gt(w.n, 0);
    return w;
}

static void store(const char *dir, const struct weights *w, int64_t step, int64_t batch)
{
    struct checkpoint_store s;
    struct checkpoint c = w->c;
    const char *temporary;
    c.step = step, c.sequences = step * batch, c.n_tensors = w->n;
    c.tensors = arena_copy(arena, w->tensor, (size_t)w->n * sizeof *w->tensor);
    MUST(checkpoint_enter(arena, dir, &s, &err));
    MUST(checkpoint_begin(arena, &s, step, &temporary, &err));
    MUST(checkpoint_write(arena, temporary, "stage-0000.safetensors", c.tensors, (const void *const *)w->value, w->n, &err));
    MUST(checkpoint_commit(arena, &s, temporary, &c, &err));
    checkpoint_leave(&s);
}

/* to = w + (by - from) */
static struct weights moved(const struct weights *w, const struct weights *by, const struct weights *from)
{
    struct weights out = *w;
    out.value = ARENA_ARRAY(arena, double *, (size_t)w->n);
    for (int32_t i = 0; i < w->n; i++) {
        int64_t n = shape_elements(&w->tensor[i].shape);
        out.value[i] = ARENA_ARRAY(arena, double, (size_t)n);
        ck_assert_str_eq(w->tensor[i].name, by->tensor[i].name);
        for (int64_t k = 0; k < n; k++) out.value[i][k] = w->value[i][k] + (by->value[i][k] - from->value[i][k]);
    }
    return out;
}

static double distance(const struct weights *x, const struct weights *y)
{
    double most = 0;
    ck_assert_int_eq(x->n, y->n);
    for (int32_t i = 0; i < x->n; i++)
        for (int64_t k = 0; k < shape_elements(&x->tensor[i].shape); k++) most = fmax(most, fabs(x->value[i][k] - y->value[i][k]));
    return most;
}

START_TEST(every_gradient_is_at_the_version_of_one_step_before)
{
    enum { STEPS = 6 };
    const double lr = 0.05;
    const struct program *sync = gpt(1, OPTIMIZER_SGD, lr), *idle = gpt(1, OPTIMIZER_SGD, 0), *delayed = gpt(2, OPTIMIZER_SGD, lr);
    int64_t batch = sync->microbatches * sync->microbatch;
    (void)run(idle, 1, NULL, at("start", 0), 0);
    struct weights w = load(at("start", 0), ""), before = w;
    double losses[STEPS];
    for (int64_t t = 0; t < STEPS; t++) {
        if (t) store(at("from", t), &before, t, batch);
        losses[t] = run(sync, 1, t ? at("from", t) : NULL, at("to", t), 0).losses[0];
        struct weights to = load(at("to", t), ""), next = moved(&w, &to, &before);
        before = w, w = next;
    }
    struct run_result r = run(delayed, STEPS, NULL, at("delayed", 0), 0), s = run(sync, STEPS, NULL, NULL, 0);
    for (int t = 0; t < STEPS; t++) ck_assert_msg(fabs(r.losses[t] - losses[t]) < 1e-12, "step %d: %.17g, not %.17g", t, r.losses[t], losses[t]);
    ck_assert(fabs(r.losses[1] - s.losses[1]) > 1e-4);
    struct weights latest = load(at("delayed", 0), ""), previous = load(at("delayed", 0), "#previous");
    ck_assert_double_lt(distance(&latest, &w), 1e-12);
    ck_assert_double_lt(distance(&previous, &before), 1e-12);
    ck_assert_double_gt(distance(&latest, &previous), 1e-6);
}
END_TEST

START_TEST(a_checkpoint_has_both_versions)
{
    const struct program *p = gpt(2, OPTIMIZER_ADAMW, 1e-2), *sync = gpt(1, OPTIMIZER_ADAMW, 1e-2);
    struct run_result all = run(p, 7, NULL, NULL, 0), saved = run(p, 7, NULL, at("all", 0), 2);
    (void)run(p, 3, NULL, at("half", 0), 0);
    struct run_result rest = run(p, 4, at("half", 0), NULL, 0), other = run(sync, 1, at("half", 0), NULL, 0);
    for (int t = 0; t < 7; t++) ck_assert(saved.losses[t] == all.losses[t]);
    for (int t = 0; t < 4; t++) ck_assert(rest.losses[t] == all.losses[3 + t]);
    ck_assert(other.losses[0] != all.losses[3]); /* at the latest version */
    /* from a synchronous checkpoint, whose parameters are both versions */
    (void)run(sync, 3, NULL, at("sync", 0), 0);
    struct run_result from = run(p, 2, at("sync", 0), NULL, 0), flushed = run(sync, 2, at("sync", 0), NULL, 0);
    ck_assert(from.losses[0] == flushed.losses[0] && from.losses[1] != flushed.losses[1]);
}
END_TEST

/* --- a quadratic, by a program made by hand --- */

/* One parameter p with loss p² / 2, so gradient p: the copy to `previous`, SGD. The loss recorded is p of one step before. */
static struct program *quadratic(double lr)
{
    struct program *p = ARENA_ARRAY(arena, struct program, 1);
    const struct shape one = {1, {1}};
    *p = (struct program){.name = "quadratic",
                          .seed = 1,
                          .steps = 1,
                          .dtype = DTYPE_fp64,
                          .microbatch = 1,
                          .sequence_length = 1,
                          .vocabulary = 1,
                          .microbatches = 1,
                          .n_devices = 1,
                          .n_stages = 1,
                          .n_orders = 1,
                          .optimizer = {.kind = OPTIMIZER_SGD, .lr = lr}};
    p->devices = ARENA_ARRAY(arena, struct program_device, 1);
    p->devices[0] = (struct program_device){.name = "a.0", .type = "plain", .host = "localhost", .kind = "host"};
    p->lanes = ARENA_ARRAY(arena, struct lane, 1);
    p->lanes[0] = (struct lane){0, 1, ARENA_ARRAY(arena, int32_t, 1)};
    struct program_stage *s = p->stages = ARENA_ARRAY(arena, struct program_stage, 1);
    *s = (struct program_stage){.microbatches = 1, .n_slots = 3, .n_ops = 3, .n_procedures = 2, .n_parameters = 1};
    s->slots = ARENA_ARRAY(arena, struct slot, 3);
    s->slots[0] = (struct slot){"p", SLOT_PARAMETER, DTYPE_fp64, one, -1, 0, 0, 8, 0, -1, NULL};
    s->slots[1] = (struct slot){"g", SLOT_GRADIENT, DTYPE_fp64, one, -1, 0, 0, 8, 0, -1, NULL};
    s->slots[2] = (struct slot){"p.previous", SLOT_PARAMETER, DTYPE_fp64, one, -1, 0, 64, 8, 0, -1, NULL};
    s->class_bytes[SLOT_PARAMETER] = 128, s->class_bytes[SLOT_GRADIENT] = 64;
    s->parameters = ARENA_ARRAY(arena, struct program_parameter, 1);
    s->parameters[0] = (struct program_parameter){
        .name = "p", .shape = one, .init = INIT_ONES, .gradient = {1, -1}, .state = {-1, -1}, .master = -1, .previous = 1 + 2};
    s->ops = ARENA_ARRAY(arena, struct program_op, 3);
    s->ops[0] = (struct program_op){.kind = OP_accumulate, .phase = PHASE_W, .dtype = DTYPE_fp64, .name = "gradient", .n_inputs = 1, .n_outputs = 1, .input = {2}, .output = {1}};
    s->ops[1] = (struct program_op){.kind = OP_slice, .phase = PHASE_U, .dtype = DTYPE_fp64, .name = "keep", .attrs = {.sequences = 1}, .n_inputs = 1, .n_outputs = 1, .output = {2}};
    s->ops[2] = (struct program_op){.kind = OP_sgd, .phase = PHASE_U, .dtype = DTYPE_fp64, .name = "update", .n_inputs = 2, .n_outputs = 2, .input = {0, 1}, .output = {0, 1}};
    for (int i = 0; i < 3; i++) {
        struct op_shapes *x = &s->ops[i].shapes;
        x->n_inputs = s->ops[i].n_inputs, x->n_outputs = s->ops[i].n_outputs;
        for (int k = 0; k < 2; k++) x->input[k] = x->output[k] = one;
    }
    static struct instr f[] = {{INSTR_LOSS, 2}, {INSTR_COMPUTE, 0}}, u[] = {{INSTR_COMPUTE, 1}, {INSTR_COMPUTE, 2}};
    s->procedures = ARENA_ARRAY(arena, struct procedure, 2);
    s->procedures[0] = (struct procedure){PHASE_F, "", 0, 0, 2, f};
    s->procedures[1] = (struct procedure){PHASE_U, "", 0, 0, 2, u};
    const struct call calls[] = {{0, 0, 0}, {1, -1, 0}};
    p->orders = ARENA_ARRAY(arena, struct order, 1);
    order_code(arena, calls, 2, p->orders);
    return p;
}

/* With a delay of one step the bound is lr λ < 2 sin(π / 6) = 1, λ = 1. */
START_TEST(descent_is_stable_up_to_the_bound_of_one_step)
{
    enum { STEPS = 2000 };
    const double bound = 2 * sin(acos(-1) / 6), factor[2] = {0.97, 1.03};
    double last[2] = {0};
    for (int k = 0; k < 2; k++) {
        struct run_result r = run(quadratic(factor[k] * bound), STEPS, NULL, NULL, 0);
        for (int t = STEPS - 20; t < STEPS; t++) last[k] = fmax(last[k], fabs(r.losses[t]));
    }
    ck_assert_msg(last[0] < 1e-10 && last[1] > 1e10, "%g and %g", last[0], last[1]);
}
END_TEST

Suite *delayed_training_suite(void)
{
    Suite *s = suite_create("delayed_training");
    TCase *t = tcase_create("delayed_training");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, every_gradient_is_at_the_version_of_one_step_before);
    tcase_add_test(t, a_checkpoint_has_both_versions);
    tcase_add_test(t, descent_is_stable_up_to_the_bound_of_one_step);
    suite_add_tcase(s, t);
    return s;
}
