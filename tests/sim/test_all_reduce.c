/* Gradient all-reduces in rounds (all_reduce of a plan's stage): their groups, their time against the closed forms, random plans through
 * the deadlock check, the program file, the simulator and its folding, and what is refused. tests/cli/all_reduce.sh trains. */
#include "core/base/units.h"
#include "sim/collective/cost.h"
#include "sim/engine/sim.h"
#include "tests/support/plans.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static const enum collective_algorithm by[] = {ALGORITHM_HIERARCHICAL, ALGORITHM_HALVING_DOUBLING, ALGORITHM_DOUBLE_TREE};

/* `each` devices on every node, each node with its bus, and a link between every two nodes; all of 1 GB/s. */
static void spread(struct plan *p, int32_t n_nodes, int32_t each)
{
    struct cluster *c = &p->cluster;
    struct link bus = c->links[0];
    c->n_nodes = n_nodes, c->n_links = 0;
    c->nodes = ARENA_ARRAY(arena, struct node_spec, (size_t)n_nodes);
    c->links = ARENA_ARRAY(arena, struct link, (size_t)(n_nodes * n_nodes));
    for (int32_t i = 0; i < n_nodes; i++) {
        c->nodes[i] = (struct node_spec){
            .name = arena_printf(arena, "n%d", (int)i), .host = "localhost", .first_device = i * each, .n_devices = each};
        for (int32_t k = i * each; k < (i + 1) * each; k++)
            c->devices[k].node = i, c->devices[k].index = k - i * each,
            c->devices[k].name = arena_printf(arena, "n%d.%d", (int)i, (int)(k - i * each));
        struct link *l = &c->links[c->n_links++];
        *l = bus, l->name = arena_printf(arena, "bus%d", (int)i), l->end[0] = i;
        for (int32_t k = 0; k < i; k++) {
            l = &c->links[c->n_links++];
            *l = bus, l->name = arena_printf(arena, "net%d-%d", (int)k, (int)i);
            l->n_ends = 2, l->kind[0] = l->kind[1] = END_NODE, l->end[0] = k, l->end[1] = i;
        }
    }
}

