/* Lateness at collectives: learned from traces by hand, charged in simulations of sharded stages. */
#include "profiles/skew.h"

#include "sim/engine/sim.h"
#include "sim/explain/explain.h"
#include "tests/support/plans.h"

#include <math.h>

static struct arena *a;
static struct error err;
static void set_up(void) { a = arena_new(); }
static void tear_down(void) { arena_free(a); }

/* --- by hand --- */

enum { DEVICES = 2, OCCASIONS = 3 };

static struct trace *empty(void)
{
    static struct program_device devices[DEVICES] = {{.name = "a.0", .type = "x"},
                                                     {.name = "a.1", .type = "x"}};
    struct program p = {.name = "made", .n_devices = DEVICES, .devices = devices, .n_stages = 1};
    return trace_new(a, "host", &p);
}

static int64_t add(struct trace *t, enum span_kind kind, int32_t device, int32_t step,
                   int64_t begin, int64_t ns)
{
    trace_add(t, (struct span){.kind = kind,
                               .stream = kind == SPAN_COMPUTE ? STREAM_compute : STREAM_collective,
                               .device = device,
                               .peer = -1,
                               .phase = PHASE_F,
                               .step = step,
                               .op = 5,
                               .collective = kind == SPAN_REDUCE ? 1 + COLLECTIVE_ALL_GATHER : 0,
                               .begin_ns = begin,
                               .end_ns = begin + ns,
                               .name = "x"});
    return begin + ns;
}

/* Every step has two operators, a collective in two parts, and an operator after it without a collective. */
static struct trace *met(const int64_t work[][DEVICES], int32_t steps)
{
    struct trace *t = empty();
    for (int32_t s = 0; s < steps; s++)
        for (int32_t d = 0; d < DEVICES; d++) {
            int64_t at = 10000 * s;
            at = add(t, SPAN_COMPUTE, d, s, at, work[s][d] - 30);
            at = add(t, SPAN_COMPUTE, d, s, at, 30);
            at = add(t, SPAN_REDUCE, d, s, 10000 * s + 1000, 50);
            at = add(t, SPAN_REDUCE, d, s, at, 50);
            t->spans[t->n_spans - 1].part = 1;
            add(t, SPAN_COMPUTE, d, s, at, 700 + 100 * d * s);
        }
    return t;
}

/* Others' sums say 1, 0, 1 is the slowest: 90, 100 and 80 were expected, 100, 130 and 100 it was. */
START_TEST(the_last_one_is_late_by_what_nobody_expected)
{
    static const int64_t work[1 + OCCASIONS][DEVICES] = {
        {900, 40}, {100, 90}, {100, 130}, {100, 80}};
    struct trace *t = met(work, 1 + OCCASIONS);
    struct profile p = {0};
    skew_learn(a, &t, 1, "run:x", &p);
    ck_assert_uint_eq(p.n_skews, 1);
    ck_assert_int_eq(p.skews[0].samples, OCCASIONS);
    ck_assert_str_eq(p.skews[0].provenance, "run:x");
    ck_assert_double_eq_tol(skew_share(&p, 2), (10.0 + 30 + 20) / (90 + 100 + 80), 1e-12);
    ck_assert_double_eq_tol(p.skews[0].spread, 60.0 / 270 / (log(1.625 / 0.625) / 1.702), 1e-12);
}
END_TEST

START_TEST(more_devices_wait_longer_and_one_never)
{
    struct skew_row row = {"collectives", 0.1, 9, "run:x"};
    struct profile p = {.n_skews = 1, .skews = &row}, none = {0};
    ck_assert_double_eq(skew_share(&p, 1), 0);
    /* normal scores: 0.564 of 2, 1.029 of 4, 1.424 of 8; the logistic for the normal is 3 % off */
    ck_assert_double_eq_tol(skew_share(&p, 2), 0.0564, 0.002);
    ck_assert_double_eq_tol(skew_share(&p, 4), 0.1029, 0.003);
    ck_assert_double_eq_tol(skew_share(&p, 8), 0.1424, 0.005);
    for (int32_t n = 1; n < 64; n++) ck_assert(skew_share(&p, n + 1) > skew_share(&p, n));
    ck_assert_double_eq(skew_share(&none, 4), 0);
}
END_TEST

