/* Folded simulations beside whole ones: random plans with symmetries on clusters of shared links, to the nanosecond. */
#include "sim/engine/fold.h"
#include "sim/explain/explain.h"

#include "tests/support/suites.h"
#include "tests/support/symmetric.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static int32_t lanes(struct symmetric *c, int32_t **of)
{
    struct fold f;
    fold_make(c->a, &c->program, c->cost, &c->scale, &f);
    if (of) *of = f.of;
    return f.program.n_devices;
}

/* Several representatives send on one FIFO link. */
static bool queues_up(struct symmetric *c)
{
    struct fold f;
    fold_make(c->a, &c->program, c->cost, &c->scale, &f);
    const struct channel *x = f.program.channels;
    for (int32_t i = 0; i < f.program.n_channels; i++)
        for (int32_t k = 0; k < i; k++) {
            const struct program_link *l = x[i].link < 0 ? NULL : &f.program.links[x[i].link];
            if (l && x[k].link == x[i].link && x[k].direction == x[i].direction && !l->n_hops &&
                l->sharing == LINK_FIFO &&
                f.program.stages[x[i].from_stage].device !=
                    f.program.stages[x[k].from_stage].device)
                return true;
        }
    return false;
}

static void same(const struct symmetric *c, const struct sim_result *x, const struct sim_result *y)
{
    unsigned long seed = c->seed;
    ck_assert_msg(x->iteration_ns == y->iteration_ns && x->makespan_ns == y->makespan_ns,
                  "seed %lu: %ld ns whole, %ld folded", seed, (long)x->iteration_ns,
                  (long)y->iteration_ns);
    for (int32_t i = 0; i < c->program.n_devices; i++) {
        const struct sim_device *a = &x->devices[i], *b = &y->devices[i];
        ck_assert_msg(a->busy_ns == b->busy_ns && a->idle_ns == b->idle_ns &&
                          a->worked_ns == b->worked_ns && a->peak_bytes == b->peak_bytes &&
                          a->reserved_bytes == b->reserved_bytes,
                      "seed %lu, device %d: busy %ld, %ld ns, peak %ld, %ld B", seed, (int)i,
                      (long)a->busy_ns, (long)b->busy_ns, (long)a->peak_bytes, (long)b->peak_bytes);
    }
}

/* Rings among replicas have equal chunks, because the model's sizes are multiples of 96. */
START_TEST(a_folded_program_ends_when_the_whole_one_does)
{
    uint64_t seeds = suites_long() ? 12000 : 240;
    int32_t fewer = 0, queues = 0, valid = 0;
    for (uint64_t seed = 0; seed < seeds; seed++) {
        struct symmetric c;
        arena_reset(arena);
        if (symmetric_make(&c, arena, seed) != OK) continue;
        struct sim_result whole = symmetric_simulated(&c, (struct sim_options){0}),
                          folded = symmetric_simulated(&c, (struct sim_options){.fold = true});
        same(&c, &whole, &folded);
        fewer += folded.operators < whole.operators;
        queues += folded.operators < whole.operators && queues_up(&c);
        valid++;
    }
    ck_assert_msg(valid * 10 > (int32_t)seeds * 9 && fewer * 3 > valid && queues > 0,
                  "%d of %d valid, %d folded, %d with fifo links", (int)valid, (int)seeds,
                  (int)fewer, (int)queues);
}
END_TEST

/* Its own lane at least, and with it the result stays that of the whole program. */
START_TEST(a_slower_device_is_simulated_by_itself)
{
    int32_t parted = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 3000 : 100); seed++) {
        struct symmetric c;
        int32_t *of, n;
        arena_reset(arena);
        if (symmetric_make(&c, arena, seed) != OK) continue;
        n = c.program.n_devices;
        double *device = ARENA_ARRAY(arena, double, (size_t)n);
        for (int32_t i = 0; i < n; i++) device[i] = 1;
        c.scale.device = device, c.scale.link = NULL;
        int32_t before = lanes(&c, &of), slow = symmetric_draw(&c, 0, n - 1), alike = 0;
        device[slow] = 1.25;
        int32_t after = lanes(&c, &of);
        for (int32_t i = 0; i < n; i++) alike += of[i] == of[slow];
        ck_assert_int_eq(alike, 1);
        ck_assert_int_ge(after, before);
        struct sim_result whole = symmetric_simulated(&c, (struct sim_options){0}),
                          folded = symmetric_simulated(&c, (struct sim_options){.fold = true});
        same(&c, &whole, &folded);
        parted += after > before;
    }
    ck_assert_int_gt(parted, 20);
}
END_TEST

