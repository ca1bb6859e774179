/* Collectives computed ahead, beside the same ones message by message: with a trace every message is an event. */
#include "sim/engine/sim.h"

#include "tests/support/suites.h"
#include "tests/support/symmetric.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static struct sim_result simulated_as(struct symmetric *c, bool trace, int32_t steps, bool fold)
{
    struct sim_options o = {.steps = steps, .keep_trace = trace, .scale = &c->scale, .fold = fold};
    struct sim_result r = {0};
    struct error err = {0};
    ck_assert_msg(sim_run(c->a, &c->program, c->cost, &o, &r, &err) == OK, "seed %lu: %s",
                  (unsigned long)c->seed, err.text);
    return r;
}

static struct sim_result simulated(struct symmetric *c, bool trace, int32_t steps)
{
    return simulated_as(c, trace, steps, false);
}

static void same(const struct symmetric *c, const struct sim_result *x, const struct sim_result *y)
{
    unsigned long seed = c->seed;
    ck_assert_msg(x->makespan_ns == y->makespan_ns, "seed %lu: %ld ns by events, %ld ahead", seed,
                  (long)x->makespan_ns, (long)y->makespan_ns);
    for (int32_t i = 0; i < c->program.n_devices; i++) {
        const struct sim_device *a = &x->devices[i], *b = &y->devices[i];
        ck_assert_msg(a->busy_ns == b->busy_ns && a->worked_ns == b->worked_ns &&
                          a->peak_bytes == b->peak_bytes && a->peak_ns == b->peak_ns,
                      "seed %lu, device %d: worked %ld, %ld ns", seed, (int)i, (long)a->worked_ns,
                      (long)b->worked_ns);
    }
}

/* A trace rounds the ends of operators that messages slow down (sim/engine/sim.h). */
static bool slows(const struct program *p)
{
    for (int32_t i = 0; i < p->n_links; i++)
        if (p->links[i].compute_slowdown > 0) return true;
    return false;
}

/* Pipelines beside the rings send over the same links, so that claims are broken and made again. */
START_TEST(a_ring_ends_when_its_messages_do)
{
    static const int32_t replicas[] = {8, 12, 16, 24};
    int32_t fewer = 0, all = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 1200 : 40); seed++) {
        struct symmetric c;
        arena_reset(arena);
        if (symmetric_make_of(&c, arena, 100000 + seed, replicas[seed % 4]) != OK) continue;
        if (c.n_devices > 96 || slows(&c.program)) continue;
        struct sim_result events = simulated(&c, true, 1), ahead = simulated(&c, false, 1);
        same(&c, &events, &ahead);
        all++;
        fewer += 3 * ahead.events < 2 * events.events;
    }
    ck_assert_msg(fewer * 4 > all, "%d of %d with fewer events", (int)fewer, (int)all);
}
END_TEST

/* Two GPUs of a node reduce gradients with two of another one over the nodes' links. A pipeline message on the same link, in the
 * middle of the ring: each has half of the link for as long as both move. */
START_TEST(a_message_of_others_breaks_a_claim)
{
    static const char text[] =
        "version: 1\nname: x\nmicrobatch: 1\nreplicas:\n%s"
        "job: {version: 1, sequence_length: 8, global_batch: 24, model: {model_type: gpt2, n_embd: "
        "48, n_layer: 2, n_head: 2, n_positions: 48, vocab_size: 48}}\n"
        "cluster:\n  version: 1\n  name: c\n  device_types: [{name: g, device: A100-SXM4-40}]\n"
        "  nodes: [{name: n, count: 12, devices: {type: g, count: 2}}]\n"
        "  switches: [{name: core}]\n  links:\n    - {name: nic, count: 12, between: [n, core], "
        "bandwidth: 100 MB/s, latency: 5 us}\n";
    struct symmetric c = {.a = arena};
    const char *list = "";
    for (int i = 0; i < 12; i++)
        SYMMETRIC_PUT(&c, list,
                      "  - {microbatches: 2, stages: [{layers: [0, 3], device: n%d.0, bucket: 1 "
                      "KiB}, {layers: [4, 7], device: n%d.1, bucket: 1 KiB}]}\n",
                      i, (i + 1) % 12);
    ck_assert_msg(symmetric_parse(&c, arena_printf(arena, text, list)) == OK, "%s", c.err.text);
    ck_assert_msg(symmetric_lower(&c) == OK, "%s", c.err.text);
    struct sim_result events = simulated(&c, true, 3), ahead = simulated(&c, false, 3);
    ck_assert_int_lt(2 * ahead.events, events.events);
    same(&c, &events, &ahead);
}
END_TEST

