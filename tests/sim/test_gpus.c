/* One plan, devices of different tensor-parallel degrees that shard every operator: each stage computes its own type's share. */
#include "core/lower/lower.h"
#include "exec/worker/worker.h"
#include "sim/engine/sim.h"
#include "sim/stage/stage.h"

#include "tests/support/plans.h"

static struct arena *arena;
static struct error err;
static void setup(void)
{
    arena = arena_new();
    err = (struct error){0};
}
static void teardown(void) { arena_free(arena); }

enum { BLOCKS = 2, TP_MAX = 2 };
/* Types of the team: one GPU, two, two that share positions too. */
enum { ONE, TWO, TWO_POSITIONS, N_TYPES };

static struct plan team(const char *model, int32_t n_devices, const int32_t *type)
{
    struct plan p = plans_new(arena, model, BLOCKS, n_devices);
    p.job.model.kv_heads = p.job.model.heads;
    struct device_type *t = ARENA_ARRAY(arena, struct device_type, N_TYPES),
                       one = p.cluster.types[0];
    static const char *const names[] = {"one", "two", "twos"};
    one.catalogue = "A100-SXM4-40";
    for (int32_t i = 0; i < N_TYPES; i++) {
        t[i] = one;
        t[i].name = names[i], t[i].tensor_parallel = i ? TP_MAX : 1;
        t[i].sequence_parallel = i == TWO_POSITIONS;
    }
    p.cluster.types = t, p.cluster.n_types = N_TYPES;
    for (int32_t i = 0; i < n_devices; i++) p.cluster.devices[i].type = type[i];
    return p;
}

/* A pipeline of two stages on devices 0 and 1 of these types. */
static struct plan pipeline(const char *model, int32_t first, int32_t second)
{
    struct plan p = team(model, 2, (const int32_t[]){first, second});
    int32_t n = plans_layers(arena, &p);
    plans_replica(arena, &p, 3, 2, (const int32_t[]){2, n - 1});
    return p;
}

static struct program *lowered(const struct plan *p)
{
    struct program *x = plans_lower(arena, p, true);
    ck_assert_msg(program_check(arena, x, &err) == OK, "%s", err.text);
    return x;
}

START_TEST(any_tensor_parallel_degree_finds_the_same_layers)
{
    static const char *const models[] = {TINY_GPT2, TINY_LLAMA};
    for (int32_t m = 0; m < 2; m++)
        for (int32_t tied = 0; tied < 2; tied++) {
            struct plan p = team(models[m], 1, (const int32_t[]){ONE});
            struct lower_options o = {0};
            struct lower_graphs s;
            p.job.model.tied = tied;
            p.job.global_batch = 2;
            ck_assert_msg(lower_graphs_make(arena, &p.job, &p.cluster, 2, &o, &s, &err) == OK, "%s",
                          err.text);
            ck_assert_int_eq(s.n, N_TYPES);
            const struct graph *one = s.graphs[0];
            for (int32_t i = 1; i < s.n; i++) {
                ck_assert_int_eq(s.graphs[i]->n_layers, one->n_layers);
                ck_assert(s.graphs[i]->tp == TP_MAX);
                for (int32_t k = 0; k + 1 < one->n_layers; k++)
                    ck_assert_int_eq(s.graphs[i]->cut[k].n, one->cut[k].n);
            }
            /* After the embeddings, each half of a block, the last norm and the product with the vocabulary. */
            ck_assert_int_eq(one->n_layers, 1 + 2 * BLOCKS + 3);
        }
}
END_TEST

static void same_operators(const struct program_stage *x, const struct program_stage *y)
{
    ck_assert_int_eq(x->n_ops, y->n_ops);
    for (int32_t i = 0; i < x->n_ops; i++) {
        ck_assert_str_eq(x->ops[i].name, y->ops[i].name);
        ck_assert_uint_eq(x->ops[i].key, y->ops[i].key);
    }
    for (int32_t i = 0; i < SLOT_CLASS_COUNT; i++)
        ck_assert_int_eq(x->class_bytes[i], y->class_bytes[i]);
}