START_TEST(runs_that_cannot_tell_leave_what_is_known)
{
    static const int64_t once[][DEVICES] = {{900, 40}, {100, 90}};
    struct skew_row row = {"collectives", 0.1, 9, "run:before"};
    struct profile p = {.n_skews = 1, .skews = &row};
    struct trace *t = met(once, 2); /* one occasion that counts */
    skew_learn(a, &t, 1, "run:x", &p);
    ck_assert_ptr_eq(p.skews, &row);
    t = empty();
    for (int32_t s = 0; s < 4; s++) /* sums alone */
        for (int32_t d = 0; d < DEVICES; d++) {
            add(t, SPAN_COMPUTE, d, s, 1000 * s, 100 + 7 * s * d);
            add(t, SPAN_REDUCE, d, s, 1000 * s + 500, 10);
            t->spans[t->n_spans - 1].collective = 0;
        }
    skew_learn(a, &t, 1, "run:x", &p);
    ck_assert_ptr_eq(p.skews, &row);
    static const int64_t work[][DEVICES] = {{900, 40}, {100, 90}, {100, 130}, {100, 80}};
    t = met(work, 4);
    t->n_spans -= 5; /* the second device is not there the last time */
    skew_learn(a, &t, 1, "run:x", &p);
    ck_assert_ptr_eq(p.skews, &row);
}
END_TEST

/* --- in simulations --- */

/* A tiny gpt2 on one node of equal devices, sharded evenly: by heads, features and positions. */
static struct plan shared(int n)
{
    const char *list = "", *names = "";
    struct plan p;
    struct node *root;
    for (int i = 0; i < n; i++) {
        list = arena_printf(a, "%s%s{type: cpu}", list, i ? ", " : "");
        names = arena_printf(a, "%s%sa.%d", names, i ? ", " : "", i);
    }
    const char *text = arena_printf(
        a,
        "version: 1\nname: made\nmicrobatch: 12\nreplicas:\n  - microbatches: 2\n    stages:\n"
        "      - layers: [0, 4]\n        devices: [%s]\n        sharding:\n          operators:\n"
        "            - {match: \"h.*.attn.*\", shard: heads}\n"
        "            - {match: \"h.*.mlp.c_proj\", shard: inputs}\n"
        "            - {match: \"h.*.mlp.*\", shard: features}\n"
        "job:\n  version: 1\n  model: {model_type: gpt2, n_embd: 48, n_layer: 1, n_head: 4, "
        "n_positions: 32, vocab_size: 96, tie_word_embeddings: false}\n  sequence_length: 16\n  "
        "global_batch: 24\n"
        "cluster:\n  version: 1\n  name: here\n  device_types: [{name: cpu, device: host, memory: "
        "1 GiB, slowdown: 2}]\n  nodes: [{name: a, host: localhost, devices: [%s]}]\n"
        "  links: [{name: in-a, between: [a], bandwidth: 10 GB/s, latency: 1 us}]\n",
        names, list);
    ck_assert_msg(document_parse(a, "made", text, strlen(text), &root, &err) == OK, "%s", err.text);
    ck_assert_msg(plan_parse(a, root, ".", &p, &err) == OK, "%s", err.text);
    p.replicas[0].stages[0].last_layer = plans_layers(a, &p) - 1;
    return p;
}

static struct profile with(const struct plan *p, double spread)
{
    struct profile f;
    ck_assert_msg(profile_prior(a, &p->cluster, &f, &err) == OK, "%s", err.text);
    f.skews = ARENA_ARRAY(a, struct skew_row, 1);
    f.skews[0] = (struct skew_row){"collectives", spread, 1, "run:x"};
    f.n_skews = 1;
    return f;
}

static struct sim_result simulated(const struct program *p, struct cost *k, bool trace)
{
    struct sim_result r;
    struct sim_options o = {.steps = 3, .keep_trace = trace};
    ck_assert_msg(sim_run(a, p, k, &o, &r, &err) == OK, "%s", err.text);
    return r;
}

