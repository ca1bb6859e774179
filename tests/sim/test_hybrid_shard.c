/* ZeRO inside nodes (core/lower/hybrid.h): groups, memory, bytes and time by hand; random plans through the deadlock check, the program
 * file, the simulator and its folding. tests/cli/hybrid_shard.sh trains. */
#include "core/base/units.h"
#include "sim/engine/sim.h"
#include "tests/support/plans.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

enum { NET_BPS = 100000000, LATENCY_NS = 1000 };

/* Devices i · of … on node i, each with its bus of 1 GB/s, and a link of 100 MB/s between every two nodes. */
static void spread(struct plan *p, int32_t n_nodes, const int32_t *of)
{
    struct cluster *c = &p->cluster;
    struct link bus = c->links[0];
    c->n_nodes = n_nodes, c->n_links = 0;
    c->nodes = ARENA_ARRAY(arena, struct node_spec, (size_t)n_nodes);
    c->links = ARENA_ARRAY(arena, struct link, (size_t)(n_nodes * n_nodes));
    for (int32_t i = 0, first = 0; i < n_nodes; first += of[i++]) {
        c->nodes[i] = (struct node_spec){.name = arena_printf(arena, "n%d", (int)i),
                                         .host = "localhost",
                                         .first_device = first,
                                         .n_devices = of[i]};
        for (int32_t k = 0; k < of[i]; k++)
            c->devices[first + k].node = i, c->devices[first + k].index = k,
            c->devices[first + k].name = arena_printf(arena, "n%d.%d", (int)i, (int)k);
        struct link *l = &c->links[c->n_links++];
        *l = bus, l->name = arena_printf(arena, "bus%d", (int)i), l->end[0] = i;
        for (int32_t k = 0; k < i; k++) {
            l = &c->links[c->n_links++];
            *l = bus, l->name = arena_printf(arena, "net%d-%d", (int)k, (int)i), l->bandwidth_Bps = NET_BPS;
            l->n_ends = 2, l->kind[0] = l->kind[1] = END_NODE, l->end[0] = k, l->end[1] = i;
        }
    }
}

/* A replica on each device of these nodes. */
static struct plan replicas(const char *model, int32_t n_nodes, const int32_t *of, int32_t microbatches, int32_t zero)
{
    int32_t n = 0;
    for (int32_t i = 0; i < n_nodes; i++) n += of[i];
    struct plan p = plans_new(arena, model, 1, n);
    int32_t last = plans_layers(arena, &p) - 1;
    for (int32_t r = 0; r < n; r++) {
        struct plan_stage *s = plans_replica(arena, &p, microbatches, 1, &last)->stages;
        s->zero = zero, s->hybrid_shard = zero > 0;
    }
    spread(&p, n_nodes, of);
    return p;
}

static struct sim_result simulate(const struct plan *p, const struct program *x, bool fold)
{
    struct profile *f = ARENA_ARRAY(arena, struct profile, 1);
    struct sim_options o = {.keep_trace = true, .fold = fold};
    struct sim_result r;
    struct error err = {0};
    ck_assert_msg(profile_prior(arena, &p->cluster, f, &err) == OK, "%s", err.text);
    ck_assert_msg(sim_run(arena, x, cost_new(arena, f, &p->cluster), &o, &r, &err) == OK, "%s", err.text);
    return r;
}

static int32_t node_of(const struct plan *p, const struct program *x, const struct collective *g, int32_t member)
{
    return p->cluster.devices[x->stages[g->members[member].stage].device].node;
}

/* Reduce-scatters lie in one node and have `part` members, all-reduces join one device of each part. */
static void check_groups(const struct plan *p, const struct program *x, int32_t part, int32_t parts)
{
    int32_t scatters = 0, between = 0;
    for (int32_t i = 0; i < x->n_collectives; i++) {
        const struct collective *g = &x->collectives[i];
        bool inside = program_collective_divides(g);
        ck_assert_int_eq(g->n_members, inside ? part : parts);
        for (int32_t k = 1; k < g->n_members && inside; k++) ck_assert_int_eq(node_of(p, x, g, k), node_of(p, x, g, 0));
        scatters += program_collective_scatters(g), between += !inside;
        if (!inside) ck_assert_int_eq(g->elements * part, x->collectives[0].elements);
    }
    ck_assert_int_eq(scatters, parts);
    ck_assert_int_eq(between, part);
}

START_TEST(shards_are_of_a_node_and_sums_of_one_device_of_each)
{
    static const int32_t pairs[] = {2, 2, 2}, uneven[] = {4, 2}, threes[] = {3, 3};
    struct plan p = replicas("llama", 3, pairs, 2, 1);
    check_groups(&p, plans_lower(arena, &p, true), 2, 3);
    p = replicas("llama", 2, uneven, 2, 1); /* two parts on the node of four */
    check_groups(&p, plans_lower(arena, &p, true), 2, 3);
    p = replicas("llama", 2, threes, 2, 1);
    check_groups(&p, plans_lower(arena, &p, true), 3, 2);
}
END_TEST

