/* Memory of a sharded stage: what the search counts, and what lowering lays out. */
#include "core/lower/lower.h"
#include "core/plan/plan.h"
#include "core/program/device_memory.h"
#include "core/program/program.h"
#include "planner/spmd/spmd.h"

#include "tests/support/spmd_models.h"
#include "tests/support/suites.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static const struct {
    const char *job;
    int64_t microbatch;
} models[] = {{"hap-vgg19", 32}, {"hap-vit", 32}, {"hap-bert", 32}, {"hap-bert-moe", 32}};

static void must(enum status st, const struct error *err)
{
    ck_assert_msg(st == OK, "%s", err->text);
}

static struct spmd_model *model_of(int i)
{
    struct error err = {0};
    struct spmd_model *m;
    must(spmd_model_new(arena, arena_printf(arena, "tests/data/jobs/%s.yaml", models[i].job),
                        "tests/data/clusters/hap8.yaml", models[i].microbatch, &m, &err),
         &err);
    m->q.gather = true, m->q.limits.max_labels = 1000;
    return m;
}

/* A plan of one stage with this sharding; memory: of each device, NULL: no end. */
static enum status lower_stage(const struct spmd_model *m, const struct sharding *sharding,
                                const int64_t *memory, struct program *out, struct error *err)
{
    int32_t n = m->s.n_devices, *devices = ARENA_ARRAY(arena, int32_t, n);
    for (int32_t d = 0; d < n; d++) devices[d] = d;
    struct plan_stage stage = {.last_layer = m->g->n_layers - 1,
                               .n_shards = n,
                               .receive_ahead = 2,
                               .devices = devices,
                               .sharding = sharding};
    struct plan_replica replica = {
        .n_stages = 1, .stages = &stage, .microbatches = m->q.microbatches};
    struct plan p = {.name = "one",
                     .microbatch = m->job.global_batch / m->q.microbatches,
                     .steps = 1,
                     .job = m->job,
                     .cluster = m->cluster,
                     .n_replicas = 1,
                     .replicas = arena_copy(arena, &replica, sizeof replica)};
    p.replicas[0].stages = arena_copy(arena, &stage, sizeof stage);
    p.cluster.types =
        arena_copy(arena, p.cluster.types, (size_t)p.cluster.n_types * sizeof *p.cluster.types);
    for (int32_t d = 0; d < n; d++)
        p.cluster.types[m->q.type[d]].memory_bytes = memory ? memory[d] : INT64_C(1) << 50;
    struct lower_options o = {.check_memory = true};
    return lower_plan(arena, &p, &o, out, err);
}

/* What a GPU keeps for its context and scratch is none of the question's here. */
static bool lay(const void *of, const struct sharding *sharding, int64_t *bytes)
{
    struct error err = {0};
    struct program p;
    must(lower_stage(of, sharding, NULL, &p, &err), &err);
    for (int32_t d = 0; d < 8; d++) bytes[d] = program_lane_bytes(&p, d) - p.stages[d].reserve_bytes;
    return true;
}

START_TEST(what_is_counted_is_never_more_than_lowering_lays_out)
{
    struct spmd_model *m = model_of(_i);
    struct error err = {0};
    struct spmd_answer x;
    int64_t laid[8];
    must(spmd_best(arena, &m->q, &x, &err), &err);
    lay(m, spmd_sharding(arena, &m->q, &x), laid);
    for (int32_t d = 0; d < 8; d++) ck_assert_int_le(x.bytes[d], laid[d]);
}
END_TEST

/* Less and less memory, the same for all devices of a type: what spmd says fits lowering takes, with the
 * reserve and what a GPU loses where a buffer less ends elsewhere in a granule. */
START_TEST(what_fits_lowering_takes)
{
    struct spmd_model *m = model_of(_i);
    struct error err = {0};
    struct spmd_answer x;
    struct program p;
    int64_t memory[8], with_reserve[8], first[8];
    int32_t fitted = 0;
    must(spmd_best(arena, &m->q, &x, &err), &err);
    lay(m, spmd_sharding(arena, &m->q, &x), first);
    m->q.memory_bytes = memory, m->q.lay = lay;
    for (int percent = 101; percent > 60; percent -= 10) {
        for (int32_t d = 0; d < 8; d++)
            memory[d] = first[m->q.type[d] == m->q.type[0] ? 0 : 7] / 100 * percent;
        must(spmd_best(arena, &m->q, &x, &err), &err);
        if (x.ns == INT64_MAX) break;
        fitted++;
        const struct sharding *sharding = spmd_sharding(arena, &m->q, &x);
        must(lower_stage(m, sharding, NULL, &p, &err), &err);
        for (int32_t d = 0; d < 8; d++)
            with_reserve[d] = memory[d] + p.stages[d].reserve_bytes + 2 * DEVICE_GRANULE;
        enum status st = lower_stage(m, sharding, with_reserve, &p, &err);
        ck_assert_msg(st == OK, "%s at %d %%: %s", models[_i].job, percent, err.text);
        ck_assert_int_ge(x.ns, x.found.bound_ns);
    }
    ck_assert_int_ge(fitted, 1);
}
END_TEST

/* At 32 GPUs lowering takes longer than the search. */
START_TEST(lowering_for_memory_is_counted_as_work)
{
    struct spmd_model *m = model_of(0);
    struct error err = {0};
    struct spmd_answer without, with;
    int64_t memory[8];
    for (int32_t d = 0; d < 8; d++) memory[d] = INT64_C(1) << 40;
    m->q.memory_bytes = memory;
    must(spmd_best(arena, &m->q, &without, &err), &err);
    m->q.lay = lay;
    must(spmd_best(arena, &m->q, &with, &err), &err);
    ck_assert_int_eq(with.ns, without.ns);
    ck_assert_int_ge(with.work_ns - without.work_ns, 1000 * 8 * (int64_t)m->q.g->n_ops);
}
END_TEST

Suite *spmd_memory_suite(void)
{
    Suite *s = suite_create("spmd_memory");
    TCase *t = tcase_create("spmd_memory");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, what_is_counted_is_never_more_than_lowering_lays_out, 0, 4);
    tcase_add_loop_test(t, what_fits_lowering_takes, 0, 4);
    tcase_add_test(t, lowering_for_memory_is_counted_as_work);
    suite_add_tcase(s, t);
    return s;
}
