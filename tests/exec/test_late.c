/* Lanes on devices that are late (tests/support/deferred.h), one rank: the bits of the host, whatever fails ends cleanly, what a
 * device cannot is refused before it is opened. Several ranks are tests/programs/late_ranks.c's. */
#include "exec/worker/worker.h"

#include "tests/support/deferred.h"
#include "tests/support/plans.h"

#include <unistd.h>

static struct arena *arena;
static const struct deferred_options usual = {
    .mode = DEFERRED_LAZY, .memory_bytes = INT64_C(1) << 40, .name = "Late H200-141 GB"};

static void setup(void)
{
    arena = arena_new();
    deferred_options = usual;
}
static void teardown(void) { arena_free(arena); }

static struct program *on(struct program *p, const char *kind)
{
    for (int32_t i = 0; i < p->n_devices; i++) {
        p->devices[i].kind = kind;
        p->devices[i].gpu = "";
        p->devices[i].memory_bytes = 1;
    }
    return p;
}

static struct program *small(const char *model, int32_t microbatches, double slowdown)
{
    struct plan p = plans_new(arena, model, 1, 1);
    p.cluster.types[0].slowdown = slowdown;
    p.cluster.emulated = slowdown > 0;
    int32_t last = plans_layers(arena, &p) - 1;
    plans_replica(arena, &p, microbatches, 1, &last);
    return plans_lower(arena, &p, true);
}

static struct run_result run(struct program *p, struct run_options o)
{
    struct run_result r;
    struct error err = {0};
    o.backends = deferred_backends;
    ck_assert_msg(worker_run(arena, p, &o, &r, &err) == OK, "%s", err.text);
    return r;
}

static void refused(struct program *p, enum status status, const char *why)
{
    struct run_options o = {.steps = 1, .backends = deferred_backends};
    struct run_result r;
    struct error err = {0};
    ck_assert_int_eq(worker_run(arena, p, &o, &r, &err), status);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' is not in: %s", why, err.text);
}

static void same_losses(struct program *p, int64_t steps, bool trace)
{
    struct run_options o = {.steps = steps, .keep_trace = trace};
    struct run_result host = run(on(p, "host"), o);
    for (int mode = 0; mode < 2; mode++) {
        deferred_options.mode = (enum deferred_mode)mode;
        struct run_result late = run(on(p, "cuda"), o);
        ck_assert_mem_eq(host.losses, late.losses, (size_t)steps * sizeof *host.losses);
        ck_assert_int_gt(late.iteration_ns, 0);
    }
    ck_assert_int_eq(deferred_left(), 0);
}

START_TEST(a_late_device_trains_to_the_bits_of_the_host)
{
    same_losses(small("gpt2", 3, 0), 5, false);
    same_losses(small("llama", 3, 0), 5, true);
}
END_TEST

START_TEST(several_stages_of_one_device_pass_messages_and_reduces_on_it)
{
    int local = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct plan plan = plans_random_chunks(arena, seed);
        if (plan.n_replicas > 1) continue;
        struct program *p = plans_lower(arena, &plan, seed % 2);
        if (p->n_devices > 1 || p->n_stages < 2) continue;
        for (int32_t g = 0; g < p->n_collectives; g++) local += p->collectives[g].algorithm == ALGORITHM_LOCAL;
        same_losses(p, 3, seed % 2);
    }
    ck_assert_int_gt(local, 0);
}
END_TEST

/* The call that fails is the one that is told of; with the device gone for good as well as with a single failure. */
static void fail_each(struct program *p, bool lost, bool trace)
{
    struct run_options o = {.steps = 2, .keep_trace = trace, .backends = deferred_backends};
    deferred_options.fail_at = 0;
    deferred_reset();
    run(p, o);
    int64_t total = deferred_calls(), told = 0;
    for (int64_t n = 1; n < total; n += suites_long() ? 1 : 1 + total / 150) {
        struct run_result r;
        struct error err = {0};
        deferred_options.fail_at = n;
        deferred_options.lost = lost;
        deferred_reset();
        enum status status = worker_run(arena, p, &o, &r, &err);
        ck_assert_int_eq(deferred_left(), 0);
        if (status == OK) continue; /* a look more or less, by another thread */
        ck_assert_int_eq(status, ERR_RESOURCE);
        ck_assert_msg(strstr(err.text, "late device: call ") != NULL, "%s", err.text);
        told++;
    }
    ck_assert_int_gt(told, 50);
}