START_TEST(on_one_node_it_is_plain_zero)
{
    static const int32_t one[] = {4};
    struct plan p = replicas("gpt2", 1, one, 2, 2);
    size_t n1, n2;
    char *with = plans_text(plans_lower(arena, &p, true), &n1);
    for (int32_t r = 0; r < p.n_replicas; r++) p.replicas[r].stages[0].hybrid_shard = false;
    char *without = plans_text(plans_lower(arena, &p, true), &n2);
    char *a = strstr(with, "\n"), *b = strstr(without, "\n");
    for (int i = 0; i < 3 && a && b; i++) a = strstr(a + 1, "stage"), b = strstr(b + 1, "stage");
    ck_assert(a && b && !strcmp(a, b));
    free(with), free(without);
}
END_TEST

START_TEST(state_takes_the_memory_of_a_node)
{
    static const int32_t one[] = {2}, four[] = {2, 2, 2, 2};
    for (int32_t zero = 1; zero <= 3; zero++) {
        struct plan small = replicas("llama", 1, one, 2, zero), large = replicas("llama", 4, four, 2, zero);
        const struct program *x = plans_lower(arena, &small, true), *y = plans_lower(arena, &large, true);
        for (int class = SLOT_PARAMETER; class <= SLOT_STATE; class ++)
            ck_assert_int_eq(x->stages[0].class_bytes[class], y->stages[0].class_bytes[class]);
    }
}
END_TEST

/* Bytes that device 0 sends in a step over links of the rate. */
static int64_t sent_bytes(const struct program *p, const struct sim_result *r, bool between)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < r->trace->n_spans; i++) {
        const struct span *s = &r->trace->spans[i];
        if (s->kind != SPAN_REDUCE || s->device != 0 || s->step != 1) continue;
        const struct collective *g = &p->collectives[s->op];
        bool inside = program_collective_divides(g) && g->dtype != DTYPE_int32; /* codes are gathered between nodes */
        if (inside != between) bytes += s->bytes;
    }
    return bytes;
}

/* Of S bytes a device sends S/g · (g-1) twice inside the node, and 2 (T-1)/T S/g to other nodes. */
START_TEST(a_device_sends_its_shard_alone_to_other_nodes)
{
    static const int32_t pairs[] = {2, 2, 2}, g = 2, T = 3;
    struct plan plan = replicas("llama", 3, pairs, 3, 1);
    const struct program *p = plans_lower(arena, &plan, true);
    int64_t all = p->collectives[0].elements * 4;
    struct sim_result r = simulate(&plan, p, false);
    ck_assert_int_eq(sent_bytes(p, &r, false), 2 * all / g * (g - 1));
    ck_assert_int_le(llabs(sent_bytes(p, &r, true) - 2 * all / g * (T - 1) / T), 2 * T * 4);
}
END_TEST

/* One microbatch, one bucket, two nodes of two: the scatter, the sums of both shards over the link between the nodes, half the update, the
 * gather. Each sum has two rounds of S/4 bytes; the four messages a direction follow each other on the link. */
START_TEST(the_time_is_that_of_its_parts)
{
    static const int32_t pairs[] = {2, 2};
    struct plan plan = replicas("llama", 2, pairs, 1, 1);
    plan.job.optimizer.kind = OPTIMIZER_SGD;
    const struct program *p = plans_lower(arena, &plan, true);
    struct sim_result r = simulate(&plan, p, false);
    int64_t computed = 0, all = p->collectives[0].elements * 4;
    for (size_t i = 0; i < r.trace->n_spans; i++) {
        const struct span *s = &r.trace->spans[i];
        if (s->kind != SPAN_COMPUTE || s->device || s->step != 1) continue;
        if (p->stages[0].ops[s->op].kind != OP_zero) computed += s->end_ns - s->begin_ns;
    }
    int64_t inside = all / 2 + LATENCY_NS, message = units_ns_from_s((double)all / 4 / NET_BPS);
    ck_assert_int_eq(r.iteration_ns, computed + 2 * inside + 4 * message + LATENCY_NS);
}
END_TEST

static void refused(const struct plan *p, const char *text)
{
    struct error err = {0};
    ck_assert_int_eq(plans_refused(arena, p, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, text) != NULL, "'%s' is not in: %s", text, err.text);
}

START_TEST(what_has_no_shards_is_an_error)
{
    static const int32_t ones[] = {1, 1}, odd[] = {3, 2}, pairs[] = {2, 2};
    struct plan p = replicas("llama", 2, ones, 2, 1);
    refused(&p, "hybrid_shard: copies of these layers are 1 on n0, 1 on n1; no number above 1");
    p = replicas("llama", 2, odd, 2, 3);
    refused(&p, "hybrid_shard: copies of these layers are 3 on n0, 2 on n1; no number above 1");
    p = replicas("llama", 2, pairs, 2, 1);
    p.replicas[3].stages[0].hybrid_shard = false;
    refused(&p, "hybrid_shard: false, but replicas[0].stages[0], which holds the same layers, has true");
}
END_TEST

