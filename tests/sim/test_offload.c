/* An optimizer's state in host memory (`offload: optimizer`, core/cluster/cluster.h): memory, the update's price by hand, the stage table, the
 * program file. tests/cli/offload.sh trains. */
#include "core/base/units.h"
#include "core/graph/gradient.h"
#include "profiles/catalogue.h"
#include "profiles/op_prior.h"
#include "sim/cost.h"
#include "sim/engine/sim.h"
#include "sim/stage/stage.h"
#include "tests/support/plans.h"

#include <math.h>

static struct arena *arena;
static struct error err;
static void setup(void) { arena = arena_new(), err = (struct error){0}; }
static void teardown(void) { arena_free(arena); }

static const char *const GPU = "A100-SXM4-40";

/* Two replicas of two stages, on hosts or GPUs. */
static struct plan replicas(enum dtype precision, enum optimizer_kind optimizer, int32_t zero, bool offloads, bool gpu)
{
    struct plan p = plans_new(arena, "gpt2", 2, 4);
    int32_t end = plans_layers(arena, &p) - 1, last[2] = {end / 2, end};
    p.job.precision = precision, p.job.optimizer.kind = optimizer;
    if (optimizer == OPTIMIZER_SGD) p.job.optimizer.beta1 = 0; /* no momentum, no state */
    for (int r = 0; r < 2; r++) {
        struct plan_replica *x = plans_replica(arena, &p, 2, 2, last);
        for (int s = 0; s < 2; s++) x->stages[s].zero = zero;
    }
    p.cluster.types[0].offloads = offloads;
    if (gpu) p.cluster.types[0].catalogue = GPU;
    return p;
}

static const enum dtype precisions[] = {DTYPE_fp64, DTYPE_fp32, DTYPE_bf16};
enum { FORMS = 3 * 2 * 4 };

START_TEST(the_state_leaves_the_device_and_nothing_else_changes)
{
    enum dtype t = precisions[_i % 3];
    enum optimizer_kind kind = _i / 3 % 2 ? OPTIMIZER_SGD : OPTIMIZER_ADAMW;
    int32_t zero = _i / 6;
    struct plan with = replicas(t, kind, zero, true, false), without = replicas(t, kind, zero, false, false);
    const struct program *x = plans_lower(arena, &with, true), *y = plans_lower(arena, &without, true);
    int64_t tensors = optimizer_state_tensors(&with.job.optimizer) + dtype_is_half(t);
    plans_read_back(arena, x);
    for (int32_t s = 0; s < x->n_stages; s++) {
        const struct program_stage *a = &x->stages[s], *b = &y->stages[s];
        ck_assert_int_eq(program_host_bytes(b), 0);
        ck_assert_int_eq(program_host_bytes(a), b->class_bytes[SLOT_STATE]);
        ck_assert_int_eq(program_stage_bytes(a) + program_host_bytes(a), program_stage_bytes(b));
        ck_assert(tensors > 0 || !program_host_bytes(a));
        ck_assert_int_eq(a->n_ops, b->n_ops);
        for (int32_t i = 0; i < a->n_ops; i++) {
            bool update = a->ops[i].kind == OP_flat_adamw || a->ops[i].kind == OP_flat_sgd;
            ck_assert(a->ops[i].attrs.hosted == (update && tensors > 0));
            ck_assert((a->ops[i].key == b->ops[i].key) == !a->ops[i].attrs.hosted);
        }
    }
}
END_TEST

static int64_t priced(const struct plan *p, const struct program_op *op)
{
    struct profile f;
    int64_t ns;
    ck_assert_msg(profile_prior(arena, &p->cluster, &f, &err) == OK, "%s", err.text);
    ck_assert_msg(cost_op(cost_new(arena, &f, &p->cluster), 0, op, &ns, &err) == OK, "%s", err.text);
    return ns;
}

static const struct program_op *update_of(const struct program_stage *s)
{
    for (int32_t i = 0; i < s->n_ops; i++)
        if (s->ops[i].kind == OP_flat_adamw) return &s->ops[i];
    ck_abort_msg("no update");
}

