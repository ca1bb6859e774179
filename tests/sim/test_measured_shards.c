/* Stages of measured layers on several GPUs (`shard: tensor`): times, messages in parts, gradients, memory, and what is refused. */
#include "core/base/arena.h"
#include "core/document/document.h"
#include "core/lower/lower.h"
#include "core/plan/plan.h"
#include "core/program/program.h"
#include "profiles/measured.h"
#include "sim/engine/sim.h"
#include "tests/support/measured_rows.h"
#include "tests/support/suites.h"

#include <stdio.h>
#include <stdlib.h>

static struct arena *a;
static struct error err;
static struct profile rows;
static size_t room;

#define MUST(call) ck_assert_msg((call) == OK, "%s", err.text)

static void add(const char *base, enum op_kind kind, const char *cost, double seconds)
{
    measured_rows_add(a, &rows, &room, base, cost, 2, kind, seconds);
}

/* On 1 and 2 GPUs e takes 1 + 2 ms, m 3 + 5, l 2 + 4; on 4 a tenth. Links of 1 MB/s whatever the size and the number of GPUs;
 * assembly 1 ms and the exchange; updates and copies take no time. */
static void set_up(void)
{
    static const double times[3][2] = {{1e-3, 2e-3}, {3e-3, 5e-3}, {2e-3, 4e-3}};
    static const char *const costs[] = {"e", "m", "l"}, *const bases[] = {"T4", "T4 x2", "T4 x4"};
    static struct op_fit fits[] = {
        {.base = "T4", .kind = OP_sgd, .dtype = DTYPE_fp32},
        {.base = "T4", .kind = OP_slice, .dtype = DTYPE_fp32},
        {.base = "T4", .kind = OP_paste, .dtype = DTYPE_fp32},
        {.base = "T4", .kind = OP_assemble, .dtype = DTYPE_fp32, .constant_s = 1e-3}};
    a = arena_new();
    rows = (struct profile){.id = 1, .pace = 1, .fits = fits, .n_fits = 4};
    room = 0;
    for (int b = 0; b < 3; b++)
        for (int i = 0; i < 3; i++) {
            add(bases[b], OP_measured_forward, costs[i], times[i][0] / (b < 2 ? 1 : 10));
            add(bases[b], OP_measured_backward, costs[i], times[i][1] / (b < 2 ? 1 : 10));
        }
    for (int same_node = 0; same_node < 2; same_node++)
        for (int32_t tp = 1; tp <= 4; tp *= 2)
            for (int64_t bytes = 1; bytes <= 2; bytes++) {
                struct link_model m = {.bandwidth_Bps = 1e6, .source = SOURCE_MEASURED};
                profile_set_link(a, &rows, measured_curve_row(a, same_node, "T4", tp, bytes), &m);
            }
    profile_sort(&rows);
}

static void tear_down(void) { arena_free(a); }

static const char table[] =
    "{model_type: measured_layers, version: 1, _name_or_path: toy, sequence_length: 8, "
    "tensor_parallel: [1, 2], layers: ["
    "{name: first, cost: e, output: 1000, parameters: [4000, 2000], kept: [0, 0]}, "
    "{name: middle, cost: m, output: 1000, parameters: [8000, 4400], kept: [6000, 4000]}, "
    "{name: last, cost: l, output: 0, parameters: [2000, 1000], kept: [3000, 2000]}]}";

/* Stages of replicas on nodes n and m of four GPUs each; overlap: of messages between nodes. */
static const char *text_of(const char *replicas, int64_t microbatches, const char *overlap)
{
    return arena_printf(
        a,
        "version: 1\nname: toy\nmicrobatch: 2\nreplicas:\n%s"
        "job:\n  version: 1\n  model: %s\n  sequence_length: 8\n  global_batch: %d\n"
        "  optimizer: {kind: sgd, lr: 1}\n"
        "cluster:\n  version: 1\n  name: c\n  device_types:\n"
        "    - {name: t, device: T4, memory: 1 GiB, reserve: 1000000 B}\n"
        "    - {name: u, device: T4, memory: 1 GiB}\n"
        "  nodes:\n    - {name: n, devices: {type: t, count: 4}}\n"
        "    - {name: m, devices: {type: t, count: 4}}\n    - {name: o, devices: [{type: t}, "
        "{type: u}]}\n"
        "  links:\n    - {name: bus, every: inside, overlap: %s}\n"
        "    - {name: net, every: across, overlap: %s}\n",
        replicas, table, (int)(2 * microbatches), overlap, overlap);
}

#define TENSOR "sharding: {operators: [{match: \"*\", shard: tensor}]}"

static enum status plan_of(const char *text, struct plan *p)
{
    struct node *root = NULL;
    TRY(document_parse(a, "toy.yaml", text, strlen(text), &root, &err));
    return plan_parse(a, root, ".", p, &err);
}

