/* Models as tables of measured layers, their sizes and prices: shares of GPUs, lines between microbatches, curves. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/document/document.h"
#include "core/lower/lower.h"
#include "core/model/measured.h"
#include "core/program/program.h"
#include "profiles/measured.h"
#include "sim/engine/sim.h"
#include "sim/stage/stage.h"
#include "tests/support/measured_rows.h"
#include "tests/support/suites.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static struct arena *a;
static struct error err;

#define MUST(call) ck_assert_msg((call) == OK, "%s", err.text)

static void set_up(void) { a = arena_new(); }
static void tear_down(void) { arena_free(a); }

/* --- sizes ----------------------------------------------------------------------------------- */

START_TEST(sizes_of_a_tensor_parallel_degree_that_was_not_measured_follow_from_two_that_were)
{
    /* OPT-350M's block, kept elements on 1, 2, 4 and 8 GPUs (Sailor's llm_info.json): 6,295,552 on every GPU and
     * 83,886,080 shared. */
    static const int32_t tp[] = {1, 2, 4, 8};
    static const int64_t kept[] = {90181632, 48238592, 27267072, 16781312};
    for (int n = 2; n <= 4; n++) {
        struct shares s = {n, tp, kept};
        for (int i = 0; i < 4; i++) ck_assert_int_eq(shares_at(&s, tp[i]), kept[i]);
        ck_assert_int_eq(shares_at(&s, 16), 6295552 + 83886080 / 16);
    }
    struct shares one = {1, tp, kept}, later = {2, tp + 1, kept + 1};
    ck_assert_int_eq(shares_at(&one, 1), kept[0]);
    ck_assert_int_eq(shares_at(&one, 2), -1);
    ck_assert_int_eq(shares_at(&later, 1), kept[0]);
}
END_TEST

static const char table[] =
    "{\"model_type\": \"measured_layers\", \"version\": 1, \"_name_or_path\": \"toy\","
    " \"sequence_length\": 8, \"tensor_parallel\": [1, 2], \"layers\": ["
    "{\"name\": \"first\", \"cost\": \"e\", \"output\": 1000, \"parameters\": [4000, 2000], "
    "\"kept\": [0, 0]},"
    "{\"name\": \"middle\", \"cost\": \"m\", \"output\": 1000, \"parameters\": [8000, 4400], "
    "\"kept\": [6000, 4000]},"
    "{\"name\": \"last\", \"cost\": \"l\", \"output\": 0, \"parameters\": [2000, 1000], \"kept\": "
    "[3000, 2000]}]}";

static struct model toy(void)
{
    struct node *root;
    struct model m;
    MUST(document_parse(a, "toy.json", table, strlen(table), &root, &err));
    MUST(model_parse(a, root, "other", &m, &err));
    return m;
}

START_TEST(a_table_of_layers_is_read_and_written_back_the_same)
{
    struct model m = toy(), again;
    struct node *root;
    ck_assert_str_eq(m.name, "toy");
    ck_assert_int_eq(m.layers, 3);
    ck_assert_int_eq(model_parameters(&m), 14000);
    const char *text = model_write(a, &m);
    MUST(document_parse(a, "again", text, strlen(text), &root, &err));
    MUST(model_parse(a, root, NULL, &again, &err));
    ck_assert_str_eq(model_write(a, &again), text);
}
END_TEST

START_TEST(what_is_wrong_in_a_table_is_said_with_its_place)
{
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"\"version\": 1", "\"version\": 2", "version"},
        {"[1, 2]", "[2, 1]", "tensor_parallel"},
        {"[1, 2]", "[1, 2, 4]", "parameters"},
        {"\"output\": 0", "\"output\": 7", "the last layer"},
        {"\"output\": 1000", "\"output\": 0", "only the last"},
        {"\"kept\": [3000, 2000]", "\"kept\": [3000, -1]", "layers[2].kept[1]"},
        {"\"cost\": \"e\", ", "", "cost"},
        {"\"name\": \"last\"", "\"nmae\": \"last\"", "nmae"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *at = strstr(table, cases[i].from);
        ck_assert_ptr_nonnull(at);
        const char *text = arena_printf(a, "%.*s%s%s", (int)(at - table), table, cases[i].to,
                                        at + strlen(cases[i].from));
        struct node *root;
        struct model m;
        MUST(document_parse(a, "toy.json", text, strlen(text), &root, &err));
        ck_assert_int_eq(model_parse(a, root, NULL, &m, &err), ERR_INPUT);
        ck_assert_msg(strstr(err.text, cases[i].says), "'%s' does not say %s", err.text,
                      cases[i].says);
    }
    struct model m = toy();
    struct graph *g;
    ck_assert_int_eq(model_graph(a, &m, DTYPE_bf16, 1, 8, &g, &err), ERR_INPUT);
    ck_assert_int_eq(model_graph(a, &m, DTYPE_fp32, 1, 9, &g, &err), ERR_INPUT);
    ck_assert_int_eq(model_graph(a, &m, DTYPE_fp32, 0, 8, &g, &err), ERR_INPUT);
}
END_TEST