/* Gradient rings of 52 GPUs of seven nodes, whose pipelines end at different times: members are more parts apart than are computed at a time,
 * and the first one ends before the last one has passed the parts computed before. */
START_TEST(members_are_many_parts_apart)
{
    static const char text[] =
        "version: 1\nname: x\nmicrobatch: 1\nreplicas:\n%s"
        "job: {version: 1, sequence_length: 2048, global_batch: 88, precision: fp16, model: "
        "{model_type: mixtral, hidden_size: 2048, "
        "intermediate_size: 4096, num_hidden_layers: 2, num_attention_heads: 32, "
        "num_key_value_heads: 16, vocab_size: 16000, "
        "max_position_embeddings: 2048, num_local_experts: 4, num_experts_per_tok: 2, "
        "capacity_factor: 1.25}}\n"
        "cluster:\n  version: 1\n  name: c\n  device_types: [{name: v, device: V100-SXM2-32}, "
        "{name: r, device: RTX-3090}]\n"
        "  nodes: [%s]\n  switches: [{name: core}%s]\n  links:\n%s";
    static const char sharded[] =
        "{ratios: [[1, 1]], operators: [{match: 'layers.*.self_attn.*', shard: heads}, {match: "
        "'layers.*.block_sparse_moe.experts.*', shard: experts}, {match: lm_head, shard: "
        "vocabulary}, {match: loss, shard: "
        "vocabulary}, {match: '*', shard: positions}]}";
    struct symmetric c = {.a = arena};
    const char *list = "", *nodes = "", *switches = "", *links = "";
    for (int i = 0; i < 12; i++)
        SYMMETRIC_PUT(&c, list,
                      "  - {microbatches: 4, stages: [{layers: [0, 3], device: v%d.%d, recompute: "
                      "blocks}, {layers: [4, 7], device: v%d.%d}]}\n",
                      1 + i / 8, i % 8, i < 4 ? 2 : 0, i < 4 ? i + 4 : i - 4);
    for (int i = 0; i < 8; i++) {
        int k = i / 4, d = 2 * (i % 4);
        SYMMETRIC_PUT(
            &c, list,
            "  - {microbatches: 5, stages: [{layers: [0, 3], devices: [r%d.%d, r%d.%d], sharding: "
            "%s}, {layers: [4, 7], devices: [r%d.%d, r%d.%d], sharding: %s}]}\n",
            k, d, k, d + 1, sharded, k + 2, d, k + 2, d + 1, sharded);
    }
    for (int i = 0; i < 7; i++) {
        const char *node = arena_printf(arena, "%c%d", i < 3 ? 'v' : 'r', i < 3 ? i : i - 3);
        SYMMETRIC_PUT(&c, nodes, "%s{name: %s, devices: {type: %c, count: 8}}", i ? ", " : "", node,
                      *node);
        SYMMETRIC_PUT(&c, switches, ", {name: s%s}", node);
        SYMMETRIC_PUT(&c, links, "    - {name: u%s, between: [%s, core], bandwidth: %s}\n", node,
                      node, i < 3 ? "27606 MB/s, latency: 8.8 us" : "31849 MB/s, latency: 22.7 us");
        for (int d = 0; d < 8; d++)
            SYMMETRIC_PUT(
                &c, links,
                "    - {name: p%d-%s, between: [%s.%d, s%s], bandwidth: %s, latency: 1 us}\n", d,
                node, node, d, node, i < 3 ? "339490 MB/s" : "364268 MB/s");
    }
    ck_assert_msg(symmetric_parse(&c, arena_printf(arena, text, list, nodes, switches, links)) ==
                      OK,
                  "%s", c.err.text);
    ck_assert_msg(symmetric_lower(&c) == OK, "%s", c.err.text);
    struct sim_result events = simulated(&c, true, 2), ahead = simulated(&c, false, 2);
    ck_assert_int_lt(ahead.events, events.events);
    same(&c, &events, &ahead);
}
END_TEST

static bool has_tensor_collectives(const struct program *p)
{
    for (int32_t i = 0; i < p->n_collectives; i++)
        if (collective_of_tensor(&p->collectives[i])) return true;
    return false;
}

/* Sharded stages: the same lanes and links for hundreds of collectives, beside pipelines and gradient rings; whole and folded, where
 * a member sends to those that it represents. Two steps: a run that keeps no trace may leave out later ones. A message that
 * starts in the nanosecond in which another one ends may start half a nanosecond earlier (sim/engine/ahead.c), which others that share its
 * link then multiply: 5 of 12,000 seeds. */
