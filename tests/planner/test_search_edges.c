/* Searches with missing inputs: a link, equal GPUs, all baselines but one. */
#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/document/document.h"
#include "planner/search.h"
#include "planner/spmd_stage/tp_options.h"
#include "profiles/team.h"

#include "tests/support/suites.h"

#include <string.h>

static struct arena *arena;
static struct job job;
static struct cluster cluster;
static struct profile profile;

static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static void read_cluster(const char *team)
{
    struct error err = {0};
    struct node *root = NULL;
    ck_assert_int_eq(document_parse(arena, "team", team, strlen(team), &root, &err), OK);
    ck_assert_msg(cluster_parse(arena, root, &cluster, &err) == OK, "%s", err.text);
    ck_assert_msg(team_complete(&cluster, &err) == OK, "%s", err.text);
    ck_assert_msg(profile_prior(arena, &cluster, &profile, &err) == OK, "%s", err.text);
}

static void read_all(const char *team)
{
    static const char text[] =
        "version: 1\nmodel: {model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 2, "
        "n_positions: 16, vocab_size: 256}\nsequence_length: 16\nglobal_batch: 8\nmicrobatch: 1\n";
    struct error err = {0};
    struct node *root = NULL;
    ck_assert_int_eq(document_parse(arena, "job", text, strlen(text), &root, &err), OK);
    ck_assert_msg(job_parse(arena, root, ".", &job, &err) == OK, "%s", err.text);
    read_cluster(team);
}

static enum status find(const struct search_options *o, struct search_result *r, struct error *err)
{
    *err = (struct error){0};
    return search_plans(arena, &job, &cluster, &profile, o, r, err);
}

#define TEAM                                                                                       \
    "version: 1\nname: t\ndevice_types:\n"                                                         \
    "  - {name: fast, device: host, slowdown: 2, memory: 1 GiB}\n"                                 \
    "  - {name: slow, device: host, slowdown: 3, memory: 1 GiB}\n"                                 \
    "nodes:\n"                                                                                     \
    "  - {name: a, host: localhost, devices: [{type: fast}, {type: slow}]}\n"                      \
    "  - {name: b, host: localhost, devices: [{type: slow}]}\n"

START_TEST(a_team_with_a_link_missing_is_planned_on_devices_that_have_one)
{
    struct search_options o = {.top = 1};
    struct search_result r;
    struct error err;
    read_all(TEAM "links: [{name: bus, between: [a], bandwidth: 2 GB/s, latency: 20 us}]\n");
    ck_assert_msg(find(&o, &r, &err) == OK, "%s", err.text);
    ck_assert(r.exact);
    for (int32_t i = 0; i < r.plans[0].plan.n_replicas; i++)
        for (int32_t s = 0; s < r.plans[0].plan.replicas[i].n_stages; s++)
            ck_assert_int_lt(r.plans[0].plan.replicas[i].stages[s].device, 2);
    ck_assert_int_le(r.lower_bound_ns, r.plans[0].iteration_ns);
    int64_t two = r.plans[0].iteration_ns;
    read_all(TEAM "links: []\n");
    ck_assert_msg(find(&o, &r, &err) == OK, "%s", err.text);
    ck_assert_int_eq(r.plans[0].plan.n_replicas, 1);
    ck_assert_int_eq(r.plans[0].plan.replicas[0].n_stages, 1);
    ck_assert_int_eq(r.plans[0].plan.replicas[0].stages[0].device, 0);
    ck_assert_int_lt(two, r.plans[0].iteration_ns);
}
END_TEST

/* Four GPUs of each node share a switch and the fifth has none: two kinds on one node. */
START_TEST(ten_gpus_whose_nodes_are_not_of_one_class_are_planned)
{
    struct search_options o = {.top = 1};
    struct search_result r;
    struct error err;
    read_all("version: 1\nname: t\ndevice_types: [{name: h, device: H100-SXM5}]\n"
             "nodes:\n  - {name: a, host: a, devices: [{type: h, count: 5}]}\n"
             "  - {name: b, host: b, devices: [{type: h, count: 5}]}\n"
             "switches: [{name: sa}, {name: sb}]\nlinks:\n"
             "  - {name: a0, between: [a.0, sa], bandwidth: 90 GB/s, latency: 2 us}\n"
             "  - {name: a1, between: [a.1, sa], bandwidth: 90 GB/s, latency: 2 us}\n"
             "  - {name: a2, between: [a.2, sa], bandwidth: 90 GB/s, latency: 2 us}\n"
             "  - {name: a3, between: [a.3, sa], bandwidth: 90 GB/s, latency: 2 us}\n"
             "  - {name: b0, between: [b.0, sb], bandwidth: 50 GB/s, latency: 2 us}\n"
             "  - {name: b1, between: [b.1, sb], bandwidth: 50 GB/s, latency: 2 us}\n"
             "  - {name: b2, between: [b.2, sb], bandwidth: 50 GB/s, latency: 2 us}\n"
             "  - {name: b3, between: [b.3, sb], bandwidth: 50 GB/s, latency: 2 us}\n"
             "  - {name: ab, between: [sa, sb], bandwidth: 10 GB/s, latency: 5 us}\n");
    ck_assert_msg(find(&o, &r, &err) == OK, "%s", err.text);
    ck_assert_int_le(r.lower_bound_ns, r.plans[0].iteration_ns);
}
END_TEST

