/* One GPU's shard of a model, recomputation in the backward, half precision, and kernel launch time. */
#include "core/lower/lower.h"
#include "core/program/program.h"
#include "sim/engine/sim.h"

#include "tests/support/plans.h"
#include "tests/support/tensor_rules.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

enum { LAYERS = 3 };

static const char written[] =
    "version: 1\nname: x\nmicrobatch: 2\nreplicas:\n"
    "  - {microbatches: 4, stages: [{layers: [0, 3], device: a.0, recompute: selective}, "
    "{layers: [4, 9], device: b.0, recompute: blocks, recompute_blocks: 2}]}\n"
    "  - {microbatches: 4, stages: [{layers: [0, 9], device: c.0, recompute: %s}]}\n"
    "job: {version: 1, sequence_length: 8, global_batch: 16, model: {model_type: gpt2, n_embd: 32,"
    " n_layer: 3, n_head: 2, n_positions: 64, vocab_size: 64, attn_implementation: eager}}\n"
    "cluster: {version: 1, name: c, device_types: [{name: t, device: A100-SXM4-80}], nodes: [{name: a, host: h, devices: [{type: t}]}, {name: b, "
    "host: i, devices: [{type: t}]}, {name: c, host: j, devices: [{type: t}]}], links: [{name: l, "
    "between: [a, b], bandwidth: 1 GB/s, latency: 1 us}, {name: m, between: [a, c], bandwidth: 1 GB/s, latency: 1 us}, {name: n, "
    "between: [b, c], bandwidth: 1 GB/s, latency: 1 us}]}\n";

static enum status read_written(const char *recompute, struct plan *p, struct error *err)
{
    char text[2000];
    struct node *root;
    int n = snprintf(text, sizeof text, written, recompute);
    ck_assert_int_eq(document_parse(arena, "plan", text, (size_t)n, &root, err), OK);
    return plan_parse(arena, root, ".", p, err);
}

START_TEST(files_say_what_runs_again)
{
    struct plan p, again;
    struct node *root;
    struct error err = {0};
    char *text = NULL;
    size_t n = 0;
    ck_assert_msg(read_written("true", &p, &err) == OK, "%s", err.text);
    ck_assert_int_eq(p.replicas[0].stages[0].recompute, RECOMPUTE_SELECTIVE);
    ck_assert_int_eq(p.replicas[0].stages[1].recompute, RECOMPUTE_BLOCKS);
    ck_assert_int_eq(p.replicas[1].stages[0].recompute, RECOMPUTE_STAGE);
    ck_assert(p.job.model.eager);
    FILE *f = open_memstream(&text, &n);
    plan_write(f, arena, &p);
    fclose(f);
    ck_assert_int_eq(document_parse(arena, "again", text, n, &root, &err), OK);
    ck_assert_msg(plan_parse(arena, root, ".", &again, &err) == OK, "%s\n%s", err.text, text);
    free(text);
    ck_assert_uint_eq(plan_hash(arena, &again), plan_hash(arena, &p));
    ck_assert_int_eq(again.replicas[0].stages[1].recompute, RECOMPUTE_BLOCKS);
    ck_assert_int_eq(again.replicas[0].stages[1].recompute_blocks, 2);
    ck_assert_ptr_nonnull(strstr(plan_describe(arena, &again), "recompute of 2 blocks"));
    ck_assert(again.job.model.eager);
    ck_assert_int_eq(read_written("some", &p, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "must be one of false, true, blocks, selective"), "%s",
                  err.text);
    ck_assert_int_eq(read_written("true, recompute_blocks: 1", &p, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "`recompute_blocks` needs `recompute: blocks`"), "%s", err.text);
}
END_TEST

START_TEST(more_blocks_than_the_stage_has_are_refused)
{
    struct plan p;
    struct program out;
    struct error err = {0};
    ck_assert_msg(read_written("blocks, recompute_blocks: 1000", &p, &err) == OK, "%s", err.text);
    for (int32_t i = 0; i < p.cluster.n_types; i++) p.cluster.types[i].memory_bytes = INT64_C(1) << 40;
    ck_assert_int_eq(lower_plan(arena, &p, &(struct lower_options){0}, &out, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "plan:6:32: replicas[1].stages[0]: recompute_blocks: 1000, but its "
                                   "layers have 3 blocks; without the key all are recomputed"),
                  "%s", err.text);
    p.replicas[1].stages[0].recompute_blocks = 3;
    ck_assert_msg(lower_plan(arena, &p, &(struct lower_options){0}, &out, &err) == OK, "%s", err.text);
}
END_TEST

