/* Large traces and explanations: spans that wait on disk, and one replica that stands for others. */
#include "sim/engine/representatives.h"
#include "sim/explain/explain.h"
#include "tests/support/hybrid.h"
#include "tests/support/plans.h"

#include "profiles/profile.h"

#include "core/base/file.h"

#include <stdio.h>
#include <unistd.h>

static struct arena *arena;
static struct error err;
static char folder[] = "/tmp/musher-stream-XXXXXX", file_a[64], file_b[64];

static void setup(void)
{
    arena = arena_new();
    memcpy(strrchr(folder, '-') + 1, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(file_a, sizeof file_a, "%s/a", folder);
    snprintf(file_b, sizeof file_b, "%s/b", folder);
}

static void teardown(void)
{
    unlink(file_a);
    unlink(file_b);
    ck_assert_int_eq(rmdir(folder), 0); /* no temporary is left */
    arena_free(arena);
}

static const struct hybrid shape = {.tensor = 2,
                                    .pipeline = 3,
                                    .data = 4,
                                    .microbatches = 6,
                                    .layers = 2,
                                    .ops = 2,
                                    .forward_ns = 1000,
                                    .backward_ns = 2000,
                                    .update_ns = 500,
                                    .transfer_bytes = 300,
                                    .collective_elements = 40,
                                    .gradient_elements = 400,
                                    .latency_ns = 20};

static struct sim_result run(const struct program *p, struct cost *k, struct sim_options o)
{
    struct sim_result r = {0};
    ck_assert_msg(sim_run(arena, p, k, &o, &r, &err) == OK, "%s", err.text);
    return r;
}

static char *content(const char *path)
{
    char *text = NULL;
    ck_assert_msg(file_read(arena, path, 1 << 26, &text, NULL, &err) == OK, "%s", err.text);
    return text;
}

START_TEST(a_trace_through_the_disk_is_the_same_file)
{
    struct hybrid_made *m = hybrid_make(arena, &shape);
    struct sim_result whole = run(&m->program, m->cost, (struct sim_options){.keep_trace = true});
    ck_assert_int_eq(trace_write(whole.trace, file_a, &err), OK);
    ck_assert_ptr_null(whole.trace->spill);
    for (size_t window = 1; window < 4000; window = 3 * window + 1) {
        struct sim_options o = {
            .keep_trace = true, .trace_path = file_b, .trace_window = window};
        struct sim_result r = run(&m->program, m->cost, o);
        ck_assert_ptr_nonnull(r.trace->spill);
        ck_assert_msg(r.trace->capacity <= 2 * window + 32, "%zu spans in memory", r.trace->capacity);
        ck_assert_msg(trace_write(r.trace, file_b, &err) == OK, "%s", err.text);
        trace_stream_end(r.trace);
        ck_assert_msg(!strcmp(content(file_a), content(file_b)), "window %zu", window);
    }
}
END_TEST

START_TEST(a_disk_that_takes_no_spans_is_an_error_with_its_reason)
{
    struct hybrid_made *m = hybrid_make(arena, &shape);
    struct sim_options o = {.keep_trace = true, .trace_path = file_b, .trace_window = 100};
    struct sim_result r = run(&m->program, m->cost, o);
    trace_stream_end(r.trace);
    const char *tmp = getenv("TMPDIR");
    char *before = tmp ? arena_strdup(arena, tmp) : NULL;
    setenv("TMPDIR", "/nowhere", 1);
    o.trace_path = "/nowhere/too/file";
    r = run(&m->program, m->cost, o);
    ck_assert_int_eq(trace_write(r.trace, file_b, &err), ERR_RESOURCE);
    ck_assert_ptr_nonnull(strstr(err.text, "in a temporary file: No such file"));
    ck_assert_int_ne(access(file_b, F_OK), 0);
    if (before)
        setenv("TMPDIR", before, 1);
    else
        unsetenv("TMPDIR");
}
END_TEST

/* Replicas of two stages on devices with a link to each other one; the last `unequal` ones have more microbatches. */
static struct plan replicas_of(int32_t n, int32_t unequal)
{
    struct plan p = plans_new(arena, "gpt2", 2, 2 * n);
    const int32_t last[] = {1, plans_layers(arena, &p) - 1};
    for (int32_t r = 0; r < n; r++) plans_replica(arena, &p, r < n - unequal ? 5 : 6, 2, last);
    int32_t k = 0, devices = 2 * n;
    p.cluster.links =
        ARENA_ARRAY(arena, struct link, (size_t)(p.cluster.n_links = devices * (devices - 1) / 2));
    for (int32_t x = 0; x < devices; x++)
        for (int32_t y = x + 1; y < devices; y++)
            p.cluster.links[k++] = (struct link){.name = arena_printf(arena, "l%d-%d", x, y),
                                                 .bandwidth_Bps = 1e9,
                                                 .latency_s = 1e-6,
                                                 .stated = true,
                                                 .n_ends = 2,
                                                 .kind = {END_DEVICE, END_DEVICE},
                                                 .end = {x, y}};
    return p;
}

static void near(int64_t one, int64_t all, int64_t iteration)
{
    ck_assert_msg(llabs(one - all) * 200 <= iteration, "%ld instead of %ld ns, of an iteration of %ld",
                  (long)one, (long)all, (long)iteration);
}

/* With links of their own one replica of each class has the explanation of all, but for the rounding of a ring's chunks. */
static void explains(int32_t n, int32_t unequal, const bool *keep, int32_t kept)
{
    struct plan plan = replicas_of(n, unequal);
    const struct program *all = plans_lower(arena, &plan, true);
    struct profile profile;
    ck_assert_int_eq(profile_prior(arena, &plan.cluster, &profile, &err), OK);
    struct cost *k = cost_new(arena, &profile, &plan.cluster);
    struct program one;
    struct explain of_all, of_one;
    const struct sim_options o = {.keep_trace = true};
    ck_assert(representatives_make(arena, all, k, keep, &one));
    ck_assert_int_eq(one.n_devices, 2 * kept);
    ck_assert_int_eq(one.n_channels * n, all->n_channels * kept);
    ck_assert(kept == n ? one.n_collectives == all->n_collectives
                        : one.n_collectives < all->n_collectives);
    struct sim_result r = run(all, k, o), s = run(&one, k, o);
    near(s.iteration_ns, r.iteration_ns, r.iteration_ns);
    ck_assert_msg(explain_result(arena, all, k, &r, &of_all, &err) == OK, "%s", err.text);
    ck_assert_msg(explain_result(arena, &one, k, &s, &of_one, &err) == OK, "%s", err.text);
    for (int x = 0; x < EXPLAIN_KIND_COUNT; x++)
        near(of_one.kind_ns[x], of_all.kind_ns[x], r.iteration_ns);
    for (int32_t i = 0, at = 0; i < all->n_devices; i++) {
        if (!keep[all->stages[all->lanes[i].stages[0]].replica]) continue;
        const struct explain_device *x = &of_one.devices[at], *y = &of_all.devices[i];
        ck_assert_str_eq(one.devices[at++].name, all->devices[i].name);
        ck_assert_int_eq(x->busy_ns, y->busy_ns);
        for (int w = 0; w < SIM_WAIT_COUNT; w++)
            near(x->wait_ns[w], y->wait_ns[w], r.iteration_ns);
    }
}

START_TEST(one_replica_of_each_class_explains_what_all_do)
{
    explains(4, 0, (const bool[]){true, false, false, false}, 1);
    explains(4, 0, (const bool[]){true, true, true, true}, 4);
    explains(6, 2, (const bool[]){true, false, false, false, true, false}, 2);
}
END_TEST

Suite *representatives_suite(void)
{
    Suite *s = suite_create("representatives");
    TCase *t = tcase_create("representatives");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_trace_through_the_disk_is_the_same_file);
    tcase_add_test(t, a_disk_that_takes_no_spans_is_an_error_with_its_reason);
    tcase_add_test(t, one_replica_of_each_class_explains_what_all_do);
    suite_add_tcase(s, t);
    return s;
}