/* --- prices ---------------------------------------------------------------------------------- */

static struct profile rows; /* filled by add; rebuilt by each test */
static size_t room;

static void add(const char *base, enum op_kind kind, const char *cost, int64_t sequences,
                double seconds)
{
    measured_rows_add(a, &rows, &room, base, cost, sequences, kind, seconds);
}

static void fresh(void)
{
    rows = (struct profile){.id = 1, .pace = 1};
    room = 0;
}

/* tp: GPUs together. */
static enum status price(const struct device_type *t, int32_t tp, int64_t sequences, double *out)
{
    struct op_attrs attrs = {
        .row = op_measured_row("toy", "m"), .sequences = sequences, .tp = tp};
    struct op_shapes none = {0};
    enum source source;
    return measured_op_seconds(&rows, t, OP_measured_forward, &attrs, &none, DTYPE_fp32, out,
                               &source, &err);
}

START_TEST(a_microbatch_between_two_measured_ones_lies_on_their_line)
{
    struct device_type t = {.name = "t", .catalogue = "T4"};
    double s = 0;
    fresh();
    ck_assert_int_eq(price(&t, 4, 2, &s), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "T4 x4"));
    add("T4", OP_measured_forward, "m", 2, 9); /* one GPU's: not asked */
    add("T4 x4", OP_measured_backward, "m", 2, 9);
    add("T4 x4", OP_measured_forward, "m", 2, 0.002);
    MUST(price(&t, 4, 6, &s));
    ck_assert_double_eq_tol(s, 0.006, 1e-15); /* one size: proportional */
    add("T4 x4", OP_measured_forward, "m", 4, 0.003);
    add("T4 x4", OP_measured_forward, "m", 8, 0.007);
    static const struct {
        int64_t sequences;
        double seconds;
    } cases[] = {{2, 0.002}, {3, 0.0025}, {4, 0.003}, {6, 0.005},
                 {8, 0.007}, {16, 0.015}, {1, 0.0015}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        MUST(price(&t, 4, cases[i].sequences, &s));
        ck_assert_double_eq_tol(s, cases[i].seconds, 1e-15);
    }
    int64_t row = op_measured_row("toy", "m");
    ck_assert_int_eq(measured_reach(&rows, "T4", 4, row, 8), MEASURED_THERE);
    ck_assert_int_eq(measured_reach(&rows, "T4", 4, row, 5), MEASURED_BETWEEN);
    ck_assert_int_eq(measured_reach(&rows, "T4", 4, row, 9), MEASURED_BEYOND);
    ck_assert_int_eq(measured_reach(&rows, "T4", 2, row, 8), MEASURED_NOT);
}
END_TEST

START_TEST(prices_of_rising_rows_never_fall)
{
    struct device_type t = {.name = "t", .catalogue = "T4"};
    for (uint64_t seed = 1; seed <= 50; seed++) {
        double before = 0, s = 0, at = 0.001;
        fresh();
        for (int64_t m = 1; m <= 64; m *= 2)
            if (rng_below(seed, 0, (uint64_t)m, 3) || m == 8) {
                at += 1e-4 * (double)rng_below(seed, 1, (uint64_t)m, 100);
                add("T4", OP_measured_forward, "m", m, at);
            }
        for (int64_t m = 1; m <= 200; m++) {
            MUST(price(&t, 1, m, &s));
            ck_assert_msg(s >= before * (1 - 1e-12), "seed %d: %g s for %d after %g s", (int)seed,
                          s, (int)m, before);
            before = s;
        }
    }
}
END_TEST

static void add_curve(bool same_node, const char *id, int32_t tp, const double (*points)[2], int n)
{
    for (int i = 0; i < n; i++) {
        struct link_model m = {.bandwidth_Bps = points[i][1], .source = SOURCE_MEASURED};
        profile_set_link(a, &rows, measured_curve_row(a, same_node, id, tp, (int64_t)points[i][0]),
                         &m);
    }
}

