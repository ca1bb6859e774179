/* The lookup order of costs. */
#include "profiles/profile.h"

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "profiles/catalogue.h"
#include "tests/support/suites.h"

#include <math.h>

static struct arena *a;
static struct error err;
static struct device_type types[] = {{.name = "fast", .catalogue = "host", .slowdown = 1.5},
                                     {.name = "slow", .catalogue = "host", .slowdown = 4},
                                     {.name = "real", .catalogue = "T4"}};
static struct link links[] = {
    {.name = "bus", .bandwidth_Bps = 8e9, .latency_s = 5e-6, .stated = true}, {.name = "lan"}};
static struct cluster cluster = {
    .name = "team", .n_types = 3, .types = types, .n_links = 1, .links = links};

static void set_up(void) { a = arena_new(); }
static void tear_down(void) { arena_free(a); }

static struct op_shapes product(int64_t m, int64_t k, int64_t n)
{
    struct op_attrs attrs = {0};
    struct op_shapes s = {.n_inputs = 2,
                          .input = {{.rank = 2, .dim = {m, k}}, {.rank = 2, .dim = {k, n}}}};
    ck_assert_int_eq(op_infer(OP_matmul, &attrs, &s, NULL), OK);
    return s;
}

static double cost(const struct profile *p, int32_t type, uint64_t key, enum dtype t,
                   enum source *source)
{
    struct op_attrs attrs = {0};
    struct op_shapes s = product(10, 20, 30); /* 12,000 FLOPs, 4 · (200 + 600 + 300) bytes */
    double out = 0;
    ck_assert_msg(profile_op_seconds(p, &cluster, type, OP_matmul, &attrs, &s, t, key, &out, source,
                                     &err) == OK,
                  "%s", err.text);
    return out;
}

START_TEST(the_pace_is_the_median_over_what_is_known_and_needs_four)
{
    struct op_row rows[6];
    uint64_t keys[6];
    double now[6];
    for (size_t i = 0; i < 6; i++) {
        rows[i] = (struct op_row){
            .base = i < 5 ? "host" : "T4", .key = i, .seconds = (double)(i + 1) * 1e-3};
        keys[i] = i;
        now[i] = rows[i].seconds * (i == 2 ? 9 : 1.25);
    }
    struct profile p = {.n_ops = 6, .ops = rows};
    ck_assert_double_eq_tol(profile_pace_now(&p, "host", keys, now, 4), 1.25, 1e-12);
    ck_assert_double_eq(profile_pace_now(&p, "host", keys, now, 3), 0);
    ck_assert_double_eq(profile_pace_now(&p, "host", keys + 2, now + 2, 4),
                        0); /* the T4's is no host's */
    now[0] = 0;             /* did not run */
    ck_assert_double_eq(profile_pace_now(&p, "host", keys, now, 4), 0);
}
END_TEST

START_TEST(the_lookup_goes_from_the_type_to_its_base_to_the_fit_to_the_catalogue)
{
    struct op_row rows[] = {{.base = "type:fast", .key = 7, .kind = OP_matmul, .seconds = 1e-3},
                            {.base = "host", .key = 7, .kind = OP_matmul, .seconds = 2e-3},
                            {.base = "T4", .key = 9, .kind = OP_matmul, .seconds = 3e-3}};
    struct op_fit fits[] = {{.base = "host",
                             .kind = OP_matmul,
                             .dtype = DTYPE_fp32,
                             .constant_s = 1e-6,
                             .s_per_flop = 1e-9,
                             .s_per_byte = 1e-10}};
    struct factor_row factors[] = {{.type = "slow", .kind = OP_matmul, .factor = 1.25},
                                   {.type = "fast", .kind = -1, .factor = 2}};
    struct profile p = {
        .n_ops = 3, .ops = rows, .n_fits = 1, .fits = fits, .n_factors = 2, .factors = factors};
    struct op_attrs attrs = {0};
    struct op_shapes s = product(10, 20, 30);
    enum source source;
    for (int sorted = 0; sorted < 2; sorted++) {
        if (sorted) profile_sort(&p);
        ck_assert_double_eq_tol(cost(&p, 0, 7, DTYPE_fp32, &source), 1.5e-3,
                                1e-12); /* no factor on a type's own row */
        ck_assert_int_eq(source, SOURCE_MEASURED);
        ck_assert_double_eq_tol(cost(&p, 1, 7, DTYPE_fp32, &source), 2e-3 * 4 * 1.25, 1e-12);
        ck_assert_int_eq(source, SOURCE_MEASURED);
        ck_assert_double_eq_tol(cost(&p, 0, 8, DTYPE_fp32, &source),
                                (1e-6 + 12000 * 1e-9 + 4400 * 1e-10) * 1.5 * 2, 1e-12);
        ck_assert_int_eq(source, SOURCE_FITTED);
        ck_assert_double_eq_tol(cost(&p, 2, 9, DTYPE_fp32, &source), 3e-3,
                                1e-12); /* a real device: as measured */
        const struct catalogue_device *host = NULL;
        const struct op_prior prior = op_prior_default("host");
        ck_assert_int_eq(catalogue_find("host", &host, NULL), OK);
        ck_assert_double_eq_tol(
            cost(&p, 1, 8, DTYPE_fp64, &source), /* the fit is of fp32 */
            op_prior_seconds(&prior, host, OP_matmul, &attrs, &s, DTYPE_fp64) * 4 * 1.25, 1e-15);
        ck_assert_int_eq(source, SOURCE_CATALOGUE);
    }
}
END_TEST