START_TEST(a_square_without_diagonals_is_planned)
{
    struct search_options o = {.top = 1};
    struct search_result r;
    struct error err;
    read_all("version: 1\nname: t\n"
             "device_types: [{name: d, device: host, slowdown: 2, memory: 1 GiB}]\n"
             "nodes:\n"
             "  - {name: a, host: localhost, devices: [{type: d}]}\n"
             "  - {name: b, host: localhost, devices: [{type: d}]}\n"
             "  - {name: c, host: localhost, devices: [{type: d}]}\n"
             "  - {name: e, host: localhost, devices: [{type: d}]}\n"
             "links:\n"
             "  - {name: ab, between: [a, b], bandwidth: 2 GB/s, latency: 2 us}\n"
             "  - {name: bc, between: [b, c], bandwidth: 2 GB/s, latency: 2 us}\n"
             "  - {name: ce, between: [c, e], bandwidth: 2 GB/s, latency: 2 us}\n"
             "  - {name: ae, between: [a, e], bandwidth: 2 GB/s, latency: 2 us}\n");
    ck_assert_msg(find(&o, &r, &err) == OK, "%s", err.text);
    ck_assert_int_le(r.lower_bound_ns, r.plans[0].iteration_ns);
}
END_TEST

START_TEST(a_baseline_asked_for_stands_alone_and_all_others_say_why_they_do_not)
{
    struct search_options one = {.top = 1, .baseline = "gpipe"}, all = {.top = 1};
    struct search_result r;
    struct error err;
    read_all(TEAM "links: [{name: bus, between: [a], bandwidth: 2 GB/s, latency: 20 us}]\n");
    ck_assert_msg(find(&all, &r, &err) == OK, "%s", err.text);
    ck_assert_int_gt(r.n_baselines, 1);
    for (int32_t i = 0; i < r.n_baselines; i++)
        if (r.baselines[i].iteration_ns == INT64_MAX) ck_assert_ptr_nonnull(r.baselines[i].why);
    read_all(TEAM "links:\n"
                  "  - {name: bus, between: [a], bandwidth: 2 GB/s, latency: 20 us}\n"
                  "  - {name: lan, between: [a, b], bandwidth: 1 GB/s, latency: 20 us}\n");
    ck_assert_msg(find(&one, &r, &err) == OK, "%s", err.text);
    ck_assert_int_eq(r.n_baselines, 1);
    ck_assert_str_eq(r.baselines[0].name, "gpipe");
    ck_assert_int_eq(r.baselines[0].iteration_ns, r.plans[0].iteration_ns);
}
END_TEST

/* Messages of operators sharded over a network of 20 MB/s take longer than a whole iteration elsewhere: HAP's plan is left out by an estimate
 * beside a search, and made where it is asked for. */
START_TEST(hap_is_estimated_before_it_is_searched)
{
    struct search_options all = {.top = 1}, one = {.top = 1, .baseline = "hap"};
    struct search_result r, alone;
    struct error err;
    read_all(TEAM "links:\n"
                  "  - {name: bus, between: [a], bandwidth: 20 MB/s, latency: 200 us}\n"
                  "  - {name: lan, between: [a, b], bandwidth: 20 MB/s, latency: 200 us}\n");
    ck_assert_msg(find(&all, &r, &err) == OK, "%s", err.text);
    const struct search_baseline *hap = &r.baselines[r.n_baselines - 1];
    ck_assert_str_eq(hap->name, "hap");
    ck_assert(hap->iteration_ns == INT64_MAX && strstr(hap->why, "estimated slower"));
    ck_assert_msg(find(&one, &alone, &err) == OK, "%s", err.text);
    ck_assert_int_gt(alone.plans[0].iteration_ns, r.plans[0].iteration_ns);
}
END_TEST