/* A link of the cluster that messages use: whoever sends over it is not folded with those that do not. */
START_TEST(a_slower_link_parts_those_behind_it_from_others)
{
    int32_t parted = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 3000 : 100); seed++) {
        struct symmetric c;
        arena_reset(arena);
        if (symmetric_make(&c, arena, seed) != OK) continue;
        size_t n = (size_t)c.program.n_links;
        double *link = ARENA_ARRAY(arena, double, n);
        for (size_t i = 0; i < n; i++) link[i] = 1;
        c.scale.device = NULL, c.scale.link = link;
        int32_t before = lanes(&c, NULL);
        link[symmetric_draw(&c, 0, c.plan.cluster.n_links - 1)] = 3;
        parted += lanes(&c, NULL) > before;
        struct sim_result whole = symmetric_simulated(&c, (struct sim_options){0}),
                          folded = symmetric_simulated(&c, (struct sim_options){.fold = true});
        same(&c, &whole, &folded);
    }
    ck_assert_int_gt(parted, 10);
}
END_TEST

/* The pieces of the critical path follow one another through the window. */
START_TEST(a_folded_trace_is_explained)
{
    int32_t fewer = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 2000 : 60); seed++) {
        struct symmetric c;
        struct explain x;
        struct error err = {0};
        arena_reset(arena);
        if (symmetric_make(&c, arena, seed) != OK) continue;
        struct sim_result r = symmetric_simulated(
            &c, (struct sim_options){.steps = 2, .keep_trace = true, .fold = true});
        const struct program *p = r.traced ? r.traced : &c.program;
        if (r.traced) r.devices = r.traced_devices, fewer++;
        ck_assert_msg(explain_result(arena, p, c.cost, &r, &x, &err) == OK, "seed %lu: %s",
                      (unsigned long)seed, err.text);
        int64_t at = x.begin_ns;
        for (size_t i = 0; i < x.n_pieces; i++) {
            ck_assert_int_eq(x.pieces[i].begin_ns, at);
            at = x.pieces[i].end_ns;
        }
        ck_assert_int_eq(at, x.end_ns);
    }
    ck_assert_int_gt(fewer, 10);
}
END_TEST

/* Two nodes of four GPUs, one pipeline of two stages on every two of them: one message stands for the four of a node's link. */
START_TEST(one_message_stands_for_all_behind_a_network_link)
{
    static const char text[] =
        "version: 1\nname: x\nmicrobatch: 1\nreplicas:\n%s"
        "job: {version: 1, sequence_length: 8, global_batch: 16, model: {model_type: gpt2, n_embd: "
        "32, n_layer: 2, n_head: 2, n_positions: 64, vocab_size: 64}}\n"
        "cluster:\n  version: 1\n  name: c\n  device_types: [{name: g, device: A100-SXM4-40}]\n"
        "  nodes: [{name: n, count: 2, devices: {type: g, count: 4}}]\n  switches: [{name: core}]\n"
        "  links:\n    - {name: nic0, between: [n0, core], bandwidth: 1 GB/s, latency: 5 us}\n"
        "    - {name: nic1, between: [n1, core], bandwidth: 1 GB/s, latency: 5 us}\n";
    struct symmetric c = {.a = arena};
    struct fold f;
    const char *replicas = "";
    for (int i = 0; i < 4; i++)
        SYMMETRIC_PUT(&c, replicas,
                      "  - {microbatches: 4, stages: [{layers: [0, 3], device: n0.%d}, {layers: "
                      "[4, 7], device: n1.%d}]}\n",
                      i, i);
    ck_assert_msg(symmetric_parse(&c, arena_printf(arena, text, replicas)) == OK, "%s", c.err.text);
    ck_assert_msg(symmetric_lower(&c) == OK, "%s", c.err.text);
    fold_make(arena, &c.program, c.cost, NULL, &f);
    ck_assert_int_eq(f.program.n_devices, 2);
    ck_assert_int_eq(f.program.n_channels, 2);
    for (int32_t i = 0; i < 2; i++) {
        const struct program_link *l = &f.program.links[f.program.channels[i].link];
        ck_assert_int_eq(l->n_hops, 2);
        ck_assert(l->hop_messages[0] == 4 && l->hop_messages[1] == 4);
    }
    struct sim_result whole = symmetric_simulated(&c, (struct sim_options){0}),
                      folded = symmetric_simulated(&c, (struct sim_options){.fold = true});
    same(&c, &whole, &folded);
}
END_TEST