/* A quarter of 8 experts, 2 chosen, 1 sequence of 128: 32 rows of 20 to 30 each. */
static double expert_cost(const struct profile *p, int64_t experts)
{
    struct op_attrs attrs = {.chosen = 2, .experts = experts < 8 ? 8 : 0};
    struct op_shapes s = {.n_inputs = 3,
                          .input = {{.rank = 4, .dim = {1, experts, 128, 20}},
                                    {.rank = 3, .dim = {experts, 20, 30}},
                                    {.rank = 3, .dim = {1, 128, experts}}}};
    double out = 0;
    enum source source;
    ck_assert_int_eq(op_infer(OP_expert_matmul, &attrs, &s, &err), OK);
    ck_assert_int_eq(profile_op_seconds(p, &cluster, 0, OP_expert_matmul, &attrs, &s, DTYPE_fp32, 7,
                                        &out, &source, &err),
                     OK);
    return out / 1.5;
}

START_TEST(shards_of_the_experts_take_what_the_fullest_is_expected_to)
{
    struct op_row rows[] = {{.base = "host", .key = 7, .kind = OP_expert_matmul, .seconds = 1e-3},
                            {.base = "type:fast", .key = 7, .seconds = 2e-4}};
    struct op_fit fit = {.base = "host",
                         .kind = OP_expert_matmul,
                         .dtype = DTYPE_fp32,
                         .constant_s = 1e-6,
                         .s_per_flop = 1e-9};
    struct routing_row routing = {"experts", 1, 1, "run:x"};
    struct profile p = {.n_ops = 2, .ops = rows, .n_fits = 1, .fits = &fit};
    ck_assert_double_eq_tol(expert_cost(&p, 2), 2e-4, 1e-12); /* the run's own row */
    p.n_routings = 1, p.routings = &routing;
    /* (2 + √(2 · 3/4 · 8/7) · ln(3.625/0.625)/1.702) / 2, as test_experts has it */
    ck_assert_double_eq_tol(expert_cost(&p, 2), 1e-3 * 1.676139, 1e-8);
    ck_assert_double_eq_tol(expert_cost(&p, 8), 2e-4, 1e-12);
    double load = 0.25; /* of the tokens of an even shard */
    for (int i = 0; i < 2; i++, load = 3) {
        struct op_attrs even = {.chosen = 2, .experts = 8}, attrs = even;
        struct op_shapes s = {.n_inputs = 3, .input = {{4, {1, 2, 128, 20}}, {3, {2, 20, 30}}, {3, {1, 128, 2}}}};
        enum source source;
        double out;
        attrs.load_ppm = (int32_t)(1e6 * load);
        ck_assert_int_eq(op_infer(OP_expert_matmul, &attrs, &s, &err), OK);
        uint64_t key = op_key(OP_expert_matmul, &attrs, &s, DTYPE_fp32);
        rows[0].key = op_key(OP_expert_matmul, &even, &s, DTYPE_fp32);
        ck_assert_uint_ne(key, rows[0].key);
        ck_assert_int_eq(profile_op_seconds(&p, &cluster, 0, OP_expert_matmul, &attrs, &s, DTYPE_fp32, key, &out, &source, &err), OK);
        ck_assert_double_eq_tol(out / 1.5, 1e-3 * load, 1e-12);
    }
    p.n_ops = 0;
    ck_assert_double_eq_tol(expert_cost(&p, 2), 1e-6 + 1e-9 * 2 * 64 * 20 * 30 * 1.676139, 1e-10);
    ck_assert_double_eq_tol(expert_cost(&p, 8), 1e-6 + 1e-9 * 2 * 256 * 20 * 30, 1e-12);
}
END_TEST

