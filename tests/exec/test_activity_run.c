/* Whole runs on the stand-in with CUPTI's twin: the losses of a run without it, and below every operator what it launched. */
#include "exec/worker/worker.h"
#include "traces/kernels.h"

#include "tests/standin/activity.h"
#include "tests/standin/standin.h"
#include "tests/support/activity.h"
#include "tests/support/data.h"
#include "tests/support/plans.h"

static struct error err;

static void need(enum status st) { ck_assert_msg(st == OK, "%s", err.text); }

enum { STEPS = 2, MICROBATCHES = 2 };

static const struct program *on_a_gpu(struct arena *a, const char *model, bool emulated)
{
    struct plan p = plans_new(a, model, 1, 1);
    p.job.model.vocabulary = 256;
    p.cluster.types[0].catalogue = "H100-SXM5";
    p.cluster.types[0].backend = "cuda";
    p.cluster.types[0].memory_bytes = INT64_C(1) << 28;
    if (emulated) p.cluster.emulated = true, p.cluster.types[0].slowdown = 2;
    int32_t last = plans_layers(a, &p) - 1;
    plans_replica(a, &p, MICROBATCHES, 1, &last);
    return plans_lower(a, &p, true);
}

static enum status train(struct arena *a, const struct program *p, bool kernels,
                         struct run_result *r)
{
    const struct run_options o = {
        .steps = STEPS, .data = DATA_FILE("LICENSE"), .keep_trace = true, .keep_kernels = kernels};
    return worker_run(a, p, &o, r, &err);
}

/* Its index; that of no span where there is none. */
static size_t operator_of(const struct trace *t, const struct span *k)
{
    size_t i = 0;
    for (; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i];
        if (s->kind == SPAN_COMPUTE && s->device == k->device && s->step == k->step &&
            s->stage == k->stage && s->phase == k->phase && s->microbatch == k->microbatch &&
            s->op == k->op)
            break;
    }
    return i;
}

/* Every operator has kernels, and they lie in it, but for what two ways to read a clock differ by: events' float of milliseconds and
 * the threads of the stand-in, which the machine may stop between a kernel and its event. */
static void kernels_lie_in_operators(struct arena *a, const struct trace *t)
{
    enum { APART_NS = 1000000 };
    size_t operators = 0, with = 0;
    bool *has = ARENA_ARRAY(a, bool, t->n_spans);
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i];
        operators += s->kind == SPAN_COMPUTE;
        if (s->kind != SPAN_KERNEL || s->op < 0) continue;
        size_t at = operator_of(t, s);
        ck_assert_uint_lt(at, t->n_spans);
        ck_assert_int_ge(s->begin_ns, t->spans[at].begin_ns - APART_NS);
        ck_assert_int_le(s->end_ns, t->spans[at].end_ns + APART_NS);
        with += !has[at];
        has[at] = true;
    }
    ck_assert_uint_gt(operators, 20);
    ck_assert_uint_eq(with, operators);
}

START_TEST(a_run_with_kernels_has_the_losses_of_one_without_and_all_that_its_operators_launched)
{
    struct arena *a = arena_new();
    struct run_result plain, kernels;
    struct kernels k;
    activity_choose_standins();
    const struct program *p = on_a_gpu(a, "gpt2", _i);
    need(train(a, p, false, &plain));
    need(train(a, p, true, &kernels));
    ck_assert_mem_eq(plain.losses, kernels.losses, STEPS * sizeof *plain.losses);
    ck_assert(!plain.trace->kernels && kernels.trace->kernels);
    ck_assert_int_eq(kernels.trace->kernels_lost, 0);
    kernels_lie_in_operators(a, kernels.trace);
    kernels_of_trace(a, kernels.trace, &k);
    size_t between = 0;
    for (size_t i = 0; i < k.n_kinds; i++) {
        ck_assert_int_gt(k.kinds[i].kernels, 0);
        between += !k.kinds[i].kind;
    }
    ck_assert_uint_eq(between, 1); /* inputs up and losses down */
    arena_free(a);
}
END_TEST

START_TEST(a_run_tells_what_was_lost)
{
    struct arena *a = arena_new();
    struct run_result r;
    activity_choose_standins();
    setenv("STANDIN_CUPTI_DROP", "10", 1);
    need(train(a, on_a_gpu(a, "gpt2", false), true, &r));
    ck_assert_int_gt(r.trace->kernels_lost, 5);
    arena_free(a);
}
END_TEST

/* Some calls of each sort, and the very last ones; what each is called stands in the error. */
START_TEST(a_run_whose_profiler_fails_ends_with_why_and_leaves_nothing)
{
    struct arena *a = arena_new();
    struct run_result r;
    char left[200];
    activity_choose_standins();
    const struct program *p = on_a_gpu(a, "gpt2", false);
    standin_cupti_fail_at(0, 0);
    need(train(a, p, true, &r));
    int64_t calls = standin_cupti_calls();
    for (int64_t n = 1; n <= calls; n += n < 12 ? 2 : 1 + calls / 4) {
        err = (struct error){0};
        standin_cupti_fail_at(n, 999);
        enum status st = train(a, p, true, &r);
        const char *call = standin_cupti_failed_call();
        ck_assert_ptr_nonnull(call);
        if (!activity_may_pass(call, st)) {
            ck_assert_msg(st == ERR_RESOURCE, "%s: status %d", call, (int)st);
            ck_assert_msg(strstr(err.text, call) != NULL, "%s: %s", call, err.text);
        }
        standin_cupti_fail_at(0, 0);
        ck_assert_msg(standin_left(left, sizeof left) == 0, "%s: not given back: %s", call, left);
    }
    need(train(a, p, true, &r));
    arena_free(a);
}
END_TEST

START_TEST(a_plan_without_a_cuda_device_has_no_kernels_to_see)
{
    struct arena *a = arena_new();
    struct run_result r;
    activity_choose_standins();
    struct plan plan = plans_new(a, "gpt2", 1, 1);
    plan.job.model.vocabulary = 256;
    int32_t last = plans_layers(a, &plan) - 1;
    plans_replica(a, &plan, MICROBATCHES, 1, &last);
    ck_assert_int_eq(train(a, plans_lower(a, &plan, true), true, &r), ERR_NO_DEVICE);
    ck_assert_msg(strstr(err.text, "has host devices only, which have no kernels to trace") != NULL, "%s",
                  err.text);
    arena_free(a);
}
END_TEST

Suite *activity_run_suite(void)
{
    Suite *s = suite_create("activity_run");
    TCase *c = tcase_create("runs with kernels");
    tcase_add_loop_test(
        c, a_run_with_kernels_has_the_losses_of_one_without_and_all_that_its_operators_launched, 0,
        2);
    tcase_add_test(c, a_run_tells_what_was_lost);
    tcase_add_test(c, a_run_whose_profiler_fails_ends_with_why_and_leaves_nothing);
    tcase_add_test(c, a_plan_without_a_cuda_device_has_no_kernels_to_see);
    suite_add_tcase(s, c);
    return s;
}