/* A stage of a mixed plan is that of a plan whose devices are all of its type. */
START_TEST(each_stage_computes_by_its_own_tensor_parallel_degree)
{
    static const char *const models[] = {TINY_GPT2, TINY_LLAMA};
    for (int32_t m = 0; m < 2; m++)
        for (int32_t a = 0; a < TWO_POSITIONS; a++)
            for (int32_t b = 0; b < TWO_POSITIONS; b++) {
                struct plan mixed = pipeline(models[m], a, b), as = pipeline(models[m], a, a),
                            bs = pipeline(models[m], b, b);
                struct program *x = lowered(&mixed);
                same_operators(&x->stages[0], &lowered(&as)->stages[0]);
                same_operators(&x->stages[1], &lowered(&bs)->stages[1]);
                /* what crosses is replicated on every GPU; of a tied table shares differ */
                ck_assert_int_eq(x->uneven, a != b && mixed.job.model.tied);
                for (int32_t i = 0; i < x->n_channels; i++)
                    ck_assert_int_eq(x->channels[i].bytes, 2 * 8 * 32 * 4);
            }
}
END_TEST

/* 2 sequences, 8 positions, 32 features: two that share positions say half of it to one another, all of it to others. */
START_TEST(a_message_is_what_the_larger_end_holds)
{
    static const int32_t degrees[][2] = {
        {TWO_POSITIONS, TWO_POSITIONS}, {TWO_POSITIONS, ONE}, {TWO, TWO_POSITIONS}};
    for (int32_t k = 0; k < 3; k++) {
        struct plan p = pipeline(TINY_LLAMA, degrees[k][0], degrees[k][1]);
        struct program *x = lowered(&p);
        ck_assert_int_eq(x->n_channels, 2);
        for (int32_t i = 0; i < 2; i++)
            ck_assert_int_eq(x->channels[i].bytes, 2 * 8 * 32 * 4 / (k ? 1 : 2));
        ck_assert_int_eq(x->uneven, k > 0);
        if (!k) continue;
        struct run_result r;
        struct run_options o = {.steps = 1};
        x->n_devices = 1, x->devices[0].kind = "host"; /* no message library is asked */
        ck_assert_int_eq(worker_run(arena, x, &o, &r, &err), ERR_INPUT);
        ck_assert_msg(strstr(err.text, "simulated, not run"), "%s", err.text);
    }
}
END_TEST

/* Two replicas of one stage, on two GPUs and on one: each sum is as large as what the one GPU holds. */
START_TEST(reduces_take_as_long_as_the_largest_share)
{
    int64_t elements[3], share[3] = {0};
    static const int32_t types[][2] = {{TWO, ONE}, {ONE, ONE}, {TWO, TWO}};
    for (int32_t k = 0; k < 3; k++) {
        struct plan p = team(TINY_LLAMA, 2, types[k]);
        int32_t last = plans_layers(arena, &p) - 1;
        plans_replica(arena, &p, 2, 1, &last), plans_replica(arena, &p, 2, 1, &last);
        struct program *x = lowered(&p);
        ck_assert(x->n_collectives == 1 && x->collectives[0].n_members == 2);
        elements[k] = x->collectives[0].elements;
        ck_assert_int_eq(x->uneven, k == 0);
        for (int32_t i = 0; i < 2; i++) {
            const struct collective_member *m = &x->collectives[0].members[i];
            const struct program_stage *s = &x->stages[m->stage];
            int64_t own = 0;
            for (int32_t j = 0; j < m->n_segments; j++)
                own += shape_elements(&s->slots[m->segments[j]].shape);
            if (types[k][i] == ONE) ck_assert_int_eq(own, model_parameters(&p.job.model));
            if (types[k][i] == TWO) share[k] = own;
        }
    }
    ck_assert_int_eq(elements[0], elements[1]);
    ck_assert(elements[2] == share[2] && share[0] == share[2] && share[0] < elements[0]);
}
END_TEST

static struct cost *price(const struct plan *p)
{
    struct profile *profile = ARENA_ARRAY(arena, struct profile, 1);
    ck_assert_msg(profile_prior(arena, &p->cluster, profile, &err) == OK, "%s", err.text);
    return cost_new(arena, profile, &p->cluster);
}