START_TEST(whichever_call_of_a_device_fails_the_run_ends_and_says_so)
{
    fail_each(on(small("gpt2", 2, 0), "cuda"), false, true);
    deferred_options = usual;
    deferred_options.mode = DEFERRED_THREADS;
    fail_each(on(small("gpt2", 2, 0), "cuda"), true, false);
}
END_TEST

START_TEST(a_device_is_compared_with_what_the_program_says_it_is)
{
    struct program *p = on(small("gpt2", 1, 0), "cuda");
    static const struct {
        const char *gpu, *why;
    } gpus[] = {
        {"A100-SXM4-40", "to be A100-SXM4-40"}, {"H20", "to be H20"}, {"H200-SXM", NULL}};
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        p->devices[0].gpu = gpus[i].gpu;
        if (gpus[i].why)
            refused(p, ERR_INPUT, gpus[i].why);
        else
            run(p, (struct run_options){.steps = 1});
    }
    p->devices[0].index = 16;
    refused(p, ERR_INPUT, "is number 16 of its host, which has 16 cuda devices");
    p->devices[0].index = 0;
    p->devices[0].memory_bytes = INT64_C(1) << 41;
    refused(p, ERR_INPUT, "is to have 2199023255552 bytes of memory");
    p->devices[0].memory_bytes = 1000;
    deferred_options.memory_bytes = 1000;
    refused(p, ERR_RESOURCE, "it has 1000");
    deferred_options = usual;
    p->devices[0].kind = "abacus";
    refused(p, ERR_INPUT, "abacus");
}
END_TEST

START_TEST(a_dtype_that_a_device_lacks_is_refused_by_its_name)
{
    struct program *p = on(small("gpt2", 1, 0), "cuda");
    p->dtype = DTYPE_bf16;
    refused(p, ERR_INPUT,
            "is Late H200-141 GB, which does not support bf16, only fp32, fp64");
}
END_TEST

/* Virtual time is slowdown × what the device's events say: twice the slowdown, the same order, no overlap, and losses that know
 * nothing of it. */
START_TEST(a_slower_gpu_is_emulated_on_its_own_clock)
{
    struct run_options o = {.steps = 2, .keep_trace = true};
    struct program *plain = on(small("gpt2", 2, 0), "host"), *p = on(small("gpt2", 2, 3), "cuda");
    deferred_options.mode = DEFERRED_THREADS;
    struct run_result real = run(plain, o), slow = run(p, o);
    ck_assert_mem_eq(real.losses, slow.losses, 2 * sizeof *real.losses);
    ck_assert(slow.trace->emulated);
    ck_assert_str_eq(slow.trace->clock, "virtual");
    const struct span *before = NULL;
    int operators = 0;
    for (size_t i = 0; i < slow.trace->n_spans; i++) {
        const struct span *s = &slow.trace->spans[i];
        if (s->kind != SPAN_COMPUTE) continue;
        if (before) ck_assert_int_le(before->end_ns, s->begin_ns);
        ck_assert_int_gt(s->end_ns, s->begin_ns);
        before = s;
        operators++;
    }
    ck_assert_int_gt(operators, 50);
    /* the wall waits for the virtual clock */
    ck_assert_int_ge(slow.iteration_ns, 0);
    for (size_t i = 0; i < slow.trace->n_spans; i++)
        if (slow.trace->spans[i].kind == SPAN_STEP && slow.trace->spans[i].step == 1)
            ck_assert_int_ge(slow.trace->spans[i].end_ns, before->end_ns);
}
END_TEST

Suite *late_suite(void)
{
    Suite *s = suite_create("late");
    TCase *t = tcase_create("late");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 600);
    tcase_add_test(t, a_late_device_trains_to_the_bits_of_the_host);
    tcase_add_test(t, several_stages_of_one_device_pass_messages_and_reduces_on_it);
    tcase_add_test(t, whichever_call_of_a_device_fails_the_run_ends_and_says_so);
    tcase_add_test(t, a_device_is_compared_with_what_the_program_says_it_is);
    tcase_add_test(t, a_dtype_that_a_device_lacks_is_refused_by_its_name);
    tcase_add_test(t, a_slower_gpu_is_emulated_on_its_own_clock);
    suite_add_tcase(s, t);
    return s;
}