static const double slow[][2] = {{1e6, 1e9}, {4e6, 3e9}}, quick[][2] = {{1e6, 2e9}, {4e6, 10e9}};

/* gpus: that send together, the messages of all of them as one. */
static bool between(const struct device_type *from, int32_t gpus, const struct device_type *to,
                    int32_t other, bool same_node, struct link_model *out)
{
    struct device_type types[2] = {*from, *to};
    const struct cluster c = {.n_types = 2, .types = types};
    const struct link_ends ends = {{0, 1}, {gpus, other}, gpus < other ? gpus : other};
    return measured_link(&rows, &c, &ends, same_node, out);
}

START_TEST(two_types_join_at_the_slower_ones_pace_whatever_the_size)
{
    struct device_type t = {.name = "t", .catalogue = "T4"},
                       v = {.name = "v", .catalogue = "L4"};
    struct link_model m;
    fresh();
    add_curve(false, "T4", 1, slow, 2);
    ck_assert(!between(&t, 1, &v, 2, false, &m));
    add_curve(false, "L4", 2, quick, 2);
    ck_assert(!between(&t, 1, &v, 2, true, &m));
    for (int turn = 0; turn < 2; turn++) {
        ck_assert(between(turn ? &v : &t, turn ? 2 : 1, turn ? &t : &v, turn ? 1 : 2, false, &m));
        /* of one of two messages */
        ck_assert_double_eq_tol(link_model_Bps(&m, 0.5e6), 1e9, 1);
        ck_assert_double_eq_tol(link_model_Bps(&m, 1e6), 2e9, 1); /* 2 GB/s on both */
        ck_assert_double_eq_tol(link_model_Bps(&m, 1e9), 3e9, 1);
    }
    ck_assert(between(&v, 2, &v, 2, false, &m));
    ck_assert_double_eq_tol(link_model_Bps(&m, 2e6), 6e9 / 2, 1); /* half way up */
    ck_assert(between(&v, 8, &v, 8, false, &m)); /* the next fewer GPUs that were measured */
    ck_assert_double_eq_tol(link_model_Bps(&m, 2e6), 6e9 / 8, 1);
}
END_TEST

START_TEST(a_message_reads_what_it_carries_and_is_told_apart_by_its_link)
{
    struct op_shapes s = {.n_inputs = 1, .input[0] = {2, {3, 5}}};
    struct op_attrs first = {.link = 0}, second = {.link = 1};
    char text[200];
    MUST(op_infer(OP_message, &first, &s, &err));
    ck_assert_int_eq(s.n_outputs, 0);
    ck_assert_int_eq(op_bytes_read(OP_message, &first, &s, DTYPE_fp32), 60);
    ck_assert_int_eq(op_bytes_written(OP_assemble, &first, &s, DTYPE_fp32), 0);
    ck_assert_uint_ne(op_key(OP_message, &first, &s, DTYPE_fp32),
                      op_key(OP_message, &second, &s, DTYPE_fp32));
    ck_assert_uint_eq(op_key(OP_assemble, &first, &s, DTYPE_fp32),
                      op_key(OP_assemble, &second, &s, DTYPE_fp32));
    ck_assert_str_eq(op_key_text(text, sizeof text, OP_message, &second, &s, DTYPE_fp32),
                     "message fp32 (15) link=1");
    ck_assert(op_is_measured(OP_message) && !op_is_measured(OP_matmul));
}
END_TEST

/* --- the whole way --------------------------------------------------------------------------- */