static int64_t priced(struct cost *k, int32_t type, const struct program_stage *s, enum phase phase)
{
    const struct procedure *f = &s->procedures[program_procedure(s, phase, "")];
    int64_t sum = 0, ns;
    for (int32_t i = 0; i < f->n_instrs; i++) {
        if (f->instrs[i].kind != INSTR_COMPUTE) continue;
        ck_assert_int_eq(cost_op(k, type, &s->ops[f->instrs[i].arg], &ns, &err), OK);
        sum += ns;
    }
    return sum;
}

/* What the planner is told of a type is what lowering makes of it. */
START_TEST(one_table_knows_the_stages_of_every_type)
{
    struct plan p = pipeline(TINY_GPT2, TWO, ONE);
    struct lower_options o = {.n_fused = 4, .fused = plans_fused};
    struct lower_graphs s;
    struct cost *k = price(&p);
    struct program *x = lowered(&p);
    ck_assert_int_eq(lower_graphs_make(arena, &p.job, &p.cluster, 2, &o, &s, &err), OK);
    struct stage_table *alone = stage_table_new(arena, s.graphs[0], k, &p.job.optimizer),
                       *all = stage_table_new(arena, s.graphs[0], k, &p.job.optimizer);
    struct stage_cost c;
    stage_table_graphs(all, &s);
    stage_table_fused(all, plans_fused, 4);
    for (int32_t i = 0; i < 2; i++) {
        const struct program_stage *y = &x->stages[i];
        int32_t type = i ? ONE : TWO;
        ck_assert_msg(stage_table_cost(all, y->first_layer, y->last_layer, type, &c, &err) == OK,
                      "%s", err.text);
        ck_assert_int_eq(c.forward_ns, priced(k, type, y, 'F'));
        ck_assert_int_eq(c.input_ns + c.weight_ns, priced(k, type, y, 'B'));
        ck_assert_int_eq(c.update_ns, priced(k, type, y, 'U'));
        ck_assert_int_eq(c.parameter_bytes, y->class_bytes[SLOT_PARAMETER]);
        ck_assert_int_eq(c.state_bytes, y->class_bytes[SLOT_STATE]);
    }
    ck_assert_int_eq(stage_table_cost(alone, 0, 1, TWO, &c, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "device type two: no graph for 2 GPUs"), "%s", err.text);
}
END_TEST

/* What was learnt of a type holds for its GPUs together. */
START_TEST(gpus_are_priced_as_what_they_are)
{
    struct plan p = pipeline(TINY_GPT2, ONE, TWO);
    struct profile prior;
    struct factor_row twice = {.type = "one", .kind = -1, .factor = 2};
    struct program *x = lowered(&p);
    ck_assert_int_eq(profile_prior(arena, &p.cluster, &prior, &err), OK);
    struct profile learnt = prior;
    learnt.factors = &twice, learnt.n_factors = 1;
    int64_t before = priced(cost_new(arena, &prior, &p.cluster), TWO, &x->stages[1], 'F');
    int64_t n = x->stages[1].n_ops;
    ck_assert_int_eq(priced(cost_new(arena, &learnt, &p.cluster), TWO, &x->stages[1], 'F'), before);
    p.cluster.types[TWO].gpu_type = "one";
    int64_t after = priced(cost_new(arena, &learnt, &p.cluster), TWO, &x->stages[1], 'F');
    ck_assert_int_le(llabs(after - 2 * before), n); /* each is rounded once */
}
END_TEST

static int64_t iteration(const struct plan *p, const struct program *x)
{
    struct sim_result r;
    struct sim_options o = {.steps = 0};
    ck_assert_msg(sim_run(arena, x, price(p), &o, &r, &err) == OK, "%s", err.text);
    return r.iteration_ns;
}

START_TEST(graphs_made_once_give_the_same_program)
{
    struct plan p = pipeline(TINY_GPT2, TWO_POSITIONS, ONE);
    struct lower_options o = {.n_fused = 4, .fused = plans_fused};
    struct lower_graphs s;
    struct program x;
    ck_assert_int_eq(lower_graphs_make(arena, &p.job, &p.cluster, 2, &o, &s, &err), OK);
    struct lower_graphs before = s;
    ck_assert_int_eq(lower_plan_graphs(arena, &p, &s, &o, &x, &err), OK);
    ck_assert(s.n == before.n && s.graphs == before.graphs);
    struct program *y = lowered(&p);
    for (int32_t i = 0; i < 2; i++) same_operators(&x.stages[i], &y->stages[i]);
    ck_assert_int_eq(iteration(&p, &x), iteration(&p, y));
    ck_assert_int_gt(iteration(&p, y), 0);
}
END_TEST