/* --- what runs again --- */

/* blocks: of RECOMPUTE_BLOCKS; 0: all. */
static struct program *recomputing_some(enum recompute r, int32_t blocks, bool eager)
{
    struct plan p = plans_new(arena, TINY_GPT2, LAYERS, 1);
    p.job.model.eager = eager;
    int32_t last = plans_layers(arena, &p) - 1;
    struct plan_stage *x = plans_replica(arena, &p, 3, 1, &last)->stages;
    x->recompute = r, x->recompute_blocks = blocks;
    return plans_lower(arena, &p, false);
}

static struct program *recomputing(enum recompute r, bool eager) { return recomputing_some(r, 0, eager); }

static int32_t again(const struct program *p, enum phase phase, enum op_kind kind)
{
    const struct program_stage *s = &p->stages[0];
    const struct procedure *f = &s->procedures[program_procedure(s, phase, "")];
    int32_t n = 0;
    for (int32_t i = 0; i < f->n_instrs; i++) {
        const struct program_op *op = &s->ops[f->instrs[i].arg];
        if (f->instrs[i].kind != INSTR_COMPUTE || !strstr(op->name, ".again")) continue;
        n += kind == OP_KIND_COUNT || op->kind == kind;
    }
    return n;
}

START_TEST(selective_recomputation_keeps_all_but_the_scores)
{
    struct program *none = recomputing(RECOMPUTE_NONE, true),
                   *selective = recomputing(RECOMPUTE_SELECTIVE, true);
    ck_assert_int_eq(again(none, 'B', OP_KIND_COUNT), 0);
    ck_assert_int_eq(again(selective, 'B', OP_attention), LAYERS);
    ck_assert_int_eq(again(selective, 'B', OP_KIND_COUNT), LAYERS);
    /* 2 sequences, 2 heads, 8 x 8 scores of 4 bytes, a block */
    int64_t kept = none->stages[0].class_bytes[SLOT_BUFFER_RING],
            now = selective->stages[0].class_bytes[SLOT_BUFFER_RING];
    int64_t buffers = none->stages[0].buffer_rings[0].count;
    ck_assert_int_eq(kept - now, buffers * LAYERS * 2 * 2 * 8 * 8 * 4);
}
END_TEST

START_TEST(blocks_run_again_each_before_its_own_gradients)
{
    struct program *p = recomputing(RECOMPUTE_BLOCKS, false);
    const struct program_stage *s = &p->stages[0];
    const struct procedure *f = &s->procedures[program_procedure(s, PHASE_B, "")];
    int32_t block = LAYERS, blocks = 0;
    for (int32_t i = 0; i < f->n_instrs; i++) {
        const struct program_op *op = &s->ops[f->instrs[i].arg];
        if (f->instrs[i].kind != INSTR_COMPUTE || strncmp(op->name, "h.", 2) != 0) continue;
        if (strstr(op->name, ".grad_sum")) continue; /* of a block's output: the next one's work */
        int32_t mine = op->name[2] - '0';
        ck_assert_int_le(mine, block);
        if (mine == block) continue;
        ck_assert_msg(strstr(op->name, ".again"), "%s comes first", op->name);
        block = mine, blocks++;
    }
    ck_assert_int_eq(blocks, LAYERS);
    ck_assert_int_eq(again(p, 'B', OP_matmul),
                     3 * LAYERS); /* mlp's last product is read by nobody */
}
END_TEST

