/* Buckets of gradient all-reduces in plans with sharded stages (core/lower/groups.c). */
#include "tests/support/replicas.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* Megatron's sequence parallelism: norms are replicated parameters with partial gradients on both devices. */
#define SEQUENCE_PARALLEL                                                                          \
    "operators: [{match: \"*ln_*\", shard: positions}, {match: \"h.*.attn.c_attn*\", shard: "      \
    "heads}, {match: \"h.*.attn.attention\", shard: heads}, {match: \"h.*.attn.c_proj\", "         \
    "shard: heads}, {match: \"h.*.mlp.c_fc*\", shard: features}, {match: \"h.*.mlp.gelu\", "       \
    "shard: features}, {match: \"h.*.mlp.c_proj\", shard: inputs}]\n"

/* Gradient groups by the number of their members: [2] of one shard in both replicas, [4] of what all four devices hold. */
static void gradient_groups(const struct program *p, int32_t n[5])
{
    for (int32_t i = 0; i < p->n_collectives; i++)
        if (!collective_of_tensor(&p->collectives[i])) n[p->collectives[i].n_members]++;
}

START_TEST(parameters_of_the_same_devices_share_a_bucket_over_those_of_others)
{
    for (int layers = 1; layers <= 3; layers++) {
        struct plan plan = replicas_of_one_stage(arena, 2, 2, SEQUENCE_PARALLEL, layers);
        struct program *p = plans_lower(arena, &plan, false);
        int32_t n[5] = {0};
        gradient_groups(p, n);
        ck_assert_int_eq(n[2], 2); /* one for each shard */
        ck_assert_int_eq(n[4], 1);
    }
}
END_TEST

static int64_t group_bytes(const struct program *p, const struct collective *g)
{
    return g->elements * dtype_bytes(p->dtype);
}

/* Shards of 4 KiB and more end a bucket of 4 KiB; the norms of all layers have 32 · 2 elements each and one bucket. Groups are launched
 * in the order of their numbers, from the last layer to the first. */
START_TEST(buckets_of_each_devices_are_filled_to_their_size)
{
    struct plan plan = replicas_of_one_stage(arena, 2, 2, SEQUENCE_PARALLEL, 3);
    for (int r = 0; r < 2; r++) plan.replicas[r].stages[0].bucket_bytes = 4096;
    struct program *p = plans_lower(arena, &plan, false);
    int32_t n[5] = {0}, full = 0;
    gradient_groups(p, n);
    for (int32_t i = 0; i < p->n_collectives; i++) {
        const struct collective *g = &p->collectives[i];
        if (!collective_of_tensor(g)) full += group_bytes(p, g) >= 4096;
    }
    ck_assert(n[2] > 2 && n[2] % 2 == 0 && n[4] >= 1);
    ck_assert_int_le(n[2] + n[4] - full, 3); /* each sequence of buckets has one that is not full */
}
END_TEST

START_TEST(flat_parameters_are_of_the_same_devices)
{
    for (int zero = 1; zero <= 2; zero++) {
        struct plan plan = replicas_of_one_stage(arena, 2, 2, SEQUENCE_PARALLEL, 2);
        for (int r = 0; r < 2; r++) plan.replicas[r].stages[0].zero = zero;
        struct program *p = plans_lower(arena, &plan, false);
        int32_t n[5] = {0};
        gradient_groups(p, n);
        /* A reduce-scatter and an all-gather for each bucket, two and one for the tied parameter; from zero 2 on buckets
         * end with their layer. */
        ck_assert(zero == 1 ? n[2] == 2 * (2 + 3) && n[4] == 2 : n[2] > 2 * (2 + 3) && n[4] > 2);
    }
}
END_TEST

Suite *lower_buckets_suite(void)
{
    Suite *s = suite_create("lower_buckets");
    TCase *t = tcase_create("lower_buckets");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, parameters_of_the_same_devices_share_a_bucket_over_those_of_others);
    tcase_add_test(t, buckets_of_each_devices_are_filled_to_their_size);
    tcase_add_test(t, flat_parameters_are_of_the_same_devices);
    suite_add_tcase(s, t);
    return s;
}