START_TEST(an_empty_share_takes_no_time)
{
    struct op_fit fit = {
        .base = "host", .kind = OP_matmul, .dtype = DTYPE_fp32, .constant_s = 1e-6};
    struct profile p = {.n_fits = 1, .fits = &fit};
    struct op_attrs attrs = {0};
    struct op_shapes nothing = product(0, 20, 30), zeros = product(10, 0, 30);
    double out = 1;
    enum source source;
    ck_assert_int_eq(profile_op_seconds(&p, &cluster, 0, OP_matmul, &attrs, &nothing, DTYPE_fp32, 7,
                                        &out, &source, &err),
                     OK);
    ck_assert_double_eq(out, 0);
    ck_assert_int_eq(profile_op_seconds(&p, &cluster, 0, OP_matmul, &attrs, &zeros, DTYPE_fp32, 8,
                                        &out, &source, &err),
                     OK);
    ck_assert_double_eq_tol(out, 1.5e-6, 1e-15); /* 10 × 30 zeros are written */
}
END_TEST

START_TEST(the_nearest_factor_counts)
{
    struct op_row rows[] = {{.base = "host", .key = 7, .kind = OP_matmul, .seconds = 1}};
    struct factor_row factors[] = {{.type = "*", .kind = -1, .factor = 2},
                                   {.type = "*", .kind = OP_matmul, .factor = 3},
                                   {.type = "slow", .kind = -1, .factor = 5},
                                   {.type = "slow", .kind = OP_matmul, .factor = 7},
                                   {.type = "fast", .kind = OP_add, .factor = 11}};
    struct profile p = {.n_ops = 1, .ops = rows, .factors = factors};
    enum source source;
    double expected[] = {
        4,  8,  12,
        20, 28, 28}; /* each row of the list is more specific to (slow, matmul) than the one before */
    for (p.n_factors = 0; p.n_factors <= 5; p.n_factors++)
        ck_assert_double_eq_tol(cost(&p, 1, 7, DTYPE_fp32, &source), expected[p.n_factors], 1e-9);
}
END_TEST

START_TEST(sorting_finds_what_searching_finds)
{
    enum { ROWS = 3000 };
    struct op_row *rows = ARENA_ARRAY(a, struct op_row, ROWS);
    struct profile p = {.n_ops = ROWS, .ops = rows};
    static const char *const bases[] = {"host", "T4", "type:fast"};
    for (size_t i = 0; i < ROWS; i++)
        rows[i] = (struct op_row){
            .base = bases[i % 3], .key = rng_u64(1, 0, i / 3), .seconds = (double)i};
    for (uint64_t i = 0; i < 500; i++) {
        uint64_t key = rng_u64(1, 0, rng_below(1, 1, i, ROWS / 3 + 100));
        const char *base = bases[rng_below(1, 2, i, 3)];
        struct profile sorted = p;
        sorted.ops = ARENA_ARRAY(a, struct op_row, ROWS);
        memcpy(sorted.ops, rows, ROWS * sizeof *rows);
        profile_sort(&sorted);
        const struct op_row *x = profile_row(&p, base, key), *y = profile_row(&sorted, base, key);
        ck_assert_int_eq(x == NULL, y == NULL);
        if (x) ck_assert_double_eq(x->seconds, y->seconds);
    }
}
END_TEST

