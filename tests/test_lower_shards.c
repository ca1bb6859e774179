/* Suite of core/lower_shards: what plans become whose devices share operators. That they train alike is
 * tests/programs/shard_ranks.c's. */
#include "core/part.h"

#include "tests/plans.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* Megatron's way: two sums a block forwards, two back. */
#define MEGATRON                                                                                   \
    "operators: [{match: \"h.*.attn.c_attn*\", split: heads}, {match: \"h.*.attn.attention\", "    \
    "split: heads}, {match: \"h.*.attn.c_proj\", split: heads}, {match: \"h.*.mlp.c_fc*\", "       \
    "split: features}, {match: \"h.*.mlp.gelu\", split: features}, {match: \"h.*.mlp.c_proj\", "   \
    "split: inputs}]\n"

static struct sharding *sharding(const char *text, int32_t n_devices)
{
    struct node *root;
    struct sharding *s;
    struct error err = {0};
    ck_assert_msg(document_parse(arena, "made", text, strlen(text), &root, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(sharding_read(arena, root, n_devices, &s, &err) == OK, "%s", err.text);
    return s;
}

/* One stage a replica, each on n devices that share in this way. */
static struct plan shared(int32_t n_replicas, int32_t n, const char *text, int layers)
{
    struct plan p = plans_new(arena, "gpt2", layers, n * n_replicas);
    int32_t last = plans_layers(arena, &p) - 1;
    for (int32_t r = 0; r < n_replicas; r++) {
        struct plan_replica *x = plans_replica(arena, &p, 2, 1, &last);
        int32_t *devices = ARENA_ARRAY(arena, int32_t, (size_t)n);
        for (int32_t i = 0; i < n; i++) devices[i] = r * n + i;
        x->stages[0].device = r * n;
        x->stages[0].n_shards = n, x->stages[0].devices = devices;
        x->stages[0].sharding = sharding(text, n);
    }
    return p;
}

static int32_t meetings(const struct program *p, int32_t stage, char letter, enum meeting_kind kind)
{
    int32_t n = 0;
    for (int32_t f = 0; f < p->stages[stage].n_procedures; f++) {
        const struct procedure *x = &p->stages[stage].procedures[f];
        if (x->letter != letter || *x->variant) continue;
        for (int32_t i = 0; i < x->n_instrs; i++)
            n += x->instrs[i].kind == INSTR_COLLECT &&
                 p->groups[x->instrs[i].arg].meeting->kind == kind;
    }
    return n;
}

static int32_t sums(const struct program *p)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_groups; i++) n += !p->groups[i].meeting;
    return n;
}

START_TEST(columns_then_rows_meet_twice_a_block_each_way)
{
    for (int layers = 1; layers <= 3; layers++) {
        struct plan plan = shared(1, 2, MEGATRON, layers);
        struct program *p = plans_lower(arena, &plan, false);
        for (int32_t s = 0; s < 2; s++) {
            ck_assert_int_eq(meetings(p, s, 'F', MEETING_all_reduce), 2 * layers);
            ck_assert_int_eq(meetings(p, s, 'B', MEETING_all_reduce), 2 * layers);
            for (int k = 0; k < MEETING_KIND_COUNT; k++)
                if (k != MEETING_all_reduce)
                    ck_assert_int_eq(meetings(p, s, 'F', (enum meeting_kind)k) +
                                         meetings(p, s, 'B', (enum meeting_kind)k),
                                     0);
        }
        /* Gradients are whole where parameters are, and parts are nobody else's: nothing to sum. */
        ck_assert_int_eq(sums(p), 0);
    }
}
END_TEST

/* b = 2 sequences of 8, 32 features: 512 elements a sum, a half each step. */
START_TEST(what_crosses_is_what_the_closed_form_says)
{
    struct plan plan = shared(1, 2, MEGATRON, 1);
    struct program *p = plans_lower(arena, &plan, false);
    for (int32_t i = 0; i < p->n_groups; i++) {
        const struct meeting *m = p->groups[i].meeting;
        ck_assert_int_eq(p->groups[i].elements, 2 * 8 * 32);
        ck_assert_int_eq(m->most, 256);
        ck_assert_int_eq(meeting_staging_bytes(m, DTYPE_fp32), 1024);
    }
    ck_assert_int_eq(p->stages[0].buffer_bytes, 1024);
}
END_TEST

START_TEST(replicas_sum_part_by_part)
{
    struct plan plan = shared(2, 2, MEGATRON, 1);
    struct program *p = plans_lower(arena, &plan, false);
    ck_assert_int_gt(sums(p), 0);
    for (int32_t i = 0; i < p->n_groups; i++) {
        const struct group *g = &p->groups[i];
        if (g->meeting) continue;
        /* The devices of one place in both replicas. */
        ck_assert_int_eq(g->n_members, 2);
        ck_assert_int_eq(g->members[1].stage, g->members[0].stage + 2);
    }
}
END_TEST

START_TEST(devices_that_share_the_batch_sum_everything_together)
{
    struct plan plan =
        shared(1, 2, "ratios: [[1, 1]]\noperators: [{match: \"*\", split: batch}]\n", 1);
    struct program *p = plans_lower(arena, &plan, false);
    ck_assert_int_eq(p->n_groups, 1);
    ck_assert_int_eq(p->groups[0].n_members, 2);
    for (int32_t s = 0; s < 2; s++) {
        ck_assert(p->stages[s].shares_loss && p->stages[s].loss_share == 0.5);
        for (int32_t i = 0; i < p->stages[s].n_slots; i++)
            if (p->stages[s].slots[i].input >= 0) {
                const struct tensor_part *x = p->stages[s].slots[i].part;
                ck_assert(x && x->n_cuts == 1 && x->cut[0].run[0].first == s);
            }
    }
}
END_TEST