START_TEST(only_the_first_blocks_run_again)
{
    const struct program *none = recomputing(RECOMPUTE_NONE, false), *all = recomputing(RECOMPUTE_BLOCKS, false);
    int64_t before = none->stages[0].class_bytes[SLOT_BUFFER_RING];
    for (int32_t blocks = 1; blocks <= LAYERS; blocks++) {
        struct program *p = recomputing_some(RECOMPUTE_BLOCKS, blocks, false);
        const struct program_stage *s = &p->stages[0];
        for (int32_t i = 0; i < s->n_ops; i++)
            if (strstr(s->ops[i].name, ".again") && !strncmp(s->ops[i].name, "h.", 2))
                ck_assert_msg(s->ops[i].name[2] < '0' + blocks, "%s", s->ops[i].name);
        ck_assert_int_eq(again(p, 'B', OP_matmul), 3 * blocks);
        ck_assert_int_lt(s->class_bytes[SLOT_BUFFER_RING], before);
        before = s->class_bytes[SLOT_BUFFER_RING];
    }
    ck_assert_int_eq(before, all->stages[0].class_bytes[SLOT_BUFFER_RING]);
}
END_TEST

START_TEST(less_is_kept_the_more_runs_again)
{
    const struct program_stage *none = recomputing(RECOMPUTE_NONE, true)->stages,
                               *selective = recomputing(RECOMPUTE_SELECTIVE, true)->stages,
                               *blocks = recomputing(RECOMPUTE_BLOCKS, true)->stages,
                               *stage = recomputing(RECOMPUTE_STAGE, true)->stages;
    ck_assert_int_lt(selective->class_bytes[SLOT_BUFFER_RING], none->class_bytes[SLOT_BUFFER_RING]);
    ck_assert_int_lt(blocks->class_bytes[SLOT_BUFFER_RING],
                     selective->class_bytes[SLOT_BUFFER_RING]);
    ck_assert_int_lt(stage->class_bytes[SLOT_BUFFER_RING], blocks->class_bytes[SLOT_BUFFER_RING]);
    /* A full stage under recompute is live at once. */
    ck_assert_int_lt(blocks->class_bytes[SLOT_SCRATCH], stage->class_bytes[SLOT_SCRATCH]);
}
END_TEST

/* --- half precision --- */

START_TEST(half_precision_keeps_eighteen_bytes_a_parameter)
{
    struct plan p = plans_new(arena, TINY_GPT2, LAYERS, 2);
    struct error err = {0};
    p.job.precision = DTYPE_bf16;
    int32_t n = plans_layers(arena, &p);
    plans_replica(arena, &p, 2, 1, (const int32_t[]){n - 1});
    plans_replica(arena, &p, 2, 1, (const int32_t[]){n - 1});
    struct program *x = plans_lower(arena, &p, true);
    const struct program_stage *s = x->stages;
    int64_t bytes = s->class_bytes[SLOT_PARAMETER];
    /* one tied use more has a gradient of its own: 64 words of 32 */
    ck_assert_int_eq(s->class_bytes[SLOT_GRADIENT], 2 * bytes + 64 * 32 * 4);
    ck_assert_int_eq(s->class_bytes[SLOT_STATE], 6 * bytes);
    ck_assert_int_eq(x->collectives[0].dtype, DTYPE_bf16); /* on the wire */
    char *text = NULL;
    size_t length = 0;
    struct program back;
    FILE *f = open_memstream(&text, &length);
    program_write(f, x);
    fclose(f);
    ck_assert_msg(program_parse(arena, "text", text, length, &back, &err) == OK, "%s", err.text);
    free(text);
}
END_TEST

/* --- the host --- */

static int64_t iteration(const struct plan *p, struct op_prior *prior, bool trace)
{
    struct program *x = plans_lower(arena, p, false);
    struct profile profile;
    struct sim_result r;
    struct error err = {0};
    ck_assert_int_eq(profile_prior(arena, &p->cluster, &profile, &err), OK);
    profile.n_priors = 1, profile.priors = prior;
    ck_assert_msg(sim_run(arena, x, cost_new(arena, &profile, &p->cluster),
                          &(struct sim_options){.steps = 3, .keep_trace = trace}, &r, &err) == OK,
                  "%s", err.text);
    return r.iteration_ns;
}