START_TEST(the_prior_needs_known_devices_and_stated_links)
{
    struct profile p;
    ck_assert_msg(profile_prior(a, &cluster, &p, &err) == OK, "%s", err.text);
    ck_assert_int_eq(p.id, 0);
    ck_assert_double_eq(p.pace, 1);
    ck_assert_str_eq(p.cluster, "team");
    struct cluster c = cluster;
    c.n_links = 2;
    ck_assert_int_eq(profile_prior(a, &c, &p, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "link lan has no bandwidth"));
    struct device_type unknown = {.name = "x", .catalogue = "B9000"};
    c = (struct cluster){.name = "c", .n_types = 1, .types = &unknown};
    ck_assert_int_eq(profile_prior(a, &c, &p, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "B9000"));
}
END_TEST

START_TEST(a_cost_without_a_source_is_refused)
{
    struct profile p;
    struct op_attrs attrs = {0};
    struct op_shapes s = product(1, 2, 3);
    double out = 0;
    enum source source;
    ck_assert_int_eq(profile_prior(a, &cluster, &p, &err), OK);
    ck_assert_int_eq(profile_op_seconds(&p, &cluster, 2, OP_matmul, &attrs, &s, DTYPE_bf16, 1, &out,
                                        &source, &err),
                     ERR_INPUT);
    ck_assert_msg(strstr(err.text, "matmul bf16") && strstr(err.text, "T4"), "%s", err.text);
}
END_TEST

START_TEST(a_measured_link_goes_before_a_stated_one)
{
    struct profile p = {0};
    struct link_model m;
    int64_t bytes[60];
    double seconds[60];
    ck_assert_int_eq(profile_link(&p, &cluster, 0, &m, &err), OK);
    ck_assert_int_eq(m.source, SOURCE_STATED);
    ck_assert_double_eq(m.latency_s, 5e-6);
    ck_assert_double_eq(m.bandwidth_Bps, 8e9);
    for (int i = 0; i < 60; i++) {
        bytes[i] = 1000 << i % 6;
        seconds[i] = 2e-6 + (double)bytes[i] / 4e9;
    }
    seconds[7] = 1;
    seconds[8] = NAN;
    ck_assert_msg(profile_fit_link(a, &p, "bus", bytes, seconds, 60, &err) == OK, "%s", err.text);
    ck_assert_int_eq(profile_link(&p, &cluster, 0, &m, &err), OK);
    ck_assert_int_eq(m.source, SOURCE_FITTED);
    ck_assert_double_eq_tol(m.latency_s, 2e-6, 1e-9);
    ck_assert_double_eq_tol(m.bandwidth_Bps, 4e9, 1e6);
    ck_assert_int_eq(m.min_bytes, 1000);
    ck_assert_int_eq(m.max_bytes, 32000);
    ck_assert_int_eq(profile_fit_link(a, &p, "bus", bytes, seconds, 40, &err), OK);
    ck_assert_int_eq(profile_fit_link(a, &p, "lan", bytes, seconds, 40, &err), OK);
    ck_assert_uint_eq(p.n_links, 2); /* the first one was replaced */
    for (int i = 0; i < 60; i++) seconds[i] = 1e-3 / (double)bytes[i];
    ck_assert_int_eq(profile_fit_link(a, &p, "bus", bytes, seconds, 60, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "bus"));
}
END_TEST

START_TEST(a_stated_link_is_as_the_cluster_states_it_now)
{
    struct profile p = {0};
    struct link_model m = {.latency_s = 1, .bandwidth_Bps = 1, .source = SOURCE_STATED};
    profile_set_link(a, &p, "bus", &m);
    profile_set_link(a, &p, "bus", &m);
    ck_assert_uint_eq(p.n_links, 1);
    ck_assert_int_eq(profile_link(&p, &cluster, 0, &m, &err), OK);
    ck_assert_double_eq(m.bandwidth_Bps, 8e9);
    ck_assert_int_eq(m.source, SOURCE_STATED);
}
END_TEST

static double scaled(const struct profile *p, enum op_kind kind, enum dtype t, double *prior)
{
    struct op_attrs attrs = {0};
    struct op_shapes s = product(64, 64, 64);
    enum source source;
    double out = 0;
    const struct catalogue_device *host = NULL;
    if (kind != OP_matmul) s = (struct op_shapes){.n_inputs = 2, .input = {{1, {999}}, {1, {999}}}};
    ck_assert_int_eq(op_infer(kind, &attrs, &s, NULL), OK);
    ck_assert_int_eq(catalogue_find("host", &host, NULL), OK);
    const struct op_prior defaults = op_prior_default("host");
    *prior = op_prior_seconds(&defaults, host, kind, &attrs, &s, t);
    ck_assert_int_eq(
        profile_op_seconds(p, &cluster, 0, kind, &attrs, &s, t, 99, &out, &source, &err), OK);
    ck_assert_int_eq(source, SOURCE_FITTED);
    return out / 1.5; /* the slowdown of fast */
}

