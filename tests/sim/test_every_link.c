/* Links of every two devices and counted nodes: the same cluster as its written-out form. */
#include "core/base/arena.h"
#include "core/document/document.h"
#include "core/lower/lower.h"
#include "core/program/program.h"
#include "profiles/team.h"
#include "sim/engine/sim.h"
#include "tests/support/sailor_cases.h"
#include "tests/support/suites.h"

#include <stdio.h>

static struct arena *a;
static struct error err;

#define MUST(call) ck_assert_msg((call) == OK, "%s", err.text)

static void set_up(void) { a = arena_new(); }
static void tear_down(void) { arena_free(a); }

static enum status parse(const char *text, struct cluster *out)
{
    struct node *root = NULL;
    TRY(document_parse(a, "cluster", text, strlen(text), &root, &err));
    return cluster_parse(a, root, out, &err);
}

static const char *written(const struct cluster *c)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    cluster_write(f, c, 0);
    fclose(f);
    const char *copy = arena_strdup(a, text);
    free(text);
    return copy;
}

#define HEAD                                                                                       \
    "version: 1\nname: c\ndevice_types:\n  - {name: x, device: A100-SXM4-40, price: 3.2/h}\n"      \
    "  - {name: y, device: V100-SXM2-16}\nnodes:\n"

START_TEST(counted_nodes_are_numbered_and_read_back)
{
    struct cluster c, again;
    MUST(parse(HEAD "  - {name: p, count: 3, host: h, devices: {type: x, count: 2}}\n"
                    "  - {name: q, devices: {type: y}}\n"
                    "links:\n  - {name: in, every: inside}\n"
                    "  - {name: net, every: across, overlap: false}\n"
                    "  - {name: own, between: [p0, q], bandwidth: 1 GB/s, latency: 5 us}\n",
               &c));
    ck_assert_int_eq(c.n_nodes, 4);
    ck_assert_int_eq(c.n_devices, 7);
    ck_assert_str_eq(c.nodes[2].name, "p2");
    ck_assert_str_eq(c.nodes[2].host, "h2");
    ck_assert_str_eq(c.devices[5].name, "p2.1");
    ck_assert_double_eq(c.types[0].price_per_h, 3.2);
    ck_assert_double_eq(c.types[1].price_per_h, 0);
    int32_t direction;
    ck_assert_int_eq(cluster_link(&c, 0, 1, &direction), 0); /* of one node */
    ck_assert_int_eq(cluster_link(&c, 0, 2, &direction), 1); /* of two */
    ck_assert_int_eq(direction, 0);
    ck_assert_int_eq(cluster_link(&c, 6, 2, &direction), 1);
    ck_assert_int_eq(direction, 1);
    ck_assert_int_eq(cluster_link(&c, 0, 6, &direction),
                     2); /* the explicit entry for the two nodes takes precedence */
    MUST(parse(written(&c), &again));
    ck_assert_str_eq(written(&c), written(&again));
}
END_TEST

START_TEST(what_contradicts_itself_is_refused)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {HEAD "  - {name: p, count: 0, devices: {type: x}}\n", "count"},
        {HEAD "  - {name: p, count: 140000, devices: {type: x}}\n", "count"},
        {HEAD "  - {name: p, count: 80000, devices: {type: x}}\n  - {name: q, count: 80000, "
              "devices: {type: x}}\n",
         "more than"},
        {HEAD "  - {name: p, count: 2, devices: {type: x}}\n  - {name: p1, devices: {type: x}}\n",
         "p1"},
        {HEAD "  - {name: p, devices: {type: x}}\nlinks:\n  - {name: n, every: where}\n", "across"},
        {HEAD "  - {name: p, count: 3, devices: {type: x}}\nlinks:\n  - {name: n, between: [p]}\n",
         "known: p0 … p2; name one of them"},
        {HEAD "  - {name: p, count: 3, devices: {type: x}}\nlinks:\n  - {name: n, between: [p1, "
              "p.0]}\n",
         "`every: inside`"},
        {HEAD "  - {name: p, count: 1, devices: {type: x}}\n  - {name: q, devices: {type: x}}\n"
              "links:\n  - {name: n, between: [p, q]}\n",
         "known: p0; name one"},
        {HEAD
         "  - {name: p, devices: {type: x}}\nlinks:\n  - {name: n, every: across, between: [p]}\n",
         "has `every`, which excludes"},
        {HEAD "  - {name: p, devices: {type: x}}\nlinks:\n  - {name: n, every: across}\n  - {name: "
              "m, every: across}\n",
         "line"},
        {"version: 1\nname: c\ndevice_types:\n  - {name: x, device: host, slowdown: 2, memory: 1 "
         "GiB}\nnodes:\n"
         "  - {name: p, devices: {type: x}}\nlinks:\n  - {name: n, every: across, bandwidth: 1 "
         "GB/s, latency: 1 us}\n",
         "emulated"},
        {"version: 1\nname: c\ndevice_types:\n  - {name: x, device: host, price: 3}\nnodes:\n  - "
         "{name: p, devices: {type: x}}\n",
         "write 3/h"},
        {"version: 1\nname: c\ndevice_types:\n  - {name: x, device: host, price: -3/h}\nnodes:\n  "
         "- {name: p, devices: {type: x}}\n",
         "from 0/h (free)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cluster c;
        ck_assert_int_eq(parse(cases[i].text, &c), ERR_INPUT);
        ck_assert_msg(strstr(err.text, cases[i].message) != NULL, "'%s' does not say %s", err.text,
                      cases[i].message);
    }
}
END_TEST

