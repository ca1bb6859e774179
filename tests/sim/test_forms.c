/* Suite of the forms of communication that plans carry: algorithms of collectives through lowering and the simulator. */
#include "profiles/profile.h"
#include "sim/engine/sim.h"

#include "tests/support/plans.h"

static struct arena *arena;
static struct error err;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* A tiny gpt2 on `nodes` nodes of `each` devices, all of which share it as `how` says; slow between nodes. */
static struct plan parsed(int nodes, int each, const char *how)
{
    const char *list = "", *devices = "", *names = "", *inside = "";
    struct plan p;
    struct node *root;
    for (int i = 0; i < nodes; i++) {
        char name = (char)('a' + i);
        list = "";
        for (int k = 0; k < each; k++) {
            list = arena_printf(arena, "%s%s{type: cpu}", list, k ? ", " : "");
            devices = arena_printf(arena, "%s%s%c.%d", devices, i + k ? ", " : "", name, k);
        }
        names = arena_printf(arena, "%s%s{name: %c, host: localhost, devices: [%s]}", names,
                             i ? ", " : "", name, list);
        inside = arena_printf(arena,
                              "%s{name: in-%c, between: [%c], bandwidth: 10 GB/s, latency: 1 us}, ",
                              inside, name, name);
    }
    const char *text = arena_printf(
        arena,
        "version: 1\nname: made\nmicrobatch: 12\nreplicas:\n  - microbatches: 2\n    stages:\n"
        "      - layers: [0, 4]\n        devices: [%s]\n        sharding:\n%s"
        "job:\n  version: 1\n  model: {model_type: gpt2, n_embd: 48, n_layer: 1, n_head: 6, "
        "n_positions: 32, vocab_size: 96, tie_word_embeddings: false}\n  sequence_length: 16\n  "
        "global_batch: 24\n"
        "  precision: fp64\ncluster:\n  version: 1\n  name: here\n  device_types: [{name: cpu, "
        "device: host, memory: 1 GiB, slowdown: 2}]\n  nodes: [%s]\n  links: [%s%s]\n",
        devices, how, names, inside,
        nodes > 1 ? "{name: far, between: [a, b], bandwidth: 100 MB/s, latency: 50 us}" : "");
    ck_assert_msg(document_parse(arena, "made", text, strlen(text), &root, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(plan_parse(arena, root, ".", &p, &err) == OK, "%s", err.text);
    p.replicas[0].stages[0].last_layer = plans_layers(arena, &p) - 1;
    return p;
}

#define COLUMNS                                                                                    \
    "          operators:\n            - {match: \"h.*.attn.*\", shard: heads}\n"                  \
    "            - {match: \"h.*.mlp.c_proj\", shard: inputs}\n"                                   \
    "            - {match: \"h.*.mlp.*\", shard: features}\n"
#define HIERARCHICAL "          collectives: [{match: \"*\", algorithm: hierarchical}]\n"

static int64_t iteration_ns(const struct plan *plan, const struct program *p)
{
    struct profile f;
    struct sim_result r;
    struct sim_options o = {.steps = 2};
    ck_assert_msg(profile_prior(arena, &plan->cluster, &f, &err) == OK, "%s", err.text);
    struct cost *k = cost_new(arena, &f, &plan->cluster);
    ck_assert_msg(sim_run(arena, p, k, &o, &r, &err) == OK, "%s", err.text);
    return r.iteration_ns;
}

static int32_t n_by(const struct program *p, enum collective_algorithm algorithm)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_collectives; i++)
        n += collective_of_tensor(&p->collectives[i]) && p->collectives[i].algorithm == algorithm;
    return n;
}

/* Two nodes of two and of three: a sum of 12·16·48 doubles round one ring of 2g crosses the slow link in 2(2g−1) steps, in
 * tiers in two. */
START_TEST(tiers_beat_one_ring_where_nodes_are_far)
{
    for (int each = 2; each <= 3; each++) {
        struct plan flat = parsed(2, each, COLUMNS), tiers = parsed(2, each, COLUMNS HIERARCHICAL);
        struct program *p = plans_lower(arena, &flat, false),
                       *q = plans_lower(arena, &tiers, false), again;
        ck_assert_int_eq(n_by(p, ALGORITHM_HIERARCHICAL), 0);
        ck_assert_int_eq(n_by(q, ALGORITHM_HIERARCHICAL), n_by(p, ALGORITHM_RING));
        ck_assert_int_gt(n_by(q, ALGORITHM_HIERARCHICAL), 3);
        ck_assert_int_lt(iteration_ns(&tiers, q), iteration_ns(&flat, p));
        size_t n, m;
        char *text = plans_text(q, &n), *copy;
        ck_assert_msg(program_parse(arena, "made", text, n, &again, &err) == OK, "%s", err.text);
        ck_assert_msg(program_check(arena, &again, &err) == OK, "%s", err.text);
        ck_assert_int_eq(iteration_ns(&tiers, &again), iteration_ns(&tiers, q));
        copy = plans_text(&again, &m);
        ck_assert(n == m && !memcmp(text, copy, n));
        free(text), free(copy);
    }
}
END_TEST