/* Two stages on two nodes, one microbatch: F, message, F, B, message, B. */
static struct plan two_stages(bool blocking, int64_t microbatches)
{
    struct plan p = {.name = "two", .microbatch = 2, .steps = 1, .seed = 1};
    static struct device_type types[1];
    static struct node_spec nodes[] = {{"n", "h", 0, 1}, {"m", "h", 1, 1}};
    static struct device devices[] = {{"n.0", 0, 0, 0}, {"m.0", 0, 1, 0}};
    static struct link links[1];
    types[0] = (struct device_type){.name = "t",
                                    .catalogue = "T4",
                                    .memory_bytes = 1 << 30,
                                    .reserve_bytes = 1000000};
    links[0] = (struct link){.name = "nm", .n_ends = 2, .end = {0, 1}, .blocking = blocking};
    p.cluster = (struct cluster){.name = "c",
                                 .n_types = 1,
                                 .n_nodes = 2,
                                 .n_devices = 2,
                                 .n_links = 1,
                                 .types = types,
                                 .nodes = nodes,
                                 .devices = devices,
                                 .links = links};
    p.job = (struct job){.model = toy(),
                         .sequence_length = 8,
                         .global_batch = 2 * microbatches,
                         .optimizer = {.kind = OPTIMIZER_SGD, .lr = 1},
                         .precision = DTYPE_fp32};
    p.n_replicas = 1;
    p.replicas = ARENA_ARRAY(a, struct plan_replica, 1);
    p.replicas->microbatches = (int32_t)microbatches;
    p.replicas->n_stages = 2;
    p.replicas->stages = ARENA_ARRAY(a, struct plan_stage, 2);
    p.replicas->stages[0] = (struct plan_stage){.last_layer = 0, .receive_ahead = 1};
    p.replicas->stages[1] =
        (struct plan_stage){.first_layer = 1, .last_layer = 2, .device = 1, .receive_ahead = 1};
    return p;
}

/* e 1 ms + 2 ms, m 3 + 5, l 2 + 4; the update free; 1 MB/s whatever the size. */
static void price_all(void)
{
    static const double flat[][2] = {{1, 1e6}, {2, 1e6}};
    static const double times[3][2] = {{1e-3, 2e-3}, {3e-3, 5e-3}, {2e-3, 4e-3}};
    static const char *const costs[] = {"e", "m", "l"};
    fresh();
    for (int i = 0; i < 3; i++) {
        add("T4", OP_measured_forward, costs[i], 2, times[i][0]);
        add("T4", OP_measured_backward, costs[i], 2, times[i][1]);
    }
    static struct op_fit fits[] = {
        {.base = "T4", .kind = OP_sgd, .dtype = DTYPE_fp32},
        {.base = "T4", .kind = OP_assemble, .dtype = DTYPE_fp32, .constant_s = 1e-3}};
    rows.fits = fits, rows.n_fits = 2;
    add_curve(false, "T4", 1, flat, 2);
    add_curve(true, "T4", 1, flat, 2);
}

static struct sim_result simulated(const struct plan *p, struct program *program)
{
    struct lower_options o = {0};
    struct sim_options options = {0};
    struct sim_result r;
    MUST(lower_plan(a, p, &o, program, &err));
    struct cost *k = cost_new(a, &rows, &p->cluster);
    MUST(sim_run(a, program, k, &options, &r, &err));
    return r;
}

START_TEST(a_message_takes_its_time_once_whether_it_overlaps_or_not)
{
    /* 2 sequences · 1000 elements · 4 B = 8 ms in each direction; blocking adds 1 ms of assembly at each arrival. */
    struct program program;
    price_all();
    struct plan p = two_stages(false, 1);
    ck_assert_int_eq(simulated(&p, &program).iteration_ns, (1 + 8 + 5 + 9 + 8 + 2) * 1000000);
    p = two_stages(true, 1);
    ck_assert_int_eq(simulated(&p, &program).iteration_ns,
                     (1 + 8 + 1 + 5 + 9 + 8 + 1 + 2) * 1000000);
}
END_TEST

START_TEST(blocking_messages_keep_both_compute_streams_busy)
{
    /* Stage 1 rules: for each microbatch 8 ms to receive, 1 to assemble, 14 to compute, 8 to send; before it 1 ms of
     * forward, after the last 1 ms of assembly and 2 of backward. With overlap, receive_ahead 1: the next message
     * comes in while the stage is in its backward. */
    struct program program;
    price_all();
    struct plan p = two_stages(true, 5);
    struct sim_result r = simulated(&p, &program);
    ck_assert_int_eq(r.iteration_ns, (1 + 5 * (8 + 1 + 14 + 8) + 1 + 2) * 1000000);
    ck_assert_int_eq(r.devices[1].busy_ns, 5 * (8 + 1 + 14 + 8) * 1000000);
    p = two_stages(false, 5);
    ck_assert_int_lt(simulated(&p, &program).iteration_ns, r.iteration_ns);
    ck_assert_int_eq(program.stages[1].n_ops,
                     6); /* 2 forward, 2 backward, 2 updates: no messages */
}
END_TEST

