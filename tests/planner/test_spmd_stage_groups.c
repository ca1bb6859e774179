/* Pipelines of sharded stages: the communicators that a search reserves memory for. */
#include "core/program/device_memory.h"
#include "planner/spmd_stage/spmd_stage.h"

#include "tests/support/spmd_stage_cases.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* GPT-2 whose parameters are each read once. */
static void untied_job(struct job *out, int width, int blocks, int vocabulary, int batch)
{
    struct yaml_text j = {.n = 0};
    struct error err = {0};
    random_teams_put(&j,
        "version: 1\nmodel: {model_type: gpt2, n_embd: %d, n_layer: %d, n_head: 4, n_positions: "
        "64, "
        "vocab_size: %d, tie_word_embeddings: false}\nsequence_length: 64\nglobal_batch: %d\n",
        width, blocks, vocabulary, batch);
    ck_assert_msg(job_parse(arena, random_teams_parsed(arena, &j), ".", out, &err) == OK, "%s", err.text);
}

enum { GPUS = 9, STAGES = 3 };

/* Nodes of so many GPUs each. */
static struct small *gpus_on(struct space *s, int32_t nodes, int32_t n)
{
    struct small *x = ARENA_ARRAY(arena, struct small, 1);
    struct error err = {0};
    struct yaml_text c = {.n = 0};
    random_teams_put(&c,
        "version: 1\nname: c\ndevice_types: [{name: t, device: V100-SXM2-16}]\nnodes:\n"
        "  - {name: n, count: %d, devices: {type: t, count: %d}}\nlinks:\n"
        "  - {name: in, every: inside, bandwidth: 1 GB/s, latency: 5 us}\n"
        "  - {name: out, every: across, bandwidth: 1 GB/s, latency: 9 us}\n",
        (int)nodes, (int)n);
    ck_assert_msg(cluster_parse(arena, random_teams_parsed(arena, &c), &x->cluster, &err) == OK, "%s", err.text);
    ck_assert_int_eq(team_complete(&x->cluster, &err), OK);
    untied_job(&x->job, 128, 3, 64, 96);
    ck_assert_int_eq(profile_prior(arena, &x->cluster, &x->profile, &err), OK);
    x->cost = cost_new(arena, &x->profile, &x->cluster);
    ck_assert_msg(space_make(arena, &x->job, &x->cluster, x->cost, 24, &x->lower, s, &err) == OK,
                  "%s", err.text);
    return x;
}

/* Stages of one to three GPUs, each of which has a way of its own to shard its operators. */
static int32_t random_stages(struct draw *d, const struct space *s, struct plan *out,
                             int32_t n[STAGES])
{
    static const enum op_index algorithms[] = {INDEX_batch, INDEX_positions, INDEX_features};
    int32_t stages = 2 + (int32_t)random_teams_below(d, STAGES - 1), at = 0;
    plan_skeleton(arena, s, "line", 1, &stages, out);
    out->replicas[0].microbatches = s->microbatches;
    for (int32_t i = 0; i < stages; i++) {
        struct plan_stage *y = &out->replicas[0].stages[i];
        int32_t device[STAGES],
            end = i + 1 == stages ? s->n_layers : s->n_layers / stages * (i + 1);
        double ratios[STAGES];
        n[i] = 1 + (int32_t)random_teams_below(d, STAGES);
        for (int k = 0; k < n[i]; k++) device[k] = at++, ratios[k] = (double)(1 + random_teams_below(d, 2));
        struct sharding *how =
            sharding_of_index(arena, INDEX_batch, arena_copy(arena, ratios, sizeof ratios), n[i]);
        struct sharding_rule rule = {.match = "*"};
        rule.choice.index[0] = algorithms[random_teams_below(d, 3)];
        how->operators = arena_copy(arena, &rule, sizeof rule), how->n_operators = 1;
        struct spmd_stage_team t = {.first_layer = i ? y[-1].last_layer + 1 : 0,
                                    .last_layer = end - 1,
                                    .n = n[i],
                                    .device = device};
        spmd_stage_put(arena, &t, &(struct spmd_stage_answer){.ns = 1, .sharding = how}, y);
        if (n[i] == 1) y->sharding = NULL, y->n_shards = 0;
    }
    return stages;
}

START_TEST(no_gpu_makes_fewer_communicators_than_are_reserved_for_it)
{
    struct space s;
    struct small *x = gpus_on(&s, 1, GPUS);
    struct scorer *w = scorer_new(&x->lower);
    int32_t exact = 0, gpus = 0;
    for (uint64_t seed = 1; seed <= (suites_long() ? 400 : 40); seed++) {
        struct draw d = {seed, 7200};
        struct error err = {0};
        struct plan p;
        int32_t n[STAGES], stages = random_stages(&d, &s, &p, n);
        const struct program *program;
        struct device_memory memory[GPUS];
        ck_assert_msg(scorer_program(w, &s, &p, &program, &err) == OK && program, "%s", err.text);
        device_memory_of(arena, program, memory);
        for (int32_t i = 0, gpu = 0; i < stages; i++)
            for (int k = 0; k < n[i]; k++, gpu++) {
                int32_t least = (n[i] > 1) + spmd_stage_beside(n[i], i ? n[i - 1] : 0) +
                                spmd_stage_beside(n[i], i + 1 < stages ? n[i + 1] : 0);
                ck_assert_msg(memory[gpu].communicators >= least,
                              "seed %d: GPU %d has %d, not %d", (int)seed, (int)gpu,
                              (int)memory[gpu].communicators, (int)least);
                exact += memory[gpu].communicators == least, gpus++;
            }
    }
    ck_assert_msg(exact > gpus / 10, "%d of %d", exact, gpus);
    scorer_free(w);
}
END_TEST

Suite *spmd_stage_groups_suite(void)
{
    Suite *s = suite_create("spmd_stage_groups");
    TCase *t = tcase_create("spmd_stage_groups");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, no_gpu_makes_fewer_communicators_than_are_reserved_for_it);
    tcase_set_timeout(t, 600);
    suite_add_tcase(s, t);
    return s;
}
