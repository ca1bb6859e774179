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

/* The shortest route between two devices of a node is its half-duplex network link and back. */
START_TEST(a_link_that_a_route_crosses_twice_is_loaded_once)
{
    struct symmetric c;
    int32_t shorts;
    ck_assert_int_eq(symmetric_make_of(&c, arena, 90, 51), OK);
    ck_assert_int_gt(count(&c, &shorts), 0);
    struct sim_result each = symmetric_simulated(&c, (struct sim_options){.each_message = true}),
                      whole = symmetric_simulated(&c, (struct sim_options){0});
    ck_assert_msg(llabs(whole.iteration_ns - each.iteration_ns) < each.iteration_ns / 20,
                  "%ld ns by messages, %ld by flows", (long)each.iteration_ns, (long)whole.iteration_ns);
}
END_TEST

/* Whether all rings of messages have equal chunks: then folding is exact (sim/engine/fold.h). */
static bool chunks_are_equal(const struct program *p, int32_t *rings)
{
    bool equal = true;
    *rings = 0;
    for (int32_t i = 0; i < p->n_collectives; i++) {
        const struct collective *g = &p->collectives[i];
        if (!program_collective_rings(g) || g->flow_link || g->stands_for || g->n_members < 2) continue;
        (*rings)++;
        equal &= g->elements % g->n_members == 0;
    }
    return equal;
}

/* 9 to 39 replicas of stages on one to four devices: gradients of shards are rings of messages beside flows. Flows of several stages
 * over equal links have a pace each. */
START_TEST(flows_fold_beside_rings_of_messages)
{
    int32_t n = 0, mixed = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 900 : 100); seed++) {
        struct symmetric c;
        arena_reset(arena);
        if (symmetric_make_of(&c, arena, seed, 9 + (int32_t)(seed * 7 % 31)) != OK) continue;
        int32_t shorts, rings, flows = count(&c, &shorts);
        if (!flows || !chunks_are_equal(ring_flow_make(arena, &c.program, c.cost, &c.scale), &rings))
            continue;
        struct sim_result whole = symmetric_simulated(&c, (struct sim_options){0}),
                          folded = symmetric_simulated(&c, (struct sim_options){.fold = true});
        ck_assert_msg(whole.iteration_ns == folded.iteration_ns, "seed %d: %ld ns, folded %ld",
                      (int)seed, (long)whole.iteration_ns, (long)folded.iteration_ns);
        n++, mixed += rings > 0;
    }
    ck_assert_msg(n >= 15 && mixed >= 5, "%d with flows, %d with rings of messages", (int)n, (int)mixed);
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

/* Six replicas, each a stage on the four GPUs of a node: their norms are added over all 24, the shards of other parameters over six. */
static void make_tensor_sharded(struct symmetric *c)
{
    static const char text[] =
        "version: 1\nname: x\nmicrobatch: 4\nreplicas:\n%sjob: {version: 1, sequence_length: 16, "
        "global_batch: 96, model: {model_type: gpt2, n_embd: 96, n_layer: 2, n_head: 4, n_positions: "
        "96, vocab_size: 96, tie_word_embeddings: false}}\ncluster:\n  version: 1\n  name: c\n  "
        "device_types: [{name: g, device: A100-SXM4-40}]\n  nodes: [{name: n, count: 6, devices: "
        "{type: g, count: 4}}]\n  switches: [{name: core}]\n  links:\n    - {name: bus, count: 6, "
        "between: [n], sharing: fair, bandwidth: 100 GB/s, latency: 2 us}\n    - {name: nic, count: 6, "
        "between: [n, core], sharing: fair, bandwidth: 1 GB/s, latency: 5 us}\n";
    static const char rules[] =
        "{match: \"*ln_*\", shard: positions}, {match: \"*attn*\", shard: heads}, {match: "
        "\"*mlp.c_proj*\", shard: inputs}, {match: \"*mlp*\", shard: features}";
    const char *replicas = "";
    *c = (struct symmetric){.a = arena};
    for (int i = 0; i < 6; i++)
        SYMMETRIC_PUT(c, replicas,
                      "  - {microbatches: 4, stages: [{layers: [0, 7], devices: [n%d.0, n%d.1, n%d.2, "
                      "n%d.3], sharding: {operators: [%s]}}]}\n",
                      i, i, i, i, rules);
    ck_assert_msg(symmetric_parse(c, arena_printf(arena, text, replicas)) == OK, "%s", c->err.text);
    ck_assert_msg(symmetric_lower(c) == OK, "%s", c->err.text);
}

/* Each of the two rings takes 46 steps of 10 us, together a fifth of the iteration; by messages steps within a node are shorter. */
START_TEST(short_rings_over_the_devices_of_stages_take_their_steps)
{
    struct symmetric c;
    make_tensor_sharded(&c);
    const struct program *p = ring_flow_make(arena, &c.program, c.cost, &c.scale);
    int32_t shared = 0;
    for (int32_t i = 0; i < p->n_collectives; i++) {
        const struct collective *g = &p->collectives[i];
        if (collective_of_tensor(g)) continue;
        ck_assert(g->n_members == 6 || g->n_members == 24);
        ck_assert_int_eq(g->stands_for, g->n_members == 24 ? 24 : 0);
        ck_assert_int_eq(g->flow_link, 0);
        shared += g->n_members == 24;
    }
    ck_assert_int_gt(shared, 0);
    struct sim_result each = symmetric_simulated(&c, (struct sim_options){.each_message = true}),
                      whole = symmetric_simulated(&c, (struct sim_options){0}),
                      folded = symmetric_simulated(&c, (struct sim_options){.fold = true});
    ck_assert_int_eq(whole.iteration_ns, folded.iteration_ns);
    ck_assert_msg(llabs(whole.iteration_ns - each.iteration_ns) < each.iteration_ns / 20,
                  "%ld ns by messages, %ld by steps", (long)each.iteration_ns, (long)whole.iteration_ns);
}
END_TEST

Suite *ring_flow_suite(void)
{
    Suite *s = suite_create("sim/engine/ring_flow");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, flows_take_as_long_as_messages_and_fold);
    tcase_add_test(t, short_rings_over_the_devices_of_stages_take_their_steps);
    tcase_add_test(t, a_link_that_a_route_crosses_twice_is_loaded_once);
    tcase_add_test(t, flows_fold_beside_rings_of_messages);
    tcase_add_test(t, a_trace_has_one_span_a_rank);
    suite_add_tcase(s, t);
    return s;
}