START_TEST(memory_is_one_gpus_with_the_reserve)
{
    /* Stage 1, 2 sequences: weights and gradients (10,000 elements each), received activation 2·1000, kept 2·(6000 + 3000),
     * between the layers 2·1000, loss and scratch. */
    struct program program;
    price_all();
    struct plan p = two_stages(true, 1);
    simulated(&p, &program);
    const struct program_stage *s = &program.stages[1];
    ck_assert_int_eq(s->reserve_bytes, 1000000);
    ck_assert_int_eq(s->class_bytes[SLOT_PARAMETER], 40000);
    ck_assert_int_eq(program_stage_bytes(s) - 1000000 - 2 * 40000 - s->class_bytes[SLOT_SCRATCH],
                     s->class_bytes[SLOT_BUFFER_RING]);
}
END_TEST

START_TEST(the_planner_sees_what_one_gpu_holds)
{
    struct program program;
    struct lower_options o = {0};
    struct graph *g;
    struct stage_cost of;
    price_all();
    struct plan p = two_stages(true, 1);
    simulated(&p, &program);
    const struct program_stage *s = &program.stages[1];
    MUST(lower_training_graph(a, &p.job, 2, &o, &g, &err));
    struct cost *k = cost_new(a, &rows, &p.cluster);
    struct stage_table *t = stage_table_new(a, g, k, &p.job.optimizer);
    MUST(stage_table_cost(t, 1, 2, 0, &of, &err));
    ck_assert_int_eq(of.forward_ns, 5000000);
    ck_assert_int_eq(of.input_ns, 9000000);
    ck_assert_int_eq(of.parameter_bytes, 40000);
    ck_assert_int_eq(of.gradient_bytes, 40000);
    /* Buffer rings hold up to three messages more: the gradient that leaves, twice, and what comes next. */
    ck_assert_int_ge(s->class_bytes[SLOT_BUFFER_RING], of.activation_bytes);
    ck_assert_int_le(s->class_bytes[SLOT_BUFFER_RING], of.activation_bytes + 3 * 8000 + 256);
    /* First fit: the last layer's gradient stands between its working memory and the middle one's. */
    ck_assert_int_eq(of.scratch_bytes, 1000000 + (6000 * 2 + 2 * 2000) * 4);
    ck_assert_int_eq(s->class_bytes[SLOT_SCRATCH], (3000 * 2 + 2000 + 6000 * 2) * 4);
}
END_TEST

START_TEST(a_program_of_measured_layers_is_written_and_read_back)
{
    struct program p, q;
    price_all();
    struct plan plan = two_stages(true, 3);
    simulated(&plan, &p);
    char *text = NULL, *again = NULL;
    size_t n = 0, m = 0;
    FILE *out = open_memstream(&text, &n);
    program_write(out, &p);
    fclose(out);
    MUST(program_parse(a, "p", text, n, &q, &err));
    out = open_memstream(&again, &m);
    program_write(out, &q);
    fclose(out);
    ck_assert_str_eq(again, text);
    ck_assert_uint_eq(q.stages[1].ops[0].key, p.stages[1].ops[0].key);
    free(text), free(again);
}
END_TEST

START_TEST(what_a_measured_layer_cannot_do_is_refused)
{
    struct program program;
    struct lower_options o = {0};
    price_all();
    struct plan p = two_stages(true, 2);
    p.replicas->stages[1].order = "F0 I0 W0 F1 I1 W1";
    ck_assert_int_eq(lower_plan(a, &p, &o, &program, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "F and B"));
}
END_TEST

Suite *measured_suite(void)
{
    Suite *s = suite_create("measured");
    TCase *c = tcase_create("measured");
    tcase_add_checked_fixture(c, set_up, tear_down);
    const TTest *tests[] = {
        sizes_of_a_tensor_parallel_degree_that_was_not_measured_follow_from_two_that_were,
        a_table_of_layers_is_read_and_written_back_the_same,
        what_is_wrong_in_a_table_is_said_with_its_place,
        a_microbatch_between_two_measured_ones_lies_on_their_line,
        prices_of_rising_rows_never_fall,
        two_types_join_at_the_slower_ones_pace_whatever_the_size,
        a_message_reads_what_it_carries_and_is_told_apart_by_its_link,
        a_message_takes_its_time_once_whether_it_overlaps_or_not,
        blocking_messages_keep_both_compute_streams_busy,
        memory_is_one_gpus_with_the_reserve,
        the_planner_sees_what_one_gpu_holds,
        a_program_of_measured_layers_is_written_and_read_back,
        what_a_measured_layer_cannot_do_is_refused};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(c, tests[i]);
    suite_add_tcase(s, c);
    return s;
}