/* Stages on several devices of several ways: two GPUs with a sequence, one GPU with another, two that share positions
 * behind them. Each device computes what its own GPUs share of its own sequences. */
START_TEST(devices_that_share_a_stage_may_be_any)
{
    struct plan p = team(TINY_GPT2, 4, (const int32_t[]){TWO, ONE, TWO_POSITIONS, TWO});
    int32_t n = plans_layers(arena, &p), first[] = {0, 1}, second[] = {2, 3};
    int64_t halves[] = {1, 1};
    struct plan_stage *s = plans_replica(arena, &p, 3, 2, (const int32_t[]){2, n - 1})->stages;
    s[0].n_shards = s[1].n_shards = 2, s[0].sequences = s[1].sequences = halves;
    s[0].devices = first, s[1].devices = second, s[1].device = 2;
    struct program *x = lowered(&p);
    ck_assert(x->n_stages == 4 && x->uneven);
    /* One sequence of 8 positions, 32 features; nobody is cut up, since the halves are the same. */
    ck_assert_int_eq(x->n_channels, 4);
    for (int32_t i = 0; i < 4; i++) ck_assert_int_eq(x->channels[i].bytes, 8 * 32 * 4);
    struct lower_options o = {.n_fused = 4, .fused = plans_fused};
    struct lower_graphs graphs = {0};
    struct cost *k = price(&p);
    for (int32_t i = 0; i < 4; i++) {
        const struct graph *g;
        struct stage_cost c;
        int32_t type = p.cluster.devices[i].type;
        struct device_type *t = &p.cluster.types[type];
        ck_assert_int_eq(lower_graphs_need(arena, &graphs, &p.job, &o, t->tensor_parallel,
                                           t->sequence_parallel, 1, &g, &err),
                         OK);
        struct stage_table *table = stage_table_new(arena, g, k, &p.job.optimizer);
        stage_table_fused(table, plans_fused, 4);
        ck_assert_int_eq(stage_table_cost(table, x->stages[i].first_layer, x->stages[i].last_layer,
                                          type, &c, &err),
                         OK);
        ck_assert_int_eq(c.forward_ns, priced(k, type, &x->stages[i], 'F'));
        ck_assert_int_eq(c.input_ns + c.weight_ns, priced(k, type, &x->stages[i], 'B'));
    }
    ck_assert_int_eq(graphs.n, 3);
    ck_assert_int_gt(iteration(&p, x), 0);
}
END_TEST

START_TEST(tensor_parallel_degrees_that_do_not_divide_the_model_are_named)
{
    struct plan p = pipeline(TINY_GPT2, ONE, TWO);
    struct lower_options o = {0};
    struct lower_graphs s;
    struct program x;
    p.cluster.types[TWO].tensor_parallel = 4;
    ck_assert_int_eq(lower_plan(arena, &p, &o, &x, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "replicas[0].stages[1]: ") &&
                      strstr(err.text, "tensor_parallel 4 does not divide its 2 heads"),
                  "%s", err.text);
    ck_assert_int_eq(lower_graphs_make(arena, &p.job, &p.cluster, 2, &o, &s, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "two"), "%s", err.text);
}
END_TEST

Suite *gpus_suite(void)
{
    const TTest *tests[] = {any_tensor_parallel_degree_finds_the_same_layers,
                            each_stage_computes_by_its_own_tensor_parallel_degree,
                            a_message_is_what_the_larger_end_holds,
                            reduces_take_as_long_as_the_largest_share,
                            one_table_knows_the_stages_of_every_type,
                            graphs_made_once_give_the_same_program,
                            devices_that_share_a_stage_may_be_any,
                            gpus_are_priced_as_what_they_are,
                            tensor_parallel_degrees_that_do_not_divide_the_model_are_named};
    Suite *suite = suite_create("gpus");
    TCase *t = tcase_create("gpus");
    tcase_add_checked_fixture(t, setup, teardown);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(t, tests[i]);
    suite_add_tcase(suite, t);
    return suite;
}
