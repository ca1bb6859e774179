/* Predictions beyond the memory of a trace: one step of one replica of each class is explained, and a known time stands for all. */
#include "core/base/arena.h"
#include "sim/explain/explain.h"
#include "tests/support/plans.h"
#include "tools/predict.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

enum { REPLICAS = 20, CLASSES = 2 };

/* Replicas on one device each, half of them with one microbatch more. */
static struct plan replicas(void)
{
    struct plan p = plans_new(arena, "gpt2", 1, REPLICAS);
    int32_t last = plans_layers(arena, &p) - 1;
    for (int32_t r = 0; r < REPLICAS; r++)
        plans_replica(arena, &p, 3 + r / (REPLICAS / CLASSES), 1, &last);
    return p;
}

/* In the arena, because the explained program may be the prediction's own. */
static const struct prediction *predicted(const struct plan *p, int64_t most_bytes,
                                          int64_t known_ns)
{
    struct prediction *x = ARENA_ARRAY(arena, struct prediction, 1);
    struct profile profile;
    struct error err = {0};
    const struct sim_options o = {
        .keep_trace = true, .beside_trace = explain_bytes, .trace_most_bytes = most_bytes};
    ck_assert_msg(profile_prior(arena, &p->cluster, &profile, &err) == OK, "%s", err.text);
    ck_assert_msg(predict(arena, p, &profile, &o, true, known_ns, x, &err) == OK, "%s", err.text);
    return x;
}

/* Bytes that hold the trace of two replicas, but not that of all. */
static int64_t room(const struct plan *p)
{
    const struct prediction *all = predicted(p, 0, 0);
    ck_assert(!all->by_replicas);
    return (int64_t)(all->result.trace->n_spans * sizeof(struct span)) / 4;
}

START_TEST(a_known_time_stands_for_all_devices)
{
    struct plan p = replicas();
    int64_t bytes = room(&p), known_ns = 123456789;
    const struct prediction *x = predicted(&p, bytes, known_ns), *y = predicted(&p, bytes, 0);
    ck_assert(x->by_replicas && y->by_replicas);
    ck_assert_int_eq(x->explained->n_devices, CLASSES);
    ck_assert_int_eq(x->explained_result.steps, 1);
    ck_assert_int_eq(x->result.iteration_ns, known_ns);
    ck_assert_ptr_null(x->result.devices);
    ck_assert_int_gt(y->result.iteration_ns, 0);
    ck_assert_int_ne(y->result.iteration_ns, known_ns);
    ck_assert_ptr_nonnull(y->result.devices);
    ck_assert_int_eq(x->explained_result.iteration_ns, y->explained_result.iteration_ns);
}
END_TEST

START_TEST(what_fits_is_simulated_even_if_a_time_is_known)
{
    struct plan p = replicas();
    const struct prediction *x = predicted(&p, 0, 123456789);
    ck_assert(!x->by_replicas);
    ck_assert_int_ne(x->result.iteration_ns, 123456789);
    ck_assert_int_eq(x->explained->n_devices, REPLICAS);
}
END_TEST

Suite *predict_suite(void)
{
    Suite *s = suite_create("tools/predict");
    TCase *t = tcase_create("predict");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_known_time_stands_for_all_devices);
    tcase_add_test(t, what_fits_is_simulated_even_if_a_time_is_known);
    suite_add_tcase(s, t);
    return s;
}