START_TEST(a_plan_file_states_it)
{
    static const int32_t pairs[] = {2, 2};
    struct plan p = replicas("llama", 2, pairs, 2, 3), again;
    char *text = NULL;
    size_t n;
    struct node *root;
    struct error err = {0};
    FILE *f = open_memstream(&text, &n);
    plan_write(f, arena, &p);
    fclose(f);
    ck_assert_int_eq(document_parse(arena, "plan", text, n, &root, &err), OK);
    ck_assert_msg(plan_parse(arena, root, ".", &again, &err) == OK, "%s", err.text);
    ck_assert(again.replicas[1].stages[0].hybrid_shard);
    ck_assert_uint_eq(plan_hash(arena, &p), plan_hash(arena, &again));
    ck_assert_ptr_nonnull(strstr(plan_describe(arena, &again), "zero 3 inside nodes"));
    memcpy(strstr(text, "zero: 3"), "zero: 0", 7);
    ck_assert_int_eq(document_parse(arena, "plan", text, n, &root, &err), OK);
    ck_assert_int_eq(plan_parse(arena, root, ".", &again, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "needs zero: 1, 2 or 3"));
    free(text);
}
END_TEST

/* Blocks of 16 numbers, 64 bytes, divide every shard. */
static const struct compressor codes_between = {.kind = COMPRESSION_INT8, .between = BETWEEN_NODES, .block = 16, .stochastic = true};

START_TEST(codes_cross_nodes_and_sums_stay_inside)
{
    static const int32_t threes[] = {3, 3, 3};
    for (int32_t zero = 1; zero <= 3; zero++) {
        struct plan plain = replicas("gpt2", 3, threes, 2, zero), coded = plain;
        coded.compression.gradients = codes_between;
        const struct program *a = plans_lower(arena, &plain, true), *b = plans_lower(arena, &coded, true);
        struct sim_result x = simulate(&plain, a, false), y = simulate(&coded, b, false);
        int64_t numbers = 0;
        for (int32_t i = 0; i < a->n_collectives; i++) {
            const struct collective *g = &a->collectives[i];
            if (!program_collective_divides(g) && g->members[0].stage == 0) numbers += g->elements;
        }
        ck_assert_int_gt(numbers, 0);
        ck_assert_int_eq(sent_bytes(a, &x, false), sent_bytes(b, &y, false));
        ck_assert_int_eq(sent_bytes(b, &y, true), 2 * 4 * numbers * 5 / 16); /* two codes; a scale and 4 words for 16 numbers */
        ck_assert_int_eq(b->stages[0].class_bytes[SLOT_FEEDBACK], 0);
    }
}
END_TEST

START_TEST(random_plans_end_and_fold_to_the_same_time)
{
    for (uint64_t seed = 0; seed < (suites_long() ? 400 : 40); seed++) {
        struct plans_random r = {seed, 900};
        int32_t of[4], n_nodes = 2 + plans_below(&r, 3), each = 2 + plans_below(&r, 2), zero = 1 + (int32_t)(seed % 3);
        for (int32_t i = 0; i < n_nodes; i++) of[i] = each * (1 + plans_below(&r, 2));
        struct plan plan = replicas(seed % 2 ? "gpt2" : "llama", n_nodes, of, 1 + plans_below(&r, 3), zero);
        int64_t bucket = plans_below(&r, 2) ? 0 : 4096;
        for (int32_t k = 0; k < plan.n_replicas; k++) plan.replicas[k].stages[0].bucket_bytes = bucket;
        plan.job.precision = plans_below(&r, 2) ? DTYPE_fp32 : DTYPE_fp16;
        if (plans_below(&r, 2)) plan.compression.gradients = codes_between;
        const struct program *p = plans_lower(arena, &plan, seed % 2);
        struct error err = {0};
        ck_assert_msg(program_check(arena, p, &err) == OK, "seed %lu: %s", (unsigned long)seed, err.text);
        plans_read_back(arena, p);
        struct sim_result all = simulate(&plan, p, false), one = simulate(&plan, p, true);
        ck_assert_msg(llabs(one.iteration_ns - all.iteration_ns) * 1000 <= all.iteration_ns, "seed %lu: %ld ns folded, %ld whole",
                      (unsigned long)seed, (long)one.iteration_ns, (long)all.iteration_ns);
        arena_reset(arena);
    }
}
END_TEST

Suite *hybrid_shard_suite(void)
{
    Suite *s = suite_create("hybrid_shard");
    TCase *t = tcase_create("hybrid_shard");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, shards_are_of_a_node_and_sums_of_one_device_of_each);
    tcase_add_test(t, on_one_node_it_is_plain_zero);
    tcase_add_test(t, state_takes_the_memory_of_a_node);
    tcase_add_test(t, a_device_sends_its_shard_alone_to_other_nodes);
    tcase_add_test(t, the_time_is_that_of_its_parts);
    tcase_add_test(t, what_has_no_shards_is_an_error);
    tcase_add_test(t, a_plan_file_states_it);
    tcase_add_test(t, codes_cross_nodes_and_sums_stay_inside);
    tcase_add_test(t, random_plans_end_and_fold_to_the_same_time);
    suite_add_tcase(s, t);
    return s;
}