/* Six replicas of two stages on four GPUs each, a replica a node. */
static void make_sharded(struct symmetric *c, const char *model, const char *rules, int32_t zero,
                         const char *links)
{
    static const char text[] =
        "version: 1\nname: x\nmicrobatch: 4\nreplicas:\n%sjob: {version: 1, sequence_length: 16, "
        "global_batch: 96, model: %s}\ncluster:\n  version: 1\n  name: c\n  device_types: [{name: "
        "g, "
        "device: A100-SXM4-40}]\n  nodes: [{name: n, count: 6, devices: {type: g, count: 8}}]\n"
        "  switches: [{name: core}%s\n    - {name: nic, count: 6, between: [n, core], bandwidth: 1 "
        "GB/s, "
        "latency: 5 us}\n";
    const char *replicas = "";
    *c = (struct symmetric){.a = arena};
    for (int i = 0; i < 6; i++) {
        SYMMETRIC_PUT(c, replicas, "  - microbatches: 4\n    stages:\n");
        for (int s = 0; s < 2; s++)
            SYMMETRIC_PUT(c, replicas,
                          "      - {layers: [%d, %d], devices: [n%d.%d, n%d.%d, n%d.%d, n%d.%d], "
                          "zero: %d, sharding: {operators: [%s]}}\n",
                          4 * s, 4 * s + 3, i, 4 * s, i, 4 * s + 1, i, 4 * s + 2, i, 4 * s + 3,
                          (int)zero, rules);
    }
    ck_assert_msg(symmetric_parse(c, arena_printf(arena, text, replicas, model, links)) == OK, "%s",
                  c->err.text);
    ck_assert_msg(symmetric_lower(c) == OK, "%s: %s", rules, c->err.text);
}

/* Whatever a stage is sharded by, one replica represents all (all sizes are multiples of 96, so rings have equal chunks): on a bus of the node with a queue or with equal shares, and on ports of
 * a switch. */
START_TEST(replicas_of_sharded_stages_are_simulated_once)
{
    static const char dense[] = "{model_type: gpt2, n_embd: 96, n_layer: 2, n_head: 4, "
                                "n_positions: 96, vocab_size: 96}",
                      experts[] = "{model_type: mixtral, hidden_size: 96, intermediate_size: 96, "
                                  "num_hidden_layers: 2, num_attention_heads: 4, "
                                  "num_key_value_heads: 4, vocab_size: 96, "
                                  "max_position_embeddings: 32, num_local_experts: 4, "
                                  "num_experts_per_tok: 2}";
    static const char tensor[] =
        "{match: \"*attn*\", shard: heads}, {match: \"*mlp.c_proj*\", shard: "
        "inputs}, {match: \"*mlp*\", shard: features}";
    static const char *const rules[] = {
        tensor, "{match: \"*attn*\", shard: heads}, {match: \"*\", shard: positions}",
        "{match: \"*\", shard: batch}",
        "{match: \"*.experts.*\", shard: experts}, {match: \"*\", shard: batch}"};
    static const char *const buses[] = {"fifo", "fair"};
    for (int how = 0; how < 4; how++)
        for (int topology = 0; topology < 3; topology++)
            for (int32_t zero = 0; zero < 3; zero++) {
                struct symmetric c = {.a = arena};
                const char *links = "]\n  links:";
                arena_reset(arena);
                if (topology < 2)
                    SYMMETRIC_PUT(&c, links,
                                  "\n    - {name: bus, count: 6, between: [n], sharing: %s, "
                                  "bandwidth: 10 GB/s, latency: 2 us}",
                                  buses[topology]);
                else
                    links = ", {name: sw, count: 6}]\n  links:";
                for (int i = 0; i < 48 && topology == 2; i++)
                    SYMMETRIC_PUT(
                        &c, links,
                        "\n    - {name: p%d, between: [n%d.%d, sw%d], bandwidth: 10 GB/s, "
                        "latency: 1 us}",
                        i, i / 8, i % 8, i / 8);
                make_sharded(&c, how == 3 ? experts : dense, rules[how], zero, links);
                ck_assert_msg(lanes(&c, NULL) <= 8, "%s, %d: %d lanes", rules[how], topology,
                              (int)lanes(&c, NULL));
                struct sim_result whole = symmetric_simulated(&c, (struct sim_options){0}),
                                  folded =
                                      symmetric_simulated(&c, (struct sim_options){.fold = true}),
                                  events = symmetric_simulated(
                                      &c, (struct sim_options){.keep_trace = true});
                c.seed = (uint64_t)(100 * how + 10 * topology + zero);
                same(&c, &whole, &folded);
                if (!topology) same(&c, &whole, &events);
            }
}
END_TEST

Suite *fold_suite(void)
{
    Suite *s = suite_create("sim/engine/fold");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_folded_program_ends_when_the_whole_one_does);
    tcase_add_test(t, a_slower_device_is_simulated_by_itself);
    tcase_add_test(t, a_slower_link_parts_those_behind_it_from_others);
    tcase_add_test(t, a_folded_trace_is_explained);
    tcase_add_test(t, one_message_stands_for_all_behind_a_network_link);
    tcase_add_test(t, replicas_of_sharded_stages_are_simulated_once);
    suite_add_tcase(s, t);
    return s;
}
