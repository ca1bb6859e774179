/* Cost of a plan, and the objectives cost and rate. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/document/document.h"
#include "planner/search.h"
#include "profiles/team.h"
#include "tests/support/suites.h"

#include <math.h>
#include <stdio.h>

static struct arena *a;
static struct error err;

#define MUST(call) ck_assert_msg((call) == OK, "%s", err.text)

static void set_up(void) { a = arena_new(); }
static void tear_down(void) { arena_free(a); }

static int64_t draw(uint64_t seed, uint64_t which, int64_t low, int64_t high)
{
    return low + (int64_t)rng_below(seed, 78, which, (uint64_t)(high - low + 1));
}

/* n devices of unequal speed and price, each on a node of its own; a small job. */
static void make_case(uint64_t seed, int32_t n, bool priced, struct job *job,
                      struct cluster *cluster, struct profile *profile)
{
    char *text = NULL;
    size_t size = 0;
    struct node *root = NULL;
    FILE *f = open_memstream(&text, &size);
    fputs("version: 1\nname: c\ndevice_types:\n", f);
    for (int32_t i = 0; i < n; i++) {
        fprintf(f, "  - {name: t%d, device: host, slowdown: %d, memory: 1 GiB", (int)i,
                (int)draw(seed, (uint64_t)i, 1, 6));
        if (priced) fprintf(f, ", price: %d.%d/h", (int)draw(seed, 10 + (uint64_t)i, 1, 4), (int)i);
        fputs("}\n", f);
    }
    fputs("nodes:\n", f);
    for (int32_t i = 0; i < n; i++)
        fprintf(f, "  - {name: n%d, devices: {type: t%d}}\n", (int)i, (int)i);
    fputs("links:\n", f);
    for (int32_t i = 1; i < n; i++)
        for (int32_t j = 0; j < i; j++)
            fprintf(f,
                    "  - {name: l%d%d, between: [n%d, n%d], bandwidth: %d MB/s, latency: 9 us}\n",
                    (int)j, (int)i, (int)j, (int)i,
                    (int)draw(seed, 20 + (uint64_t)(4 * i + j), 2, 200));
    fclose(f);
    MUST(document_parse(a, "cluster", text, size, &root, &err));
    MUST(cluster_parse(a, root, cluster, &err));
    free(text);
    const char *j = arena_printf(
        a,
        "version: 1\nmodel: {model_type: gpt2, n_embd: 32, n_layer: 1, n_head: 2, n_positions: 16, "
        "vocab_size: 256}\nsequence_length: 16\nglobal_batch: %d\nmicrobatch: 1\n",
        (int)draw(seed, 40, 2, 5));
    MUST(document_parse(a, "job", j, strlen(j), &root, &err));
    MUST(job_parse(a, root, ".", job, &err));
    MUST(profile_prior(a, cluster, profile, &err));
}

static enum status find(const struct job *j, const struct cluster *c, const struct profile *p,
                        struct search_options o, struct search_result *r)
{
    if (!o.top) o.top = 1;
    return search_plans(a, j, c, p, &o, r, &err);
}

START_TEST(a_plan_costs_the_gpus_that_it_uses)
{
    struct device_type types[] = {{.name = "x", .priced = true, .price_per_h = 14},
                                  {.name = "y", .priced = true, .price_per_h = 0.5}};
    struct device devices[] = {{"a.0", 0, 0, 0}, {"b.0", 1, 1, 0}, {"b.1", 1, 1, 1}};
    struct plan_stage stages[] = {{.device = 1}, {.device = 0}, {.device = 1}};
    struct plan_replica replica = {.n_stages = 2, .stages = stages};
    struct plan p = {.n_replicas = 1,
                     .replicas = &replica,
                     .cluster = {.types = types, .n_types = 2, .devices = devices, .n_devices = 3}};
    ck_assert_double_eq_tol(plan_price_per_h(&p), 14 + 0.5, 1e-12);
    ck_assert_double_eq_tol(plan_cost(&p, INT64_C(720000000000)), 14.5 / 5, 1e-12);
    replica.n_stages = 3; /* two chunks of one device are one GPU */
    ck_assert_double_eq_tol(plan_price_per_h(&p), 14.5, 1e-12);
    replica.n_stages = 1;
    ck_assert_double_eq_tol(plan_price_per_h(&p), 0.5, 1e-12);
}
END_TEST