/* A replica on each device. */
static struct plan replicas(const char *model, int32_t n_nodes, int32_t each, int32_t microbatches, enum collective_algorithm w)
{
    struct plan p = plans_new(arena, model, 1, n_nodes * each);
    int32_t last = plans_layers(arena, &p) - 1;
    for (int32_t r = 0; r < n_nodes * each; r++) plans_replica(arena, &p, microbatches, 1, &last)->stages->all_reduce = w;
    spread(&p, n_nodes, each);
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

static struct cost_link hop_of(const void *of, int32_t from, int32_t to)
{
    (void)from, (void)to;
    return *(const struct cost_link *)of;
}

/* From the first to the last message of a collective in step 0, in which equal devices begin it together. */
static int64_t took_ns(const struct sim_result *r, int32_t group)
{
    int64_t first = INT64_MAX, last = 0;
    for (size_t i = 0; i < r->trace->n_spans; i++) {
        const struct span *s = &r->trace->spans[i];
        if (s->kind != SPAN_REDUCE || s->op != group || s->step != 0) continue;
        first = s->begin_ns < first ? s->begin_ns : first;
        last = units_max(last, s->end_ns);
    }
    return last - first;
}

/* The recurrence of sim/collective/cost, which test_collective_cost compares with the textbook. */
START_TEST(on_links_of_their_own_they_take_what_their_closed_forms_say)
{
    const struct cost_link link = {.bandwidth_Bps = 1e9, .latency_ns = 1000};
    const struct collective_hops hops = {hop_of, &link, NULL};
    for (int32_t n = 2; n <= 9; n++)
        for (int k = 1; k < 3; k++) {
            struct plan plan = replicas("llama", n, 1, 1, by[k]);
            const struct program *p = plans_lower(arena, &plan, true);
            const struct collective *g = &p->collectives[0];
            ck_assert_int_eq(g->algorithm, by[k]);
            ck_assert_int_eq(p->n_collectives, 1);
            struct collective_case c = {
                .kind = COLLECTIVE_ALL_REDUCE, .algorithm = by[k], .n_members = n, .elements = g->elements, .element_bytes = 4};
            struct error err;
            int64_t ns;
            ck_assert_int_eq(collective_ns(&c, &hops, NULL, NULL, &ns, &err), OK);
            struct sim_result r = simulate(&plan, p, false);
            ck_assert_int_eq(took_ns(&r, 0), ns);
            arena_reset(arena);
        }
}
END_TEST

/* Of S bytes a device of g sends 2 (g-1)/g S inside its node and 2 (T-1)/T S/g to other nodes, as with hybrid_shard, without shards. */
START_TEST(a_hierarchical_sum_sends_a_slice_to_other_nodes)
{
    const int32_t g = 2, T = 3;
    struct plan plan = replicas("llama", T, g, 2, ALGORITHM_HIERARCHICAL);
    const struct program *p = plans_lower(arena, &plan, true);
    const struct collective *c = &p->collectives[0];
    int64_t inside = 0, between = 0, all = c->elements;
    for (int32_t k = 0; k < collective_steps(c); k++) {
        struct collective_round s = collective_round(c, 0, k);
        if (s.to >= 0) *(c->tier[0] == c->tier[s.to] ? &inside : &between) += s.send;
    }
    ck_assert_int_le(llabs(inside - 2 * all * (g - 1) / g), 2 * g);
    ck_assert_int_le(llabs(between - 2 * all / g * (T - 1) / T), 2 * T);
}
END_TEST

static void refused(const struct plan *p, const char *text)
{
    struct error err = {0};
    ck_assert_int_eq(plans_refused(arena, p, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, text) != NULL, "'%s' is not in: %s", text, err.text);
}

START_TEST(what_fits_no_sum_is_an_error)
{
    struct plan p = replicas("llama", 4, 1, 2, ALGORITHM_HIERARCHICAL);
    refused(&p, "all_reduce: no gradient all-reduce of the plan can be hierarchical; it takes place between two or more devices, members on "
                "several nodes, equally many and at least two on each");
    p = replicas("llama", 2, 2, 2, ALGORITHM_DOUBLE_TREE);
    p.replicas[3].stages->all_reduce = ALGORITHM_RING;
    refused(&p, "all_reduce: ring, but replicas[0].stages[0], which holds the same layers, has double-tree");
    p = replicas("llama", 2, 2, 2, ALGORITHM_DOUBLE_TREE);
    p.deterministic = true;
    refused(&p, "all_reduce: no gradient all-reduce of the plan can be double-tree");
    p = replicas("llama", 2, 2, 2, ALGORITHM_HALVING_DOUBLING);
    for (int32_t r = 0; r < 4; r++) p.replicas[r].stages->zero = 1;
    refused(&p, "all_reduce: no gradient all-reduce of the plan can be halving-doubling");
    for (int32_t r = 0; r < 4; r++) p.replicas[r].stages->hybrid_shard = true;
    const struct program *x = plans_lower(arena, &p, true);
    int32_t between = 0;
    for (int32_t i = 0; i < x->n_collectives; i++) between += x->collectives[i].algorithm == ALGORITHM_HALVING_DOUBLING;
    ck_assert_int_eq(between, 2); /* one for each shard */
}
END_TEST

START_TEST(a_plan_file_states_it)
{
    struct plan p = replicas("llama", 2, 2, 2, ALGORITHM_HALVING_DOUBLING), again;
    char *text = NULL;
    size_t n;
    struct node *root;
    struct error err = {0};
    FILE *f = open_memstream(&text, &n);
    plan_write(f, arena, &p);
    fclose(f);
    ck_assert_int_eq(document_parse(arena, "plan", text, n, &root, &err), OK);
    ck_assert_msg(plan_parse(arena, root, ".", &again, &err) == OK, "%s", err.text);
    ck_assert_int_eq(again.replicas[1].stages->all_reduce, ALGORITHM_HALVING_DOUBLING);
    ck_assert_uint_eq(plan_hash(arena, &p), plan_hash(arena, &again));
    ck_assert_ptr_nonnull(strstr(plan_describe(arena, &again), "halving-doubling all-reduce"));
    memcpy(strstr(text, "halving-doubling"), "halving-douglass", 16);
    ck_assert_int_eq(document_parse(arena, "plan", text, n, &root, &err), OK);
    ck_assert_int_eq(plan_parse(arena, root, ".", &again, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "halving-doubling, double-tree") != NULL, "%s", err.text);
    free(text);
}
END_TEST

START_TEST(random_plans_end_and_fold_to_the_same_time)
{
    for (uint64_t seed = 0; seed < (suites_long() ? 400 : 40); seed++) {
        struct plans_random r = {seed, 900};
        int32_t n_nodes = 2 + plans_below(&r, 4), each = 2 + plans_below(&r, 3), zero = (int32_t)(seed % 4);
        struct plan plan = replicas(seed % 2 ? "gpt2" : "llama", n_nodes, each, 1 + plans_below(&r, 3), by[zero ? 1 + seed % 2 : seed % 3]);
        int64_t bucket = plans_below(&r, 2) ? 0 : 4096;
        for (int32_t k = 0; k < plan.n_replicas; k++) {
            struct plan_stage *s = plan.replicas[k].stages;
            s->bucket_bytes = bucket, s->zero = zero, s->hybrid_shard = zero > 0;
        }
        plan.job.precision = plans_below(&r, 2) ? DTYPE_fp32 : DTYPE_fp16;
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

Suite *all_reduce_suite(void)
{
    Suite *s = suite_create("all_reduce");
    TCase *t = tcase_create("all_reduce");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, on_links_of_their_own_they_take_what_their_closed_forms_say);
    tcase_add_test(t, a_hierarchical_sum_sends_a_slice_to_other_nodes);
    tcase_add_test(t, what_fits_no_sum_is_an_error);
    tcase_add_test(t, a_plan_file_states_it);
    tcase_add_test(t, random_plans_end_and_fold_to_the_same_time);
    suite_add_tcase(s, t);
    return s;
}