/* Tiers that are not equally many, or a link that is not there. */
START_TEST(mangled_tiers_are_refused_or_can_be_trusted)
{
    struct plan plan = parsed(2, 2, COLUMNS HIERARCHICAL);
    struct program *p = plans_lower(arena, &plan, false), q;
    size_t n;
    char *text = plans_text(p, &n), *at = strstr(text, "\ncollective ");
    struct plans_random r = {5, 0};
    int refused = 0;
    ck_assert_ptr_nonnull(at);
    for (int i = 0; i < (suites_long() ? 4000 : 300); i++) {
        char *copy = malloc(n + 1), *line;
        memcpy(copy, text, n + 1);
        line = copy + (at - text);
        for (int k = plans_below(&r, 12); k >= 0 && strstr(line + 1, "\nmember "); k--)
            line = strstr(line + 1, "\nmember ");
        line[8 + plans_below(&r, 24)] = "0123456789- "[plans_below(&r, 12)];
        struct arena *scratch = arena_new();
        if (program_parse(scratch, "x", copy, n, &q, &err) != OK)
            refused++;
        else
            (void)!program_check(scratch, &q, &err);
        arena_free(scratch);
        free(copy);
    }
    ck_assert_int_gt(refused, 50);
    free(text);
}
END_TEST

/* The first entry that fits by name, kind and way; what is left goes as ever. */
START_TEST(entries_are_taken_in_order_by_those_that_can)
{
    struct plan p = parsed(
        1, 3,
        "          ratios: [[2, 1, 1]]\n          operators: [{match: \"h.0.mlp.*\", shard: "
        "features}, {match: \"h.*\", shard: batch}]\n"
        "          collectives:\n            - {match: \"*.grad_*\", kind: reduce_scatter, algorithm: "
        "ring}\n            - {match: \"*\", kind: all_gather, algorithm: ring}\n"
        "            - {match: \"*\", algorithm: pairs}\n");
    struct program *q = plans_lower(arena, &p, false);
    int32_t seen = 0;
    for (int32_t i = 0; i < q->n_collectives; i++) {
        const struct collective *m = &q->collectives[i];
        if (!m) continue;
        bool back = strstr(q->collectives[i].name, ".grad_");
        seen |= 1 << m->kind;
        if (m->kind == COLLECTIVE_ALL_GATHER || m->kind == COLLECTIVE_ALL_REDUCE)
            ck_assert_int_eq(m->algorithm, ALGORITHM_RING);
        else if (m->kind == COLLECTIVE_REDUCE_SCATTER)
            ck_assert_int_eq(m->algorithm, back ? ALGORITHM_RING : ALGORITHM_PAIRS);
        else
            ck_assert_int_eq(m->algorithm, ALGORITHM_PAIRS);
    }
    ck_assert(seen >> COLLECTIVE_ALL_GATHER & 1 && seen >> COLLECTIVE_REDUCE_SCATTER & 1);
}
END_TEST