START_TEST(what_nobody_measured_is_scaled_by_its_nearest_relatives)
{
    const struct catalogue_device *host = NULL;
    ck_assert_int_eq(catalogue_find("host", &host, NULL), OK);
    double dense_s = catalogue_roofline_seconds(host, 1e9, 1e6, DTYPE_fp32),
           thin_s = catalogue_roofline_seconds(host, 1e6, 1e7, DTYPE_fp32), prior = 0;
    struct op_row row = {
        .base = "host", .kind = OP_matmul, .dtype = DTYPE_fp32, .flops = 1e9, .bytes = 1e6};
    struct op_row rows[] = {row, row, row, row, row};
    for (size_t i = 0; i < 5; i++) {
        rows[i].key = i + 1;
        rows[i].seconds = dense_s * 8;
    }
    rows[1].base = "type:fast"; /* says nothing about its base */
    rows[1].seconds = dense_s * 1000;
    rows[2].dtype = DTYPE_fp64;
    rows[2].seconds = catalogue_roofline_seconds(host, 1e9, 1e6, DTYPE_fp64) * 2;
    for (size_t i = 3; i < 5; i++) {
        rows[i].kind = OP_gelu;
        rows[i].flops = 1e6, rows[i].bytes = 1e7;
        rows[i].seconds = thin_s * 3;
    }
    struct profile p = {.n_ops = 5, .ops = rows};
    profile_scale_prior(a, &p);
    ck_assert_double_eq_tol(scaled(&p, OP_matmul, DTYPE_fp32, &prior) / prior, 8, 1e-9);
    ck_assert_double_eq_tol(scaled(&p, OP_matmul, DTYPE_fp64, &prior) / prior, 2, 1e-9);
    ck_assert_double_eq_tol(scaled(&p, OP_add, DTYPE_fp64, &prior) / prior, 3, 1e-9);
    cluster.types[0].stated.peak_flops[DEVICE_PEAK_fp32] = 1e12; /* measured costs go before it */
    ck_assert_double_eq_tol(scaled(&p, OP_matmul, DTYPE_fp32, &prior) / prior, 8, 1e-9);
    for (size_t i = 0; i < 5; i++) rows[i].dtype = DTYPE_fp32, rows[i].kind = OP_matmul;
    rows[0].seconds = rows[2].seconds = rows[3].seconds = rows[4].seconds = dense_s * 5;
    for (size_t i = 0; i < 5; i++) rows[i].flops = 1e9, rows[i].bytes = 1e6;
    profile_scale_prior(a, &p);
    ck_assert_double_eq_tol(scaled(&p, OP_matmul, DTYPE_fp64, &prior) / prior, 5, 1e-9);
    ck_assert_double_eq_tol(scaled(&p, OP_add, DTYPE_fp32, &prior) / prior, 5, 1e-9);
}
END_TEST

Suite *profile_suite(void)
{
    Suite *s = suite_create("profile");
    TCase *c = tcase_create("profile");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, the_pace_is_the_median_over_what_is_known_and_needs_four);
    tcase_add_test(c, the_lookup_goes_from_the_type_to_its_base_to_the_fit_to_the_catalogue);
    tcase_add_test(c, shards_of_the_experts_take_what_the_fullest_is_expected_to);
    tcase_add_test(c, an_empty_share_takes_no_time);
    tcase_add_test(c, the_nearest_factor_counts);
    tcase_add_test(c, sorting_finds_what_searching_finds);
    tcase_add_test(c, the_prior_needs_known_devices_and_stated_links);
    tcase_add_test(c, a_cost_without_a_source_is_refused);
    tcase_add_test(c, a_measured_link_goes_before_a_stated_one);
    tcase_add_test(c, a_stated_link_is_as_the_cluster_states_it_now);
    tcase_add_test(c, what_nobody_measured_is_scaled_by_its_nearest_relatives);
    suite_add_tcase(s, c);
    return s;
}