/* Baselines too. */
START_TEST(no_plan_is_below_its_bound_where_stages_on_all_gpus_of_a_node_fit_best)
{
    static const char text[] =
        "version: 1\nmodel: {model_type: gpt2, n_embd: 8192, n_layer: 12, n_head: 64, n_positions: "
        "1024, vocab_size: 51200}\nsequence_length: 1024\nglobal_batch: 32\nmicrobatch: [1]\n"
        "precision: fp16\n";
    struct search_options o = {.top = 3, };
    struct search_result r;
    struct error err = {0};
    struct node *root = NULL;
    read_all("version: 1\nname: pair\ndevice_types: [{name: h100, device: H100-SXM5}]\nnodes:\n"
             "  - {name: a, host: a, devices: [{type: h100, count: 4}]}\n"
             "  - {name: b, host: b, devices: [{type: h100, count: 4}]}\nlinks:\n"
             "  - {name: na, between: [a], bandwidth: 400 GB/s, latency: 2 us}\n"
             "  - {name: nb, between: [b], bandwidth: 400 GB/s, latency: 2 us}\n"
             "  - {name: ib, between: [a, b], bandwidth: 25 GB/s, latency: 5 us}\n");
    ck_assert_int_eq(document_parse(arena, "job", text, strlen(text), &root, &err), OK);
    ck_assert_msg(job_parse(arena, root, ".", &job, &err) == OK, "%s", err.text);
    ck_assert_msg(find(&o, &r, &err) == OK, "%s", err.text);
    for (int32_t i = 0; i < r.n_plans; i++)
        ck_assert_int_le(r.lower_bound_ns, r.plans[i].iteration_ns);
}
END_TEST

/* 64k positions fit only on all seven GPUs of a node, or on three beside four; with stages of powers of two there was no plan. */
START_TEST(nodes_of_seven_gpus_have_stages_on_all_of_them)
{
    static const char text[] = "version: 1\nmodel: tests/data/models/llama-3.1-8b.json\nsequence_length: 65536\nglobal_batch: 16\n"
                               "precision: fp16\noptimizer: {kind: adamw, lr: 1e-4}\n";
    static const int32_t of_seven[] = {1, 2, 3, 4, 7}, of_eight[] = {1, 2, 4, 8};
    struct search_options o = {.top = 1};
    struct search_result r;
    struct error err = {0};
    struct node *root = NULL;
    int32_t seven = 0, eight = 0;
    for (int32_t n = 1; n <= 8; n++) {
        if (tp_options_offered(n, 7)) ck_assert_int_eq(of_seven[seven++], n);
        if (tp_options_offered(n, 8)) ck_assert_int_eq(of_eight[eight++], n);
    }
    ck_assert(seven == 5 && eight == 4);
    ck_assert_int_eq(document_parse(arena, "job", text, strlen(text), &root, &err), OK);
    ck_assert_msg(job_parse(arena, root, ".", &job, &err) == OK, "%s", err.text);
    read_cluster("version: 1\nname: c\ndevice_types:\n  - {name: v, device: V100-SXM2-32}\nnodes:\n"
                 "  - {name: n, count: 3, devices: {type: v, count: 7}}\nswitches: [{name: core}, {name: sw, count: 3}]\nlinks:\n"
                 "  - {name: nv, count: 21, between: [n.*, sw], bandwidth: 150 GB/s, latency: 1 us}\n"
                 "  - {name: up, count: 3, between: [n, core], bandwidth: 12.5 GB/s, latency: 5 us}\n");
    ck_assert_msg(find(&o, &r, &err) == OK, "%s", err.text);
    ck_assert_int_le(r.lower_bound_ns, r.plans[0].iteration_ns);
}
END_TEST

/* Memory binds on stages of some candidates whose orders keep nothing that could be less: the search for orders that fit did not end. */
START_TEST(orders_whose_memory_cannot_be_less_end_the_search)
{
    struct search_options o = {.top = 1};
    struct search_result r;
    struct error err = {0};
    char *team, *count;
    size_t n;
    ck_assert_msg(job_read(arena, "tests/bench/questions/llama-8b-4k.yaml", &job, &err) == OK, "%s", err.text);
    ck_assert_msg(file_read(arena, "tests/bench/questions/h8-a8.yaml", 1 << 16, &team, &n, &err) == OK, "%s", err.text);
    while ((count = strstr(team, "a100, count: 8"))) count[13] = '7';
    read_cluster(team);
    ck_assert_int_eq(cluster.n_devices, 15);
    ck_assert_msg(find(&o, &r, &err) == OK, "%s", err.text);
    ck_assert_int_le(r.lower_bound_ns, r.plans[0].iteration_ns);
}
END_TEST

Suite *search_edges_suite(void)
{
    Suite *s = suite_create("search_edges");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 600);
    tcase_add_test(t, a_team_with_a_link_missing_is_planned_on_devices_that_have_one);
    tcase_add_test(t, nodes_of_seven_gpus_have_stages_on_all_of_them);
    tcase_add_test(t, orders_whose_memory_cannot_be_less_end_the_search);
    tcase_add_test(t, ten_gpus_whose_nodes_are_not_of_one_class_are_planned);
    tcase_add_test(t, a_square_without_diagonals_is_planned);
    tcase_add_test(t, a_baseline_asked_for_stands_alone_and_all_others_say_why_they_do_not);
    tcase_add_test(t, hap_is_estimated_before_it_is_searched);
    tcase_add_test(t, no_plan_is_below_its_bound_where_stages_on_all_gpus_of_a_node_fit_best);
    suite_add_tcase(s, t);
    return s;
}