/* A parameter of bf16 has 12 bytes of state, which go both ways at once; one of fp32 has 8. */
START_TEST(an_update_takes_as_long_as_its_state_on_pcie)
{
    const struct catalogue_device *d;
    ck_assert_msg(catalogue_find(GPU, &d, &err) == OK, "%s", err.text);
    struct op_prior prior = op_prior_default(GPU);
    for (int half = 0; half < 2; half++) {
        struct plan with = replicas(half ? DTYPE_bf16 : DTYPE_fp32, OPTIMIZER_ADAMW, 0, true, true),
                    host = replicas(half ? DTYPE_bf16 : DTYPE_fp32, OPTIMIZER_ADAMW, 0, true, false);
        struct program_op op = *update_of(&plans_lower(arena, &with, true)->stages[0]), own;
        for (int32_t k = 0; k < op.shapes.n_inputs; k++) op.shapes.input[k] = (struct shape){1, {100000000}};
        for (int32_t k = 0; k < op.shapes.n_outputs; k++) op.shapes.output[k] = (struct shape){1, {100000000}};
        op.key = op_key(op.kind, &op.attrs, &op.shapes, op.dtype);
        own = op, own.attrs.hosted = false, own.key = op_key(op.kind, &own.attrs, &op.shapes, op.dtype);
        double seconds = 100000000 * (half ? 12.0 : 8.0) / (d->pcie_Bps.value * prior.wire_efficiency);
        ck_assert_int_eq(priced(&with, &op), units_ns_from_s(seconds));
        ck_assert_int_gt(priced(&with, &op), 5 * priced(&with, &own));
        ck_assert_int_eq(priced(&host, &op), priced(&host, &own)); /* a host's memory is its own */
    }
}
END_TEST

START_TEST(the_stage_table_has_the_programs_memory_and_update)
{
    for (int half = 0; half < 2; half++) {
        struct plan p = replicas(half ? DTYPE_bf16 : DTYPE_fp32, OPTIMIZER_ADAMW, 0, true, true);
        const struct program *x = plans_lower(arena, &p, true);
        struct graph *g;
        struct profile f;
        struct stage_cost c;
        ck_assert_msg(profile_prior(arena, &p.cluster, &f, &err) == OK, "%s", err.text);
        struct cost *k = cost_new(arena, &f, &p.cluster);
        ck_assert_msg(lower_graph(arena, &p.job, p.microbatch, &g, &err) == OK, "%s", err.text);
        g = graph_fuse(g, plans_fused, 4);
        ck_assert_msg(gradient_build(g, 1, &err) == OK, "%s", err.text);
        struct stage_table *t = stage_table_new(arena, g, k, &p.job.optimizer);
        stage_table_fused(t, plans_fused, 4);
        const struct plan_stage *s = &p.replicas[0].stages[0];
        ck_assert_msg(stage_table_cost(t, s->first_layer, s->last_layer, 0, &c, &err) == OK, "%s", err.text);
        ck_assert_int_eq(c.state_bytes, 0);
        int64_t update = 0, one;
        for (int32_t i = 0; i < x->stages[0].n_ops; i++) {
            if (x->stages[0].ops[i].kind != OP_flat_adamw) continue;
            ck_assert_msg(cost_op(k, 0, &x->stages[0].ops[i], &one, &err) == OK, "%s", err.text);
            update += one;
        }
        ck_assert_int_eq(c.update_ns, update);
    }
}
END_TEST

Suite *offload_suite(void)
{
    Suite *s = suite_create("offload");
    TCase *c = tcase_create("offload");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, the_state_leaves_the_device_and_nothing_else_changes, 0, FORMS);
    tcase_add_test(c, an_update_takes_as_long_as_its_state_on_pcie);
    tcase_add_test(c, the_stage_table_has_the_programs_memory_and_update);
    suite_add_tcase(s, c);
    return s;
}