START_TEST(the_cheapest_plan_of_all_is_found)
{
    for (uint64_t seed = 1; seed <= (suites_long() ? 200 : 8); seed++) {
        struct job job;
        struct cluster cluster;
        struct profile profile;
        struct search_result all, cheap;
        double least = INFINITY;
        make_case(seed, 2, true, &job, &cluster, &profile);
        MUST(find(&job, &cluster, &profile, (struct search_options){.top = 100}, &all));
        ck_assert_int_lt(all.n_plans, 100); /* every layout of two devices */
        for (int32_t i = 0; i < all.n_plans; i++) least = fmin(least, all.plans[i].cost);
        MUST(find(&job, &cluster, &profile, (struct search_options){.objective = OBJECTIVE_COST},
                  &cheap));
        ck_assert_double_eq(cheap.plans[0].cost, least);
        ck_assert_double_eq(cheap.plans[0].cost,
                            plan_cost(&cheap.plans[0].plan, cheap.plans[0].iteration_ns));
    }
}
END_TEST

/* With and without pruning; for each objective and limits that some plans keep. */
START_TEST(pruning_by_cost_loses_nothing_and_limits_are_kept)
{
    for (uint64_t seed = 1; seed <= (suites_long() ? 60 : 4); seed++) {
        struct job job;
        struct cluster cluster;
        struct profile profile;
        struct search_result fast, cheap, r, slowly;
        make_case(seed, 3, true, &job, &cluster, &profile);
        MUST(find(&job, &cluster, &profile, (struct search_options){0}, &fast));
        MUST(find(&job, &cluster, &profile, (struct search_options){.objective = OBJECTIVE_COST},
                  &cheap));
        const struct search_plan *quick = fast.plans, *low = cheap.plans;
        ck_assert_double_le(low->cost, quick->cost);
        ck_assert_int_le(quick->iteration_ns, low->iteration_ns);
        struct search_options o[] = {
            {.objective = OBJECTIVE_COST,
             .min_rate = 2e9 / (double)(quick->iteration_ns + low->iteration_ns)},
            {.objective = OBJECTIVE_RATE, .max_cost = (quick->cost + low->cost) / 2},
        };
        for (int k = 0; k < 2; k++) {
            MUST(find(&job, &cluster, &profile, o[k], &r));
            o[k].exhaustive = true;
            MUST(find(&job, &cluster, &profile, o[k], &slowly));
            ck_assert_int_eq(r.plans[0].iteration_ns, slowly.plans[0].iteration_ns);
            ck_assert_double_eq(r.plans[0].cost, slowly.plans[0].cost);
            if (k == 0)
                ck_assert_double_ge(1e9 / (double)r.plans[0].iteration_ns, o[k].min_rate);
            else
                ck_assert_double_le(r.plans[0].cost, o[k].max_cost);
            ck_assert_double_ge(r.plans[0].cost, low->cost);
            ck_assert_int_ge(r.plans[0].iteration_ns, quick->iteration_ns);
        }
    }
}
END_TEST

static void ask(const char *job_text, const char *cluster_text, struct search_options o, struct search_result *r)
{
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct node *root;
    MUST(document_parse(a, "cluster", cluster_text, strlen(cluster_text), &root, &err));
    MUST(cluster_parse(a, root, &cluster, &err));
    MUST(team_complete(&cluster, &err));
    MUST(document_parse(a, "job", job_text, strlen(job_text), &root, &err));
    MUST(job_parse(a, root, ".", &job, &err));
    MUST(profile_prior(a, &cluster, &profile, &err));
    MUST(find(&job, &cluster, &profile, o, r));
}