/* Work before each collective of one step of the first device, times the share, by the program and its prices. */
static int64_t lateness_ns(const struct program *p, struct cost *k, double share)
{
    const struct program_stage *s = &p->stages[p->lanes[0].stages[0]];
    int64_t late = 0;
    struct cursor c;
    struct call call;
    cursor_start(&c, &p->orders[p->lanes[0].order]);
    while (cursor_next(&c, &call)) {
        const struct procedure *f = &s->procedures[call.procedure];
        int64_t work = 0, ns = 0;
        for (int32_t i = 0; i < f->n_instrs; i++) {
            const struct instr *x = &f->instrs[i];
            if (x->kind == INSTR_COMPUTE) {
                ck_assert_int_eq(cost_op(k, 0, &s->ops[x->arg], &ns, &err), OK);
                work += ns;
            } else if (x->kind == INSTR_COLLECTIVE) {
                late += llround(share * (double)work);
                work = 0;
            }
        }
    }
    return late;
}

/* Equal devices: all arrive at one time, and equally late. */
START_TEST(a_step_is_longer_by_the_lateness_of_all_its_collectives)
{
    for (int n = 2; n <= 4; n += 2) {
        struct plan plan = shared(n);
        struct program *p = plans_lower(a, &plan, false);
        struct profile none = with(&plan, 0), some = with(&plan, 0.2);
        struct cost *k0 = cost_new(a, &none, &plan.cluster), *k = cost_new(a, &some, &plan.cluster);
        int64_t late = lateness_ns(p, k, skew_share(&some, n));
        int64_t without = simulated(p, k0, false).iteration_ns,
                longer = simulated(p, k, false).iteration_ns;
        ck_assert_int_gt(late, 1000);
        ck_assert_int_eq(longer - without, late);
        struct sim_options o = {.steps = 3, .detail = SIM_STAGE};
        struct sim_result stage;
        ck_assert_msg(sim_run(a, p, k, &o, &stage, &err) == OK, "%s", err.text);
        ck_assert_int_eq(stage.iteration_ns, longer);
    }
}
END_TEST

START_TEST(lateness_is_a_part_of_the_critical_path_and_no_work)
{
    struct plan plan = shared(4);
    struct program *p = plans_lower(a, &plan, false);
    struct profile none = with(&plan, 0), some = with(&plan, 0.2);
    struct cost *k = cost_new(a, &some, &plan.cluster);
    struct sim_result r = simulated(p, k, true),
                      before = simulated(p, cost_new(a, &none, &plan.cluster), true);
    struct explain x;
    int64_t sum = 0;
    ck_assert_msg(explain_result(a, p, k, &r, &x, &err) == OK, "%s", err.text);
    for (int i = 0; i < EXPLAIN_KIND_COUNT; i++) sum += x.kind_ns[i];
    ck_assert_int_eq(sum, r.iteration_ns);
    ck_assert_int_eq(x.kind_ns[EXPLAIN_skew], lateness_ns(p, k, skew_share(&some, 4)));
    for (int32_t d = 0; d < 4; d++)
        ck_assert_int_eq(r.devices[d].busy_ns, before.devices[d].busy_ns);
}
END_TEST

START_TEST(who_never_varies_is_never_late)
{
    struct plan plan = shared(2);
    struct program *p = plans_lower(a, &plan, false);
    struct profile none = with(&plan, 0), p2 = {0};
    struct trace *t = simulated(p, cost_new(a, &none, &plan.cluster), true).trace;
    skew_learn(a, &t, 1, "run:x", &p2);
    ck_assert_uint_eq(p2.n_skews, 1);
    ck_assert_int_gt(p2.skews[0].samples, 10);
    ck_assert_double_eq(p2.skews[0].spread, 0);
}
END_TEST

Suite *skew_suite(void)
{
    const TTest *tests[] = {the_last_one_is_late_by_what_nobody_expected,
                            more_devices_wait_longer_and_one_never,
                            runs_that_cannot_tell_leave_what_is_known,
                            a_step_is_longer_by_the_lateness_of_all_its_collectives,
                            lateness_is_a_part_of_the_critical_path_and_no_work,
                            who_never_varies_is_never_late};
    Suite *suite = suite_create("skew");
    TCase *c = tcase_create("skew");
    tcase_add_checked_fixture(c, set_up, tear_down);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(c, tests[i]);
    suite_add_tcase(suite, c);
    return suite;
}
