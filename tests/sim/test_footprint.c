/* Memory of a GPU: closed forms against the figures of their paper, and a program's entries against its bytes. */
#include "sim/explain/footprint.h"

#include "tests/support/plans.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static const double GIB = 1073741824.0;

/* Korthikanti et al. 2023, figure 1's bars as numbers: 8 GPUs, no recomputation; sequence parallel and selective. */
static const struct {
    int64_t hidden, heads, layers, stages, chunks, microbatch;
    double parameters, activations, selective; /* GiB */
} printed[] = {{6144, 64, 48, 1, 1, 4, 45.5625, 59.25, 9.5625},
               {12288, 96, 96, 8, 3, 1, 45.5625, 66.84375, 12.3515625},
               {20480, 128, 105, 35, 3, 1, 31.640625, 114.0234375, 23.076171875},
               {25600, 160, 128, 64, 1, 1, 32.958984375, 131.25, 26.5625}};

START_TEST(closed_forms_give_the_papers_figures_to_the_last_digit)
{
    struct footprint_step s = {.block = {2048, printed[_i].microbatch, printed[_i].hidden,
                                         printed[_i].heads, 8, false, RECOMPUTE_NONE},
                               .layers = printed[_i].layers,
                               .stages = printed[_i].stages,
                               .chunks = printed[_i].chunks};
    ck_assert_double_eq_tol(footprint_parameters(&s, 18) / GIB, printed[_i].parameters, 1e-12);
    ck_assert_double_eq_tol(footprint_activations(&s) / GIB, printed[_i].activations, 1e-12);
    s.block.recompute = RECOMPUTE_SELECTIVE, s.block.sequence_parallel = true;
    ck_assert_double_eq_tol(footprint_activations(&s) / GIB, printed[_i].selective, 1e-12);
}
END_TEST

/* s = 4, b = 2, h = 8, a = 2: sbh = 64, 5as/h = 5. */
START_TEST(a_block_by_hand)
{
    struct footprint_block b = {4, 2, 8, 2, 1, false, RECOMPUTE_NONE};
    ck_assert_double_eq(footprint_block(&b), 64 * 39);
    ck_assert_double_eq(footprint_block_weights(&b), 64 * 32);
    b.recompute = RECOMPUTE_SELECTIVE;
    ck_assert_double_eq(footprint_block(&b), 64 * 34);
    b.recompute = RECOMPUTE_BLOCKS;
    ck_assert_double_eq(footprint_block(&b), 64 * 2);
    b = (struct footprint_block){4, 2, 8, 2, 2, false, RECOMPUTE_NONE};
    ck_assert_double_eq(footprint_block(&b), 64 * (10 + 12 + 2.5));
    b.sequence_parallel = true;
    ck_assert_double_eq(footprint_block(&b), 64 * (17 + 2.5));
}
END_TEST

static struct program *two_stages(void)
{
    struct plan p = plans_new(arena, TINY_GPT2, 3, 2);
    int32_t n = plans_layers(arena, &p);
    plans_replica(arena, &p, 4, 2, (const int32_t[]){3, n - 1});
    return plans_lower(arena, &p, false);
}

static int64_t held(const struct footprint *f, const char *name)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < f->n; i++)
        if (!strcmp(f->memory_breakdown[i].name, name)) bytes += f->memory_breakdown[i].bytes;
    return bytes;
}

START_TEST(the_memory_breakdown_is_all_that_a_device_must_hold)
{
    struct program *p = two_stages();
    struct footprint f[2];
    struct footprint_options o = {.shards = 1};
    struct error err = {0};
    ck_assert_int_eq(footprint_stages(arena, p, &o, f, &err), OK);
    for (int32_t d = 0; d < 2; d++) {
        int64_t sum = 0;
        ck_assert_int_eq(f[d].total_bytes, program_lane_bytes(p, d));
        for (int32_t i = 0; i < f[d].n; i++) {
            ck_assert(f[d].memory_breakdown[i].bytes > 0);
            ck_assert(!i || f[d].memory_breakdown[i].bytes <= f[d].memory_breakdown[i - 1].bytes);
            sum += f[d].memory_breakdown[i].bytes;
        }
        ck_assert_int_eq(sum, f[d].total_bytes);
    }
    o.reserve_bytes = 1000;
    int64_t before = f[0].total_bytes;
    ck_assert_int_eq(footprint_stages(arena, p, &o, f, &err), OK);
    ck_assert_int_eq(f[0].total_bytes, before + 1000);
}
END_TEST