/* A mesh of two by two: batch outside, heads inside. */
START_TEST(on_a_mesh_sums_go_along_one_axis_and_meetings_along_the_other)
{
    struct plan plan = shared(
        1, 4,
        "mesh: [2, 2]\noperators: [{match: \"h.*.attn.c_attn*\", split: [batch, heads]}, "
        "{match: \"h.*.attn.attention\", split: [batch, heads]}, {match: "
        "\"h.*.attn.c_proj\", split: [batch, heads]}, {match: \"*\", split: [batch, none]}]\n",
        1);
    struct program *p = plans_lower(arena, &plan, false);
    int32_t rows = 0, columns = 0;
    for (int32_t i = 0; i < p->n_groups; i++) {
        const struct group *g = &p->groups[i];
        int32_t a = g->members[0].stage, b = g->members[1].stage;
        ck_assert_int_eq(g->n_members, 2);
        if (g->meeting)
            rows++, ck_assert(a / 2 == b / 2);
        else
            columns++, ck_assert(a % 2 == b % 2);
    }
    ck_assert(rows == 2 * 2 && columns >= 2);
}
END_TEST

START_TEST(a_device_may_have_nothing)
{
    struct plan plan =
        shared(1, 3, "ratios: [[1, 0, 1]]\noperators: [{match: \"*\", split: batch}]\n", 1);
    struct program *p = plans_lower(arena, &plan, false);
    ck_assert(p->stages[1].loss_share == 0);
    for (int32_t i = 0; i < p->stages[1].n_slots; i++)
        if (p->stages[1].slots[i].input >= 0) ck_assert_int_eq(p->stages[1].slots[i].bytes, 0);
}
END_TEST

static void refused(struct plan p, const char *why)
{
    struct error err = {0};
    ck_assert_int_eq(plans_refused(arena, &p, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' in: %s", why, err.text);
}

START_TEST(what_does_not_go_together_is_refused_with_the_reason)
{
    struct plan p = shared(1, 2, MEGATRON, 1);
    p.deterministic = true;
    refused(p, "cannot be deterministic");
    p = shared(1, 2, MEGATRON, 1), p.replicas[0].stages[0].zero = 1;
    refused(p, "zero:");
    p = shared(2, 2, MEGATRON, 1);
    p.replicas[1].stages[0].sharding = sharding("operators: [{match: \"*\", split: batch}]\n", 2);
    refused(p, "kept in other parts");
    p = shared(1, 2, "operators: [{match: \"h.*.ln_1\", split: heads}]\n", 1);
    refused(p, "h.*.ln_1");
    p = shared(1, 2, MEGATRON, 1), p.cluster.types[0].tensor_parallel = 2;
    refused(p, "several cards");
}
END_TEST

/* Bytes of the records that programs without sharing do not have. */
START_TEST(mangled_parts_are_refused_or_can_be_trusted)
{
    struct plan plan =
        shared(1, 3,
               "ratios: [[2, 0, 1]]\noperators: [{match: \"lm_head\", split: "
               "vocabulary}, {match: \"loss\", split: vocabulary}, {match: "
               "\"h.*.mlp.*\", split: features}, {match: \"*\", split: batch}]\n"
               "parameters: [{match: \"transformer.h.0.mlp.c_fc.weight\", gather: true}]",
               1);
    struct program *p = plans_lower(arena, &plan, true), q;
    struct error err = {0};
    size_t n;
    char *text = plans_text(p, &n);
    ck_assert(strstr(text, "\nlocal ") && strstr(text, "\nof ") && strstr(text, "\nloss "));
    ck_assert_msg(program_parse(arena, "made", text, n, &q, &err) == OK, "%s", err.text);
    struct plans_random r = {3, 0};
    int cases = test_long() ? 4000 : 300, refused = 0;
    char *copy = malloc(n + 1);
    for (int i = 0; i < cases; i++) {
        memcpy(copy, text, n + 1);
        char *at = copy;
        static const char *const records[] = {"\nlocal ", "\nof ", "\nloss "};
        const char *record = records[plans_below(&r, 3)];
        for (int k = plans_below(&r, 20); k >= 0; k--) {
            char *next = strstr(at + 1, record);
            if (!next) break;
            at = next;
        }
        at[1 + plans_below(&r, 30)] = "0123456789- \n"[plans_below(&r, 13)];
        struct arena *scratch = arena_new();
        if (program_parse(scratch, "x", copy, n, &q, &err) != OK)
            refused++;
        else
            (void)!program_check(scratch, &q, &err);
        arena_free(scratch);
    }
    ck_assert_int_gt(refused, cases / 4);
    free(copy), free(text);
}
END_TEST

Suite *lower_shards_suite(void)
{
    Suite *s = suite_create("lower_shards");
    TCase *c = tcase_create("lower_shards");
    const TTest *tests[] = {columns_then_rows_meet_twice_a_block_each_way,
                            what_crosses_is_what_the_closed_form_says,
                            replicas_sum_part_by_part,
                            devices_that_share_the_batch_sum_everything_together,
                            on_a_mesh_sums_go_along_one_axis_and_meetings_along_the_other,
                            a_device_may_have_nothing,
                            what_does_not_go_together_is_refused_with_the_reason,
                            mangled_parts_are_refused_or_can_be_trusted};
    tcase_add_checked_fixture(c, setup, teardown);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(c, tests[i]);
    suite_add_tcase(s, c);
    return s;
}
