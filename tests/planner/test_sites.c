/* Clusters whose nodes are on several sites, joined by slow links: the order of devices, shards inside nodes, and the sites that a plan uses. */
#include "planner/topology/device_graph.h"
#include "profiles/team.h"

#include "tests/support/small_teams.h"

/* Sites of two nodes with four H100 each; bandwidth between sites. Nodes of all sites take turns in the file. */
static struct cluster sites(int n, const char *between)
{
    struct cluster c;
    struct error err = {0};
    const char *text = "version: 1\nname: sites\ndevice_types: [{name: h, device: H100-SXM5}]\nnodes:\n";
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < n; i++)
            text = arena_printf(arena, "%s  - {name: s%dn%d, devices: {type: h, count: 4}}\n", text, i, k);
    text = arena_printf(arena, "%sswitches: [{name: wan}", text);
    for (int i = 0; i < n; i++) text = arena_printf(arena, "%s, {name: s%d}", text, i);
    text = arena_printf(arena, "%s]\nlinks:\n", text);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < 2; k++)
            text = arena_printf(arena,
                                "%s  - {name: in%d%d, between: [s%dn%d], bandwidth: 300 GB/s, latency: 1 us}\n"
                                "  - {name: up%d%d, between: [s%dn%d, s%d], bandwidth: 50 GB/s, latency: 5 us}\n",
                                text, i, k, i, k, i, k, i, k, i);
        text = arena_printf(arena, "%s  - {name: wan%d, between: [s%d, wan], bandwidth: %s, latency: 5 ms}\n", text, i, i, between);
    }
    ck_assert_msg(cluster_parse(arena, small_team_parse("cluster", text), &c, &err) == OK, "%s", err.text);
    ck_assert_msg(team_complete(&c, &err) == OK, "%s", err.text);
    return c;
}

static struct job gpt(void)
{
    struct job j;
    struct error err = {0};
    const char *text = "version: 1\nmodel: {model_type: gpt2, n_embd: 1024, n_layer: 8, n_head: 16, n_positions: 1024, vocab_size: 32000}\n"
                       "sequence_length: 1024\nglobal_batch: 64\nprecision: bf16\n";
    ck_assert_msg(job_parse(arena, small_team_parse("job", text), ".", &j, &err) == OK, "%s", err.text);
    return j;
}

/* A ring over neighbours in the order enters and leaves each site once. */
START_TEST(devices_of_a_site_are_neighbours)
{
    for (int n = 2; n <= 5; n++) {
        struct cluster c = sites(n, "1 GB/s");
        struct device_graph *g;
        struct error err = {0};
        struct profile p;
        ck_assert_int_eq(profile_prior(arena, &c, &p, &err), OK);
        ck_assert_msg(device_graph_new(arena, &c, cost_new(arena, &p, &c), &g, &err) == OK, "%s", err.text);
        for (int32_t i = 0; i < c.n_devices; i++) {
            const char *site = c.nodes[c.devices[g->order[i]].node].name, *of = c.nodes[c.devices[g->order[i / 8 * 8]].node].name;
            ck_assert_msg(!strncmp(site, of, 2), "%s is among the devices of %s", site, of);
        }
    }
}
END_TEST

/* Over links so slow that neither sums nor activations may cross, one site is best. More sites are never worse than one, but for orders of
 * equal plans. */
START_TEST(a_site_alone_is_found)
{
    struct job j = gpt();
    struct cluster one = sites(1, "1 GB/s");
    int64_t alone = small_team_search(&j, &one, &(struct search_options){.top = 1}).plans[0].iteration_ns;
    for (int n = 2; n <= 4; n += 2) {
        struct cluster c = sites(n, "20 MB/s");
        struct search_result r = small_team_search(&j, &c, &(struct search_options){.top = 1});
        ck_assert_msg((double)r.plans[0].iteration_ns <= 1.01 * (double)alone, "%d sites: %.4f s, one alone: %.4f s", n,
                      (double)r.plans[0].iteration_ns / 1e9, (double)alone / 1e9);
    }
}
END_TEST

/* Of a size that the search does not try by itself. */
START_TEST(an_old_plan_keeps_its_microbatch_size)
{
    for (int devices = 1; devices <= 5; devices += 4) { /* nodes of two: with and without an exhaustive class */
        struct job threes = small_team_job(4, 45, "microbatch: 3\n"), any = small_team_job(4, 45, "");
        struct cluster c = small_team(devices, "22222", 1);
        struct search_options o = {.top = 1};
        struct search_plan old = small_team_search(&threes, &c, &o).plans[0];
        o.from = &old.plan, o.evaluations = 50;
        ck_assert_int_eq(old.plan.microbatch, 3);
        ck_assert_int_le(small_team_search(&any, &c, &o).plans[0].iteration_ns, old.iteration_ns);
    }
}
END_TEST

/* Messages between nodes take most of the time: all parameters three times a microbatch, or all gradients once. */
START_TEST(hsdp_is_faster_than_fsdp_between_slow_nodes)
{
    struct job j = small_team_job(4, 16, "");
    struct cluster c = small_team(2, "22", 100);
    int64_t ns[2];
    for (int i = 0; i < 2; i++) {
        struct search_options o = {.top = 1, .baseline = i ? "hsdp" : "fsdp"};
        ns[i] = small_team_search(&j, &c, &o).plans[0].iteration_ns;
    }
    ck_assert_int_lt(ns[1], ns[0]);
    c = small_team(1, "2", 100); /* one node */
    struct search_options o = {.top = 1, .baseline = "hsdp"};
    struct search_result r;
    struct error err = {0};
    struct profile p;
    ck_assert_int_eq(profile_prior(arena, &c, &p, &err), OK);
    ck_assert_int_eq(search_plans(arena, &j, &c, &p, &o, &r, &err), ERR_INFEASIBLE);
    ck_assert_msg(strstr(err.text, "all devices are on one node: fsdp") != NULL, "%s", err.text);
}
END_TEST

Suite *sites_suite(void)
{
    Suite *s = suite_create("sites");
    TCase *t = tcase_create("sites");
    tcase_add_checked_fixture(t, small_team_setup, small_team_teardown);
    tcase_add_test(t, devices_of_a_site_are_neighbours);
    tcase_add_test(t, a_site_alone_is_found);
    tcase_add_test(t, an_old_plan_keeps_its_microbatch_size);
    tcase_add_test(t, hsdp_is_faster_than_fsdp_between_slow_nodes);
    suite_add_tcase(s, t);
    return s;
}