static enum status simulate(const char *text, bool fold, struct program *program,
                            struct sim_result *r)
{
    struct plan p;
    struct lower_options o = {.check_memory = true};
    struct sim_options options = {.fold = fold};
    TRY(plan_of(text, &p));
    TRY(lower_plan(a, &p, &o, program, &err));
    return sim_run(a, program, cost_new(a, &rows, &p.cluster), &options, r, &err);
}

static int64_t ns_of(const char *text, struct program *program)
{
    struct sim_result whole, folded;
    MUST(simulate(text, false, program, &whole));
    MUST(simulate(text, true, program, &folded));
    ck_assert_int_eq(whole.iteration_ns, folded.iteration_ns);
    return whole.iteration_ns;
}

static const char *two_stages(const char *from, const char *to)
{
    return arena_printf(a,
                        "  - microbatches: 1\n    stages:\n      - {layers: [0, 0], %s}\n"
                        "      - {layers: [1, 2], %s}\n",
                        from, to);
}

/* An activation is 2 sequences · 1000 elements · 4 B = 8 ms for all GPUs of a stage together, whether they are as many as the
 * next stage's or not, and an exchange among n GPUs 8·(n - 1)/n ms. */
START_TEST(the_gpus_of_a_stage_send_parts_of_an_activation_and_exchange_them)
{
    static const char one[] = "device: n.0", two[] = "devices: [n.0, n.1], " TENSOR,
                      next[] = "devices: [m.0, m.1], " TENSOR,
                      four[] = "devices: [m.0, m.1, m.2, m.3], " TENSOR;
    static const struct {
        const char *from, *to;
        double compute_ms, assemble_ms; /* of both directions */
        int32_t n_channels;
    } cases[] = {{one, "device: m.0", 17, 2, 2},
                 {two, next, 17, 2 + 4 + 4, 4},
                 {two, "device: m.0", 17, 2 + 4, 4},
                 {one, next, 17, 2 + 4, 4},
                 {two, four, 3 + 1.4, 2 + 4 + 6, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct program p;
        double ms = 8 + 8 + cases[i].compute_ms + cases[i].assemble_ms;
        int64_t ns = ns_of(text_of(two_stages(cases[i].from, cases[i].to), 1, "false"), &p);
        ck_assert_msg(ns == (int64_t)(ms * 1e6), "case %zu: %ld ns, expected %g ms", i, (long)ns,
                      ms);
        ck_assert_int_eq(p.n_channels, cases[i].n_channels);
        int64_t bytes = 0;
        for (int32_t c = 0; c < p.n_channels; c++) bytes += p.channels[c].bytes;
        ck_assert_int_eq(bytes, 2 * 8000);
    }
}
END_TEST

/* Each receiving GPU then gets the whole activation, from the sender with its share of the bandwidth. */
START_TEST(a_message_that_overlaps_is_not_divided)
{
    struct program p;
    ns_of(text_of(two_stages("devices: [n.0, n.1], " TENSOR, "devices: [m.0, m.1], " TENSOR), 1,
                  "true"),
          &p);
    ck_assert_int_eq(p.n_channels, 4);
    for (int32_t c = 0; c < p.n_channels; c++) ck_assert_int_eq(p.channels[c].bytes, 8000);
}
END_TEST

/* 14,000 elements are 56 kB: the two GPUs of a replica together send half of it twice in a ring of two replicas, and as long it takes
 * where the other replica has four GPUs, two of which add up at a time. */
START_TEST(every_gpu_reduces_the_gradients_of_its_shard)
{
    static const char *const second[] = {"devices: [m.0, m.1], " TENSOR,
                                         "devices: [m.0, m.1, m.2, m.3], " TENSOR};
    for (int i = 0; i < 2; i++) {
        struct program p;
        const char *replicas = arena_printf(
            a,
            "  - microbatches: 1\n    stages: [{layers: [0, 2], devices: [n.0, n.1], " TENSOR "}]\n"
            "  - microbatches: 1\n    stages: [{layers: [0, 2], %s}]\n",
            second[i]);
        ck_assert_int_eq(ns_of(text_of(replicas, 2, "false"), &p), (17 + 56) * 1000000);
        ck_assert_int_eq(p.n_collectives, i ? 4 : 2);
    }
}
END_TEST

/* Half of every parameter, what was measured of kept activations, and no other GPU's. */
START_TEST(a_gpu_holds_its_share_and_what_was_measured)
{
    struct program one, two;
    ns_of(text_of("  - microbatches: 1\n    stages: [{layers: [0, 2], device: n.0}]\n", 1, "false"),
          &one);
    ns_of(text_of("  - microbatches: 1\n    stages: [{layers: [0, 2], devices: [n.0, n.1], " TENSOR
                  "}]\n",
                  1, "false"),
          &two);
    ck_assert_int_eq(two.n_stages, 2);
    ck_assert(two.stages[0].shares_loss && two.stages[1].shares_loss);
    ck_assert_double_eq(two.stages[0].loss_share + two.stages[1].loss_share, 1);
    for (int32_t s = 0; s < 2; s++) {
        const struct program_stage *x = &two.stages[s], *y = &one.stages[0];
        ck_assert_int_eq(x->reserve_bytes, 1000000);
        ck_assert_int_eq(x->class_bytes[SLOT_PARAMETER], (2000 + 4000 + 1000) * 4 + 32);
        ck_assert_int_eq(x->class_bytes[SLOT_GRADIENT], x->class_bytes[SLOT_PARAMETER]);
        ck_assert_int_eq(y->class_bytes[SLOT_BUFFER_RING] - x->class_bytes[SLOT_BUFFER_RING],
                         2 * 4 * (6000 - 4000 + 3000 - 2000));
    }
}
END_TEST

START_TEST(such_a_program_is_written_and_read_back_and_its_plan_says_the_degree)
{
    struct program p, q;
    struct plan plan;
    const char *text = text_of(
        two_stages("devices: [n.0, n.1], " TENSOR, "devices: [m.0, m.1], " TENSOR), 1, "false");
    ns_of(text, &p);
    char *once = NULL, *again = NULL;
    size_t n = 0, m = 0;
    FILE *out = open_memstream(&once, &n);
    program_write(out, &p);
    fclose(out);
    MUST(program_parse(a, "p", once, n, &q, &err));
    out = open_memstream(&again, &m);
    program_write(out, &q);
    fclose(out);
    ck_assert_str_eq(again, once);
    ck_assert_uint_eq(q.stages[0].ops[0].key, p.stages[0].ops[0].key);
    free(once), free(again);
    MUST(plan_of(text, &plan));
    ck_assert_str_eq(
        plan_describe(a, &plan),
        "1 replica of 1 microbatch, sharded (tensor): layers 0, 1-2 on n.0-1, m.0-1, 2 each");
}
END_TEST

START_TEST(recomputation_and_zero_apply_to_such_stages)
{
    struct program p;
    int64_t alone =
        ns_of(text_of(two_stages("recompute: true, device: n.0", "recompute: true, device: m.0"), 1,
                      "false"),
              &p);
    const char *of = two_stages("recompute: true, devices: [n.0, n.1], " TENSOR,
                                "recompute: true, devices: [m.0, m.1], " TENSOR);
    ck_assert_int_ge(alone, (17 + 5 + 16 + 2) * 1000000);
    ck_assert_int_eq(ns_of(text_of(of, 1, "false"), &p), alone + 8000000); /* both exchanges */
    of = "  - microbatches: 1\n    stages: [{layers: [0, 2], zero: 1, devices: [n.0, n.1], " TENSOR
         "}]\n  - microbatches: 1\n    stages: [{layers: [0, 2], zero: 1, devices: [m.0, "
         "m.1], " TENSOR "}]\n";
    ck_assert_int_gt(ns_of(text_of(of, 2, "false"), &p), (17 + 50) * 1000000);
}
END_TEST

START_TEST(what_was_not_measured_is_refused_with_what_was)
{
    static const struct {
        const char *stage, *says;
    } cases[] = {
        {"devices: [n.0, n.1, n.2], " TENSOR,
         "measured on T4 x3; of T4 it was measured on 1, 2, 4 GPUs"},
        {"devices: [n.0, m.1], " TENSOR, "n.0 and m.1 are not on one node"},
        {"devices: [o.0, o.1], " TENSOR, "o.0 and o.1 are not of one type"},
        {"devices: [n.0, n.1], sharding: {ratios: [[1, 2]], operators: [{match: \"*\", shard: "
         "tensor}]}",
         "ratios must be equal"},
        {"devices: [n.0, n.1, n.2, n.3], sharding: {mesh: [2, 2], operators: [{match: \"*\", "
         "shard: "
         "[none, tensor]}]}",
         "all 4 devices"},
        {"devices: [n.0, n.1], sharding: {operators: [{match: \"*\", shard: batch}]}",
         "can by none, tensor"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct program p;
        struct sim_result r;
        const char *replicas = arena_printf(
            a, "  - microbatches: 1\n    stages: [{layers: [0, 2], %s}]\n", cases[i].stage);
        ck_assert_int_eq(simulate(text_of(replicas, 1, "false"), false, &p, &r), ERR_INPUT);
        ck_assert_msg(strstr(err.text, cases[i].says), "'%s' does not say %s", err.text,
                      cases[i].says);
    }
}
END_TEST

Suite *measured_shards_suite(void)
{
    Suite *s = suite_create("measured_shards");
    TCase *c = tcase_create("measured_shards");
    tcase_add_checked_fixture(c, set_up, tear_down);
    const TTest *tests[] = {the_gpus_of_a_stage_send_parts_of_an_activation_and_exchange_them,
                            a_message_that_overlaps_is_not_divided,
                            every_gpu_reduces_the_gradients_of_its_shard,
                            a_gpu_holds_its_share_and_what_was_measured,
                            such_a_program_is_written_and_read_back_and_its_plan_says_the_degree,
                            recomputation_and_zero_apply_to_such_stages,
                            what_was_not_measured_is_refused_with_what_was};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(c, tests[i]);
    suite_add_tcase(s, c);
    return s;
}