START_TEST(a_slow_host_sets_the_pace_and_a_fast_one_none)
{
    struct plan p = plans_new(arena, TINY_GPT2, LAYERS, 1);
    struct op_prior prior = op_prior_default("host");
    int32_t last = plans_layers(arena, &p) - 1, calls = 0;
    plans_replica(arena, &p, 2, 1, &last);
    int64_t gpu = iteration(&p, &prior, false);
    prior.issue_s = 1e-9;
    ck_assert_int_eq(iteration(&p, &prior, false), gpu);
    prior.issue_s = 1;
    struct program *x = plans_lower(arena, &p, false);
    for (int32_t i = 0; i < x->stages[0].n_procedures; i++) {
        const struct procedure *f = &x->stages[0].procedures[i];
        int32_t times = f->phase == PHASE_U ? 1 : 2;
        for (int32_t k = 0; k < f->n_instrs; k++)
            calls += times * (f->instrs[k].kind == INSTR_COMPUTE);
    }
    int64_t host = iteration(&p, &prior, false);
    ck_assert_int_le(llabs(host - calls * INT64_C(1000000000)),
                     100); /* roundings of scaled times */
    ck_assert_int_eq(iteration(&p, &prior, true), host);
}
END_TEST

/* Collectives of a call do not stop the host: a launch bound call takes its launches, with or without the time of its collectives. */
START_TEST(a_slow_host_launches_on_during_the_collectives_of_a_call)
{
    struct plan p = plans_new(arena, TINY_GPT2, LAYERS, 2);
    struct op_prior prior = op_prior_default("host");
    int32_t last = plans_layers(arena, &p) - 1, calls = 0, collectives = 0;
    struct plan_stage *s = plans_replica(arena, &p, 2, 1, &last)->stages;
    s->n_shards = 2, s->devices = (int32_t[]){0, 1};
    s->sharding = tensor_rules(arena, 2, false);
    p.cluster.links[0].latency_s = 1e-3;
    struct program *x = plans_lower(arena, &p, false);
    for (int32_t i = 0; i < x->stages[0].n_procedures; i++) {
        const struct procedure *f = &x->stages[0].procedures[i];
        int32_t times = f->phase == PHASE_U ? 1 : 2;
        for (int32_t k = 0; k < f->n_instrs; k++) {
            bool collective = f->instrs[k].kind == INSTR_COLLECTIVE;
            calls += times * (collective || f->instrs[k].kind == INSTR_COMPUTE);
            collectives += collective;
        }
    }
    ck_assert_int_ge(collectives, 4 * LAYERS);
    int64_t gpu = iteration(&p, &prior, false);
    prior.issue_s = 1e-9;
    ck_assert_int_eq(iteration(&p, &prior, false), gpu);
    prior.issue_s = 1;
    int64_t host = iteration(&p, &prior, false);
    ck_assert_int_le(llabs(host - calls * INT64_C(1000000000)), 1000); /* roundings */
    ck_assert_int_eq(iteration(&p, &prior, true), host);
    struct profile profile;
    struct sim_result r;
    ck_assert_int_eq(profile_prior(arena, &p.cluster, &profile, NULL), OK);
    profile.n_priors = 1, profile.priors = &prior;
    ck_assert_int_eq(sim_run(arena, x, cost_new(arena, &profile, &p.cluster),
                             &(struct sim_options){.steps = 3, .fold = true, .detail = SIM_STAGE},
                             &r, NULL),
                     OK);
    ck_assert_int_le(llabs(r.iteration_ns - host), 1000);
}
END_TEST

static Suite *suite(void)
{
    static const TTest *const *tests[] = {
        &files_say_what_runs_again,
        &more_blocks_than_the_stage_has_are_refused,
        &selective_recomputation_keeps_all_but_the_scores,
        &blocks_run_again_each_before_its_own_gradients,
        &only_the_first_blocks_run_again,
        &less_is_kept_the_more_runs_again,
        &half_precision_keeps_eighteen_bytes_a_parameter,
        &a_slow_host_sets_the_pace_and_a_fast_one_none,
        &a_slow_host_launches_on_during_the_collectives_of_a_call};
    Suite *s = suite_create("share");
    TCase *t = tcase_create("share");
    tcase_add_checked_fixture(t, setup, teardown);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(t, *tests[i]);
    suite_add_tcase(s, t);
    return s;
}

Suite *tensor_parallel_suite(void) { return suite(); }