/* So many nodes of the cheaper type, of so many GPUs; with both, also nodes of the dearer one. */
static const char *of_two_types(bool both, int32_t nodes, int32_t gpus)
{
    return arena_printf(
        a,
        "version: 1\nname: c\ndevice_types:\n  - {name: l, device: L40S, price: 1/h}\n  - {name: r, device: RTX-3090, price: 0.2/h}\n"
        "nodes:\n  - {name: r, count: %d, devices: {type: r, count: %d}}\n%s"
        "switches: [{name: core}]\nlinks:\n  - {name: ir, count: %d, between: [r], bandwidth: 12 GB/s, latency: 2 us}\n"
        "  - {name: ur, count: %d, between: [r, core], bandwidth: 1.25 GB/s, latency: 10 us}\n%s",
        (int)nodes, (int)gpus, both ? "  - {name: l, count: 2, devices: {type: l, count: 4}}\n" : "", (int)nodes, (int)nodes,
        both ? "  - {name: il, count: 2, between: [l], bandwidth: 25 GB/s, latency: 2 us}\n"
               "  - {name: ul, count: 2, between: [l, core], bandwidth: 3 GB/s, latency: 10 us}\n" : "");
}

/* The model fits on two GPUs of a node only if ZeRO divides its state, and is cheapest there. */
START_TEST(the_cheapest_plan_on_two_gpus_of_a_node_is_found_among_sixteen)
{
    const char *job =
        "version: 1\nmodel: {model_type: gpt2, n_embd: 2048, n_layer: 24, n_head: 16, n_positions: 1024, vocab_size: 8192}\n"
        "sequence_length: 1024\nglobal_batch: 32\nprecision: fp16\noptimizer: {kind: adamw, lr: 1e-4}\n";
    struct search_options o = {.objective = OBJECTIVE_COST};
    struct search_result all, two, limited;
    ask(job, of_two_types(true, 2, 4), o, &all);
    ask(job, of_two_types(false, 1, 2), o, &two);
    ck_assert_double_le(all.plans[0].cost, 1.005 * two.plans[0].cost);
    ask(job, of_two_types(true, 2, 4), (struct search_options){.objective = OBJECTIVE_RATE, .max_cost = 1.01 * two.plans[0].cost},
        &limited);
    ck_assert_double_le(limited.plans[0].cost, 1.01 * two.plans[0].cost);
}
END_TEST

/* Eight GPUs of one type and a single one of the other have the cheapest plan: more of the other may stay idle. */
START_TEST(the_cheapest_plan_with_a_single_gpu_of_a_type_is_found_among_four)
{
    const char *job =
        "version: 1\nmodel: {model_type: mistral, hidden_size: 4096, intermediate_size: 14336, max_position_embeddings: 32768, "
        "num_attention_heads: 32, num_hidden_layers: 32, num_key_value_heads: 8, tie_word_embeddings: false, vocab_size: 32000}\n"
        "sequence_length: 4096\nglobal_batch: 96\nprecision: bf16\noptimizer: {kind: adamw, lr: 1e-4}\n";
    struct search_options o = {.objective = OBJECTIVE_COST, .evaluations = 1250};
    struct search_result all, nine;
    ask(job, of_two_types(true, 1, 4), o, &all);
    ask(job, of_two_types(true, 1, 1), o, &nine);
    ck_assert_double_le(all.plans[0].cost, 1.001 * nine.plans[0].cost);
}
END_TEST