/* Two stages of 1F1B: the first has two microbatches in flight once F1 has begun, the second never more than one. */
START_TEST(an_entry_states_how_many_and_since_when)
{
    struct program *p = two_stages();
    struct footprint f[2];
    struct footprint_options o = {.shards = 1};
    static const char *const want[2] = {
        "2 of 4 microbatches in flight on stage 0, from F to B, all first at F1",
        "1 of 4 microbatches in flight on stage 1, from F to B, all first at F0"};
    ck_assert_int_eq(footprint_stages(arena, p, &o, f, NULL), OK);
    for (int32_t d = 0; d < 2; d++) {
        const char *why = NULL;
        for (int32_t i = 0; i < f[d].n; i++)
            if (!strcmp(f[d].memory_breakdown[i].name, "activations"))
                why = f[d].memory_breakdown[i].why;
        ck_assert_ptr_nonnull(why);
        ck_assert_str_eq(why, want[d]);
    }
}
END_TEST

START_TEST(zero_divides_state_then_gradients_then_parameters)
{
    struct program *p = two_stages();
    struct footprint f[4][2];
    const struct program_stage *s = p->stages;
    for (int32_t z = 0; z < 4; z++)
        ck_assert_int_eq(footprint_stages(arena, p,
                                          &(struct footprint_options){.zero = z, .shards = 4}, f[z],
                                          NULL),
                         OK);
    int64_t state = s->class_bytes[SLOT_STATE], gradient = s->class_bytes[SLOT_GRADIENT],
            parameter = s->class_bytes[SLOT_PARAMETER];
    ck_assert_int_eq(f[0][0].total_bytes - f[1][0].total_bytes, state - state / 4);
    ck_assert_int_eq(f[1][0].total_bytes - f[2][0].total_bytes, gradient - gradient / 4);
    ck_assert_int_eq(f[2][0].total_bytes - f[3][0].total_bytes,
                     parameter - parameter / 4 - held(&f[3][0], "gathered parameters"));
    /* the first product of the ffn reads 32 x 128 of 4 bytes; as much is in flight */
    ck_assert_int_eq(held(&f[3][0], "gathered parameters"), 2 * 32 * 128 * 4);
    struct footprint uneven[2];
    ck_assert_int_eq(
        footprint_stages(arena, p,
                         &(struct footprint_options){.zero = 1, .shards = 4, .share = 0.5}, uneven,
                         NULL),
        OK);
    ck_assert_int_eq(held(&uneven[0], "optimizer state"), state / 2);
}
END_TEST

START_TEST(what_does_not_fit_names_the_largest_entries_of_the_breakdown)
{
    struct footprint_entry h[] = {
        {"activations", INT64_C(3) << 30, "4 of 8 microbatches in flight on stage 0, from F to B"},
        {"optimizer state", INT64_C(2) << 30, ""},
        {"gradients", INT64_C(1) << 30, ""},
        {"scratch", 1 << 20, ""}};
    struct footprint f = {"a.0", 4, h, (INT64_C(6) << 30) + (1 << 20), INT64_C(4) << 30};
    ck_assert_str_eq(footprint_verdict(arena, &f),
                     "needs 6 GiB, has 4 GiB, lacks 2 GiB: activations 3 GiB (4 of 8 microbatches in "
                     "flight on stage 0, from F to B), optimizer state 2 GiB, gradients 1 GiB");
    f.memory_bytes = INT64_C(8) << 30;
    ck_assert_ptr_null(strstr(footprint_verdict(arena, &f), "lacks"));
}
END_TEST

START_TEST(options_out_of_range_are_refused)
{
    struct program *p = two_stages();
    struct footprint f[2];
    const struct footprint_options bad[] = {{.zero = 4, .shards = 1},
                                            {.zero = -1, .shards = 1},
                                            {.shards = 0},
                                            {.shards = 2, .share = 1.5},
                                            {.shards = 1, .reserve_bytes = -1}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct error err = {0};
        ck_assert_int_eq(footprint_stages(arena, p, &bad[i], f, &err), ERR_INPUT);
        ck_assert(*err.text);
    }
}
END_TEST

Suite *footprint_suite(void)
{
    Suite *s = suite_create("sim/explain/footprint");
    TCase *t = tcase_create("footprint");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, closed_forms_give_the_papers_figures_to_the_last_digit, 0, 4);
    tcase_add_test(t, a_block_by_hand);
    tcase_add_test(t, the_memory_breakdown_is_all_that_a_device_must_hold);
    tcase_add_test(t, an_entry_states_how_many_and_since_when);
    tcase_add_test(t, zero_divides_state_then_gradients_then_parameters);
    tcase_add_test(t, what_does_not_fit_names_the_largest_entries_of_the_breakdown);
    tcase_add_test(t, options_out_of_range_are_refused);
    suite_add_tcase(s, t);
    return s;
}
