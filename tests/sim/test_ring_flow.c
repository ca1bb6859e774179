/* Rings of many ranks as flows beside their messages one by one; folded beside whole. */
#include "sim/engine/ring_flow.h"

#include "tests/support/suites.h"
#include "tests/support/symmetric.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static int32_t count(struct symmetric *c, int32_t *shorts)
{
    const struct program *p = ring_flow_make(c->a, &c->program, c->cost, &c->scale);
    int32_t n = 0;
    *shorts = 0;
    for (int32_t i = 0; i < p->n_collectives; i++) {
        n += p->collectives[i].flow_link > 0;
        *shorts += p->collectives[i].stands_for > 0;
    }
    return n;
}

/* Iterations that are mostly gradients on slow links, of stages whose rings contend: the flow is a model. In most programs nothing is
 * contended and the times are equal. */
START_TEST(flows_take_as_long_as_messages_and_fold)
{
    int32_t n = 0, near = 0, fewer = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 600 : 36); seed++) {
        struct symmetric c;
        arena_reset(arena);
        if (symmetric_make_of(&c, arena, seed, 33 + (int32_t)(seed % 24)) != OK) continue;
        int32_t shorts, flows = count(&c, &shorts);
        if (!flows && !shorts) continue;
        struct sim_result each =
                              symmetric_simulated(&c, (struct sim_options){.each_message = true}),
                          whole = symmetric_simulated(&c, (struct sim_options){0}),
                          folded = symmetric_simulated(&c, (struct sim_options){.fold = true});
        double ratio = (double)whole.iteration_ns / (double)each.iteration_ns;
        ck_assert_msg(ratio > 0.75 && ratio < 1.25, "seed %d: %ld ns by messages, %ld by flows",
                      (int)seed, (long)each.iteration_ns, (long)whole.iteration_ns);
        ck_assert_msg(whole.iteration_ns == folded.iteration_ns, "seed %d: %ld ns, folded %ld",
                      (int)seed, (long)whole.iteration_ns, (long)folded.iteration_ns);
        n++, near += ratio > 0.99 && ratio < 1.01;
        fewer += folded.operators < whole.operators;
    }
    ck_assert_msg(near * 2 > n && fewer * 2 > n, "%d of %d within 1 %%, %d folded", (int)near,
                  (int)n, (int)fewer);
}
END_TEST

START_TEST(a_trace_has_one_span_a_rank)
{
    struct symmetric c;
    for (uint64_t seed = 0;; seed++) {
        int32_t shorts;
        arena_reset(arena);
        if (symmetric_make_of(&c, arena, seed, 40) == OK && count(&c, &shorts)) break;
    }
    const struct program *p = ring_flow_make(c.a, &c.program, c.cost, &c.scale);
    struct sim_result r = symmetric_simulated(&c, (struct sim_options){.keep_trace = true}),
                      without = symmetric_simulated(&c, (struct sim_options){0});
    ck_assert_int_eq(r.iteration_ns, without.iteration_ns);
    for (size_t i = 0; i < r.trace->n_spans; i++)
        if (r.trace->spans[i].kind == SPAN_REDUCE && p->collectives[r.trace->spans[i].op].flow_link)
            ck_assert_int_eq(r.trace->spans[i].part, 0);
}
END_TEST

Suite *ring_flow_suite(void)
{
    Suite *s = suite_create("sim/engine/ring_flow");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, flows_take_as_long_as_messages_and_fold);
    tcase_add_test(t, a_trace_has_one_span_a_rank);
    suite_add_tcase(s, t);
    return s;
}