START_TEST(collectives_inside_calls_end_when_their_messages_do)
{
    int32_t fewer = 0, other = 0, all = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 12000 : 240); seed++) {
        struct symmetric c;
        arena_reset(arena);
        if (symmetric_make(&c, arena, 300000 + seed) != OK) continue;
        if (c.n_devices > 48 || slows(&c.program) || !has_tensor_collectives(&c.program)) continue;
        for (int fold = 0; fold < 2; fold++) {
            struct sim_result events = simulated_as(&c, true, 2, fold),
                              ahead = simulated_as(&c, false, 2, fold);
            int64_t later = ahead.makespan_ns - events.makespan_ns;
            ck_assert_int_lt((later < 0 ? -later : later) * 10000, events.makespan_ns);
            if (!later) same(&c, &events, &ahead);
            other += later != 0;
            all++;
            fewer += 2 * ahead.events < events.events;
        }
    }
    ck_assert_msg(fewer * 4 > all && all > 50 && other * 200 <= all,
                  "%d of %d with fewer events, %d with other times", (int)fewer, (int)all,
                  (int)other);
}
END_TEST

/* Time in which a pipeline message moves while a collective of its sender does. */
static int64_t meeting_ns(const struct trace *t)
{
    int64_t ns = 0;
    for (size_t i = 0; i < t->n_spans; i++)
        for (size_t k = 0; k < t->n_spans && t->spans[i].kind == SPAN_SEND; k++) {
            const struct span *x = &t->spans[i], *y = &t->spans[k];
            if (y->kind != SPAN_REDUCE || y->device != x->device) continue;
            int64_t from = x->begin_ns > y->begin_ns ? x->begin_ns : y->begin_ns,
                    to = x->end_ns < y->end_ns ? x->end_ns : y->end_ns;
            if (to > from) ns += to - from;
        }
    return ns;
}

/* Two sharded stages on the GPUs of one switch: an activation leaves over the port over which its sender exchanges parts of the next
 * microbatch's tensors. */
START_TEST(an_activation_breaks_the_claim_of_a_sharded_stage)
{
    static const char text[] =
        "version: 1\nname: x\nmicrobatch: 2\nreplicas: [{microbatches: 6, stages: [{layers: [0, "
        "3], devices: [n0.0, n0.1, n0.2], sharding: %s}, {layers: [4, 7], devices: [n0.3, n0.4, "
        "n0.5], sharding: %s}]}]\n"
        "job: {version: 1, sequence_length: 12, global_batch: 12, model: {model_type: llama, "
        "hidden_act: silu, hidden_size: 96, intermediate_size: 192, num_attention_heads: 6, "
        "num_key_value_heads: 6, max_position_embeddings: 64, num_hidden_layers: 2, rms_norm_eps: "
        "1e-5, tie_word_embeddings: false, vocab_size: 96}}\n"
        "cluster:\n  version: 1\n  name: c\n  device_types: [{name: g, device: A100-SXM4-40}]\n"
        "  nodes: [{name: n, count: 1, devices: {type: g, count: 6}}]\n  switches: [{name: s}]\n"
        "  links:\n%s";
    static const char rules[] =
        "{operators: [{match: \"layers.*.self_attn.attention\", shard: heads}, {match: \"*\", "
        "shard: positions}]}";
    struct symmetric c = {.a = arena};
    const char *links = "";
    for (int i = 0; i < 6; i++)
        SYMMETRIC_PUT(&c, links,
                      "    - {name: p%d, between: [n0.%d, s], bandwidth: 10 MB/s, latency: %d us, "
                      "sharing: fair}\n",
                      i, i, i == 4 ? 7 : 3);
    ck_assert_msg(symmetric_parse(&c, arena_printf(arena, text, rules, rules, links)) == OK, "%s",
                  c.err.text);
    ck_assert_msg(symmetric_lower(&c) == OK, "%s", c.err.text);
    for (int32_t steps = 1; steps < 4; steps++) {
        struct sim_result events = simulated(&c, true, steps), ahead = simulated(&c, false, steps);
        same(&c, &events, &ahead);
        ck_assert_int_lt(4 * ahead.events, 3 * events.events);
        ck_assert_int_gt(meeting_ns(events.trace), events.makespan_ns / 100);
    }
}
END_TEST

Suite *ahead_suite(void)
{
    Suite *s = suite_create("sim/engine/ahead");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_ring_ends_when_its_messages_do);
    tcase_add_test(t, a_message_of_others_breaks_a_claim);
    tcase_add_test(t, members_are_many_parts_apart);
    tcase_add_test(t, collectives_inside_calls_end_when_their_messages_do);
    tcase_add_test(t, an_activation_breaks_the_claim_of_a_sharded_stage);
    suite_add_tcase(s, t);
    return s;
}