/* The cluster with a link for each two devices instead. */
static struct cluster written_out(const struct cluster *c)
{
    struct cluster out = *c;
    int32_t n = c->n_devices;
    out.n_links = 0;
    out.links = ARENA_ARRAY(a, struct link, (size_t)n * (size_t)n);
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = i + 1; k < n; k++) {
            int32_t direction, link = cluster_link(c, i, k, &direction);
            struct link *l = &out.links[out.n_links++];
            *l = c->links[link];
            l->name = arena_printf(a, "%s-%s", c->devices[i].name, c->devices[k].name);
            l->n_ends = 2;
            l->kind[0] = l->kind[1] = END_DEVICE;
            l->end[0] = i, l->end[1] = k;
        }
    return out;
}

/* Operators of zero duration: a step is its gradient all-reduces. */
START_TEST(a_link_that_takes_twice_as_long_does_so_on_its_measured_curve)
{
    static const struct sailor_case c = {"a16", "opt", "OPT-350", 0};
    static const struct sailor_stage whole = {0, 25, "a100", 1};
    static const double nothing[OP_KIND_COUNT] = {0};
    struct lower_options lower = {0};
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct plan p;
    struct program program;
    int64_t ns[2];
    MUST(sailor_case_read(a, &c, &job, &cluster, &profile, &err));
    MUST(sailor_case_plan(a, &job, &cluster, 2, 16, &whole, 1, &p, &err));
    MUST(lower_plan(a, &p, &lower, &program, &err));
    double *times = ARENA_ARRAY(a, double, (size_t)program.n_links);
    for (int k = 0; k < 2; k++) {
        struct sim_scale scale = {.kind = nothing, .link = times};
        struct sim_options o = {.steps = 1, .scale = &scale};
        struct sim_result r;
        for (int32_t i = 0; i < program.n_links; i++) times[i] = k + 1;
        MUST(sim_run(a, &program, cost_new(a, &profile, &cluster), &o, &r, &err));
        ns[k] = r.iteration_ns;
    }
    ck_assert_int_gt(ns[0], 1000000000);
    ck_assert_int_le(llabs(ns[1] - 2 * ns[0]), 60); /* thirty messages, each rounded */
}
END_TEST

/* Stages of one GPU each: only links of every two devices are measured by the number of GPUs that send together. */
START_TEST(a_link_of_every_two_devices_is_a_link_for_each_two)
{
    static const struct sailor_case cases[] = {{"a8-v8", "opt", "OPT-350", 0},
                                               {"a16-v16", "opt", "OPT-350", 0}};
    static const struct sailor_stage stages[2][3] = {
        {{0, 5, "v100", 1}, {6, 14, "a100", 1}, {15, 25, "a100", 1}},
        {{0, 8, "a100", 1}, {9, 17, "a100", 1}, {18, 25, "a100", 1}}};
    for (int k = 0; k < 2; k++)
        for (int stated = 0; stated < 2; stated++) {
            struct job job;
            struct cluster c;
            struct profile profile;
            struct plan p, other;
            int64_t ns, other_ns;
            MUST(sailor_case_read(a, &cases[k], &job, &c, &profile, &err));
            for (int i = 0; stated && i < 2; i++) {
                c.links[i].stated = true, c.links[i].blocking = i;
                c.links[i].bandwidth_Bps = 3e9 * (i + 1), c.links[i].latency_s = 1e-5;
            }
            job.global_batch = 64;
            MUST(sailor_case_plan(a, &job, &c, 1, 4, stages[k], 3, &p, &err));
            other = p;
            other.cluster = written_out(&p.cluster);
            MUST(sailor_case_simulate(a, &p, &profile, &ns, &err));
            MUST(sailor_case_simulate(a, &other, &profile, &other_ns, &err));
            ck_assert_int_eq(ns, other_ns);
        }
}
END_TEST

START_TEST(a_program_with_links_of_pairs_is_read_back)
{
    const struct sailor_case k = {"a8-v8", "opt", "OPT-350", 0};
    const struct sailor_stage stages[] = {{0, 6, "v100", 1}, {7, 25, "a100", 1}};
    struct job job;
    struct cluster c;
    struct profile profile;
    struct plan p;
    struct program program, again;
    struct lower_options o = {0};
    char *text[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    MUST(sailor_case_read(a, &k, &job, &c, &profile, &err));
    MUST(sailor_case_plan(a, &job, &c, 2, 8, stages, 2, &p, &err));
    MUST(team_fused(a, &p.cluster, &o, &err));
    MUST(lower_plan(a, &p, &o, &program, &err));
    /* Two of the cluster; 8 pairs of stages, and a ring over each stage's 8 GPUs. */
    ck_assert_int_eq(program.n_links, 2 + 8 + 8 + 8);
    for (int i = 0; i < 2; i++) {
        FILE *f = open_memstream(&text[i], &n[i]);
        program_write(f, i ? &again : &program);
        fclose(f);
        if (!i) MUST(program_parse(a, "text", text[0], n[0], &again, &err));
    }
    ck_assert_uint_eq(n[0], n[1]);
    ck_assert_mem_eq(text[0], text[1], n[0]);
    free(text[0]), free(text[1]);
}
END_TEST

Suite *every_link_suite(void)
{
    Suite *s = suite_create("every_link");
    TCase *c = tcase_create("every_link");
    tcase_add_checked_fixture(c, set_up, tear_down);
    const TTest *tests[] = {counted_nodes_are_numbered_and_read_back,
                            what_contradicts_itself_is_refused,
                            a_link_that_takes_twice_as_long_does_so_on_its_measured_curve,
                            a_link_of_every_two_devices_is_a_link_for_each_two,
                            a_program_with_links_of_pairs_is_read_back};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(c, tests[i]);
    suite_add_tcase(s, c);
    return s;
}