/* Nodes of eight GPUs on a switch: two of a cheap type and, with both, four of a slower and dearer one. */
static void make_switched(bool both, struct job *job, struct cluster *cluster, struct profile *profile)
{
    const char *dear = both ? "  - {name: dear, count: 4, devices: {type: dear, count: 8}}\n" : "";
    const char *text = arena_printf(
        a,
        "version: 1\nname: c\ndevice_types:\n  - {name: cheap, device: H100-SXM5, memory: 80 GiB, price: 2/h}\n"
        "  - {name: dear, device: A100-SXM4-80, memory: 80 GiB, price: 3/h}\nnodes:\n"
        "  - {name: cheap, count: 2, devices: {type: cheap, count: 8}}\n%s"
        "switches: [{name: core}]\nlinks:\n"
        "  - {name: in-cheap, count: 2, between: [cheap], bandwidth: 300 GB/s, latency: 1 us}\n"
        "  - {name: up, count: 2, between: [cheap, core], bandwidth: 50 GB/s, latency: 5 us}\n%s",
        dear, both ? "  - {name: in-dear, count: 4, between: [dear], bandwidth: 300 GB/s, latency: 1 us}\n"
                "  - {name: down, count: 4, between: [dear, core], bandwidth: 50 GB/s, latency: 5 us}\n" : "");
    struct node *root;
    MUST(document_parse(a, "cluster", text, strlen(text), &root, &err));
    MUST(cluster_parse(a, root, cluster, &err));
    const char *j =
        "version: 1\nmodel: {model_type: gpt2, n_embd: 2048, n_layer: 8, n_head: 16, n_positions: "
        "1024, vocab_size: 4096}\nsequence_length: 1024\nglobal_batch: 64\nmicrobatch: 1\n"
        "precision: bf16\n";
    MUST(document_parse(a, "job", j, strlen(j), &root, &err));
    MUST(job_parse(a, root, ".", job, &err));
    MUST(profile_prior(a, cluster, profile, &err));
}

/* GPUs that cost more than the time that they save are left out, also where nodes share a switch. */
START_TEST(the_cheapest_plan_costs_no_more_than_that_of_a_part_of_the_cluster)
{
    double cost[2];
    for (int both = 0; both < 2; both++) {
        struct job job;
        struct cluster cluster;
        struct profile profile;
        struct search_result r;
        make_switched(both, &job, &cluster, &profile);
        MUST(find(&job, &cluster, &profile, (struct search_options){.objective = OBJECTIVE_COST}, &r));
        cost[both] = r.plans[0].cost;
        ck_assert_double_le(r.plans[0].cost, 1.01 * r.lower_cost); /* of a single device */
    }
    ck_assert_double_le(cost[1], 1.005 * cost[0]);
}
END_TEST

START_TEST(limits_that_no_plan_keeps_and_prices_that_are_not_there_are_said)
{
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct search_result r;
    make_case(1, 2, true, &job, &cluster, &profile);
    ck_assert_int_eq(find(&job, &cluster, &profile, (struct search_options){.min_rate = 1e6}, &r),
                     ERR_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "within the limits") != NULL, "%s", err.text);
    ck_assert_int_eq(find(&job, &cluster, &profile,
                          (struct search_options){.objective = OBJECTIVE_RATE, .max_cost = 1e-30},
                          &r),
                     ERR_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "within the limits") != NULL, "%s", err.text);
    ck_assert_int_eq(
        find(&job, &cluster, &profile, (struct search_options){.objective = OBJECTIVE_RATE}, &r),
        ERR_USAGE);
    make_case(1, 2, false, &job, &cluster, &profile);
    ck_assert_int_eq(find(&job, &cluster, &profile, (struct search_options){.min_rate = 1e6}, &r),
                     ERR_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "s per iteration") && !strstr(err.text, "costs"), "%s", err.text);
    ck_assert_int_eq(
        find(&job, &cluster, &profile, (struct search_options){.objective = OBJECTIVE_COST}, &r),
        ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "price"));
}
END_TEST

Suite *objective_suite(void)
{
    Suite *s = suite_create("objective");
    TCase *c = tcase_create("objective");
    tcase_add_checked_fixture(c, set_up, tear_down);
    const TTest *tests[] = {a_plan_costs_the_gpus_that_it_uses, the_cheapest_plan_of_all_is_found,
                            pruning_by_cost_loses_nothing_and_limits_are_kept,
                            the_cheapest_plan_on_two_gpus_of_a_node_is_found_among_sixteen,
                            the_cheapest_plan_with_a_single_gpu_of_a_type_is_found_among_four,
                            the_cheapest_plan_costs_no_more_than_that_of_a_part_of_the_cluster,
                            limits_that_no_plan_keeps_and_prices_that_are_not_there_are_said};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(c, tests[i]);
    suite_add_tcase(s, c);
    return s;
}