START_TEST(an_entry_that_is_for_no_collective_is_said_where_it_stands)
{
    static const struct {
        int nodes, each;
        const char *algorithm, *message;
    } rows[] = {
        {1, 4, "{match: \"*\", algorithm: hierarchical}", "several nodes"},
        {2, 1, "{match: \"*\", algorithm: hierarchical}", "at least two on each"},
        {1, 2, "{match: \"wpe*\", algorithm: ring}", "one collective is 'h.0."},
        {1, 2, "{match: \"*\", algorithm: ring}, {match: \"*\", kind: all_reduce, algorithm: ring}",
         "no entry before it takes"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *how = arena_printf(arena, COLUMNS "          collectives: [%s]\n", rows[i].algorithm);
        struct plan p = parsed(rows[i].nodes, rows[i].each, how);
        ck_assert_int_eq(plans_refused(arena, &p, &err), ERR_INPUT);
        ck_assert_msg(strstr(err.text, rows[i].message), "'%s' in %s", rows[i].message, err.text);
        ck_assert_msg(strstr(err.text, "made:14:"), "no place in %s", err.text);
    }
}
END_TEST

/* Two stages of two devices by batch, three microbatches in flight in the first, whose c_fc is kept sharded. */
static struct program *pipeline(const char *sharding)
{
    struct plan p = parsed(2, 2,
                           arena_printf(arena,
                                        "          operators: [{match: \"*\", shard: batch}]\n"
                                        "          parameters: [{match: \"*.h.0.mlp.c_fc.weight\", "
                                        "%s}]\n",
                                        sharding));
    struct plan_replica *r = arena_copy(arena, p.replicas, sizeof *r);
    struct plan_stage *stages = ARENA_ARRAY(arena, struct plan_stage, 2);
    p.replicas = r, r->microbatches = 4, r->n_stages = 2, p.job.global_batch = 48;
    for (int k = 0; k < 2; k++) {
        struct sharding *s =
            (struct sharding *)(uintptr_t)sharding_copy(arena, r->stages[0].sharding);
        s->n_devices = s->mesh[0] = 2;
        if (k) s->n_parameters = 0;
        stages[k] = r->stages[0];
        stages[k].sharding = s, stages[k].n_shards = 2, stages[k].warmup = k ? 1 : 3;
        stages[k].devices = r->stages[0].devices + 2 * k, stages[k].device = stages[k].devices[0];
        stages[k].first_layer = k ? r->stages[0].last_layer : 0;
        stages[k].last_layer = r->stages[0].last_layer - !k;
    }
    r->stages = stages;
    return plans_lower(arena, &p, false);
}

static int32_t gathers(const struct program *p, enum phase phase)
{
    const struct program_stage *s = &p->stages[0];
    int32_t n = 0, f = program_procedure(s, phase, "");
    for (int32_t i = 0; i < s->procedures[f].n_instrs; i++) {
        const struct instr *x = &s->procedures[f].instrs[i];
        n += x->kind == INSTR_COLLECTIVE &&
             strstr(p->collectives[x->arg].name, "c_fc.weight.group_all_gather") &&
             p->collectives[x->arg].kind == COLLECTIVE_ALL_GATHER;
    }
    return n;
}

/* Kept: gathered by each F, one whole matrix of 48·192 doubles for each of three microbatches in flight. Again: by F and B,
 * in scratch while it is used. */
START_TEST(gathered_parameters_are_kept_for_each_microbatch_or_gathered_again)
{
    const int64_t whole = 48 * 192 * 8;
    struct program *kept = pipeline("reshard_after_forward: false"),
                   *again = pipeline("reshard_after_forward: true"),
                   *none = pipeline("sharded: false");
    ck_assert(gathers(kept, 'F') == 1 && gathers(kept, 'B') == 0);
    ck_assert(gathers(again, 'F') == 1 && gathers(again, 'B') == 1);
    ck_assert(gathers(none, 'F') == 0 && gathers(none, 'B') == 0);
    const int64_t *k = kept->stages[0].class_bytes, *g = again->stages[0].class_bytes,
                  *n = none->stages[0].class_bytes;
    ck_assert_int_eq(k[SLOT_BUFFER_RING], n[SLOT_BUFFER_RING] + 3 * whole);
    ck_assert_int_eq(g[SLOT_BUFFER_RING], n[SLOT_BUFFER_RING]);
    ck_assert_int_le(g[SLOT_SCRATCH], n[SLOT_SCRATCH] + whole);
    ck_assert_int_eq(k[SLOT_PARAMETER], n[SLOT_PARAMETER] - whole / 2);
    ck_assert_int_eq(g[SLOT_PARAMETER], k[SLOT_PARAMETER]);
    ck_assert_int_lt(program_stage_bytes(&again->stages[0]), program_stage_bytes(&kept->stages[0]));
}
END_TEST

/* By sufficient factors x and dy are gathered and nobody sums the gradient; by itself the gradient is summed once. */
START_TEST(factors_are_gathered_in_place_of_a_reduce)
{
    static const char *const how[] = {"", ", sufficient_factors: true"};
    int32_t met[2], segments[2] = {0};
    for (int k = 0; k < 2; k++) {
        struct plan p = parsed(
            1, 3,
            arena_printf(arena,
                         "          operators: [{match: \"h.0.mlp.c_fc\", shard: batch%s}, {match: "
                         "\"*\", shard: batch}]\n",
                         how[k]));
        struct program *q = plans_lower(arena, &p, false);
        met[k] = 0;
        for (int32_t i = 0; i < q->n_collectives; i++)
            if (collective_of_tensor(&q->collectives[i]))
                met[k] += strstr(q->collectives[i].name, "c_fc.factor_") != NULL;
            else
                segments[k] += (int32_t)(q->collectives[i].elements);
    }
    ck_assert(met[0] == 0 && met[1] == 2);
    ck_assert_int_eq(segments[0] - segments[1], 48 * 192);
}
END_TEST

Suite *forms_suite(void)
{
    Suite *s = suite_create("forms");
    TCase *c = tcase_create("forms");
    const TTest *tests[] = {tiers_beat_one_ring_where_nodes_are_far,
                            mangled_tiers_are_refused_or_can_be_trusted,
                            entries_are_taken_in_order_by_those_that_can,
                            an_entry_that_is_for_no_collective_is_said_where_it_stands,
                            gathered_parameters_are_kept_for_each_microbatch_or_gathered_again,
                            factors_are_gathered_in_place_of_a_reduce};
    tcase_add_checked_fixture(c, setup, teardown);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(c, tests[i]);
    suite_add_tcase(s, c);
    return s;
}
