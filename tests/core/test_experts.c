/* Dispatch and combine against a layer computed row by row, top-k, capacity; dropout masks; ignored targets. Gradients: test_kernels.c. */
#include "exec/bench/bench.h"

#include "tests/support/calls.h"
#include "tests/support/plans.h"

#include <stdio.h>

/* n operands of shapes "…" with the data given; fp64. */
static struct made *given(enum op_kind kind, struct op_attrs attrs, const char *shapes,
                          const void *const input[])
{
    struct made *m = arena_alloc(memory, 1, sizeof *m);
    m->attrs = attrs;
    m->shapes.n_inputs = calls_shapes(shapes, m->shapes.input);
    for (int32_t i = 0; i < m->shapes.n_inputs; i++) m->c.input[i] = input[i];
    calls_finish(m, kind, DTYPE_fp64);
    calls_run_checked(m);
    return m;
}

#define GIVEN(kind, attrs, shapes, ...)                                                            \
    given(kind, attrs, shapes, (const void *const[]){__VA_ARGS__})

static const double *result(const struct made *m) { return m->c.output[0]; }

START_TEST(the_largest_logits_are_chosen_and_of_equal_ones_the_first)
{
    static const double logits[] = {1, 3, 2, 3, /**/ 5, 5, 5, 5, /**/ -1, 0, -1, -2};
    static const bool chosen[] = {0, 1, 0, 1, /**/ 1, 1, 0, 0, /**/ 1, 1, 0, 0};
    struct op_attrs attrs = {.chosen = 2};
    for (int renormalise = 0; renormalise < 2; renormalise++) {
        attrs.renormalise = renormalise;
        const double *gates = result(GIVEN(OP_gating, attrs, "1,3,4", logits));
        for (int r = 0; r < 3; r++) {
            double sum = 0;
            for (int e = 0; e < 4; e++)
                if (!renormalise || chosen[4 * r + e]) sum += exp(logits[4 * r + e]);
            for (int e = 0; e < 4; e++)
                ck_assert_double_eq_tol(
                    gates[4 * r + e], chosen[4 * r + e] ? exp(logits[4 * r + e]) / sum : 0, 1e-15);
        }
    }
}
END_TEST

/* x (T,d), expert e: w2·(silu(w1·x) ∘ (w3·x)), w1, w3 (f,d), w2 (d,f). */
enum { B = 2, T = 11, D = 5, F = 7, E = 4, K = 2 };

static void expert(const double *x, const double *w1, const double *w3, const double *w2, double *y)
{
    double h[F];
    for (int f = 0; f < F; f++) {
        double a = 0, b = 0;
        for (int d = 0; d < D; d++) a += w1[f * D + d] * x[d], b += w3[f * D + d] * x[d];
        h[f] = a / (1 + exp(-a)) * b;
    }
    for (int d = 0; d < D; d++) {
        y[d] = 0;
        for (int f = 0; f < F; f++) y[d] += w2[d * F + f] * h[f];
    }
}

struct layer {
    const double *x, *logits, *w1, *w3, *w2;
};

static struct layer some_layer(void)
{
    return (struct layer){
        calls_numbers(DTYPE_fp64, B * T * D), calls_numbers(DTYPE_fp64, B * T * E),
        calls_numbers(DTYPE_fp64, E * F * D), calls_numbers(DTYPE_fp64, E * F * D),
        calls_numbers(DTYPE_fp64, E * D * F)};
}

/* By operators; experts [first, first + n) alone where the gates are theirs. */
static const double *by_operators(const struct layer *l, const double *gates, int first, int n,
                                  int64_t capacity)
{
    char slots[40], w1[80], w2[80], to[40], back[80];
    struct op_attrs p = {.trans_b = true, .chosen = K, .experts = E};
    snprintf(to, sizeof to, "%d,%d,%d x %d,%d,%d", B, T, D, B, T, n);
    snprintf(w1, sizeof w1, "%d,%d,%d,%d x %d,%d,%d x %d,%d,%d", B, n, (int)capacity, D, n, F, D, B,
             T, n);
    snprintf(w2, sizeof w2, "%d,%d,%d,%d x %d,%d,%d x %d,%d,%d", B, n, (int)capacity, F, n, D, F, B,
             T, n);
    snprintf(slots, sizeof slots, "%d,%d,%d,%d", B, n, (int)capacity, F);
    snprintf(back, sizeof back, "%d,%d,%d,%d x %d,%d,%d", B, n, (int)capacity, D, B, T, n);
    const double *rows = result(GIVEN(
        OP_dispatch, ((struct op_attrs){.capacity = capacity, .chosen = K}), to, l->x, gates));
    const double *a = result(GIVEN(OP_expert_matmul, p, w1, rows, l->w1 + first * F * D, gates));
    const double *b = result(GIVEN(OP_expert_matmul, p, w1, rows, l->w3 + first * F * D, gates));
    const double *s = result(GIVEN(OP_silu, (struct op_attrs){0}, slots, a));
    char both[90];
    snprintf(both, sizeof both, "%s x %s", slots, slots);
    const double *h = result(GIVEN(OP_multiply, (struct op_attrs){0}, both, s, b));
    const double *y = result(GIVEN(OP_expert_matmul, p, w2, h, l->w2 + first * D * F, gates));
    return result(GIVEN(OP_combine, ((struct op_attrs){.weighted = true}), back, y, gates));
}

static const double *gates_of(const struct layer *l)
{
    char shape[20];
    snprintf(shape, sizeof shape, "%d,%d,%d", B, T, E);
    return result(
        GIVEN(OP_gating, ((struct op_attrs){.chosen = K, .renormalise = true}), shape, l->logits));
}

/* Row by row; an expert takes the first `capacity` rows of a sequence that want it. */
static void check_layer(int64_t capacity)
{
    struct layer l = some_layer();
    const double *gates = gates_of(&l), *got = by_operators(&l, gates, 0, E, capacity);
    for (int b = 0; b < B; b++) {
        int64_t taken[E] = {0};
        for (int t = 0; t < T; t++) {
            double want[D] = {0}, y[D];
            const double *g = gates + (b * T + t) * E;
            int chosen = 0;
            for (int e = 0; e < E; e++) {
                if (g[e] == 0) continue;
                chosen++;
                if (taken[e]++ >= capacity) continue;
                expert(l.x + (b * T + t) * D, l.w1 + e * F * D, l.w3 + e * F * D, l.w2 + e * D * F,
                       y);
                for (int d = 0; d < D; d++) want[d] += g[e] * y[d];
            }
            ck_assert_int_eq(chosen, K);
            for (int d = 0; d < D; d++)
                ck_assert_double_eq_tol(got[(b * T + t) * D + d], want[d], 1e-13);
        }
    }
}

START_TEST(a_layer_of_experts_is_what_each_row_gets_from_its_own) { check_layer(T); }
END_TEST

/* scale · E · Σ_e f_e·P_e of each sequence by its definition; f is counted from gates. */
static double balance_of(const double *logits, const double *gates, double scale)
{
    double loss = 0;
    for (int b = 0; b < B; b++)
        for (int e = 0; e < E; e++) {
            double f = 0, p = 0;
            for (int t = 0; t < T; t++) {
                const double *x = logits + (b * T + t) * E;
                double sum = 0;
                for (int i = 0; i < E; i++) sum += exp(x[i]);
                f += (gates[(b * T + t) * E + e] != 0) / (double)T;
                p += exp(x[e]) / sum / T;
            }
            loss += scale * E * f * p;
        }
    return loss;
}

START_TEST(balance_pulls_at_logits_as_differences_of_its_loss_do)
{
    struct layer l = some_layer();
    const double *gates = gates_of(&l);
    const double step = 1e-5, scale = 0.7;
    double *zero = calls_numbers(DTYPE_fp64, B * T * E), *x = calls_numbers(DTYPE_fp64, B * T * E);
    memset(zero, 0, sizeof *zero * B * T * E);
    memcpy(x, l.logits, sizeof *x * B * T * E);
    char shapes[60];
    snprintf(shapes, sizeof shapes, "%d,%d,%d x %d,%d,%d x %d,%d,%d", B, T, E, B, T, E, B, T, E);
    for (int renormalise = 0; renormalise < 2; renormalise++) {
        struct op_attrs a = {.chosen = K, .renormalise = renormalise, .scale = scale};
        const double *got = result(GIVEN(OP_gating_grad, a, shapes, l.logits, gates, zero));
        for (int i = 0; i < B * T * E; i++) {
            x[i] = l.logits[i] + step;
            double more = balance_of(x, gates, scale);
            x[i] = l.logits[i] - step;
            double want = (more - balance_of(x, gates, scale)) / (2 * step);
            x[i] = l.logits[i];
            ck_assert_double_eq_tol(got[i], want, 1e-9);
        }
    }
}
END_TEST

START_TEST(rows_beyond_the_capacity_skip_the_expert)
{
    check_layer(3);
    check_layer(1);
}
END_TEST

/* The gates of some experts are enough to know their slots; the results add up. */
START_TEST(experts_apart_add_up_to_experts_together)
{
    struct layer l = some_layer();
    const double *gates = gates_of(&l);
    for (int capacity = 2; capacity <= T; capacity += T - 2) {
        const double *whole = by_operators(&l, gates, 0, E, capacity);
        double sum[B * T * D] = {0};
        for (int first = 0; first < E; first += first ? E - 1 : 1) { /* 0 and 1, 2, 3 */
            int n = first ? E - 1 : 1;
            double *part = calls_space(DTYPE_fp64, B * T * n);
            for (int r = 0; r < B * T; r++)
                for (int e = 0; e < n; e++) part[r * n + e] = gates[r * E + first + e];
            const double *y = by_operators(&l, part, first, n, capacity);
            for (int i = 0; i < B * T * D; i++) sum[i] += y[i];
        }
        for (int i = 0; i < B * T * D; i++) ck_assert_double_eq_tol(sum[i], whole[i], 1e-13);
    }
}
END_TEST

START_TEST(a_sequence_alone_is_routed_as_among_others)
{
    struct layer l = some_layer();
    const double *gates = gates_of(&l), *both = by_operators(&l, gates, 0, E, 3);
    const double *rows = result(GIVEN(OP_dispatch, ((struct op_attrs){.capacity = 3, .chosen = K}),
                                      "1,11,5 x 1,11,4", l.x + T * D, gates + T * E));
    const double *all = result(GIVEN(OP_dispatch, ((struct op_attrs){.capacity = 3, .chosen = K}),
                                     "2,11,5 x 2,11,4", l.x, gates));
    ck_assert(both != NULL);
    ck_assert_mem_eq(rows, all + E * 3 * D, E * 3 * D * sizeof *rows);
}
END_TEST

START_TEST(capacity_is_a_share_of_one_sequence)
{
    struct model m = {.experts = 8, .chosen = 2};
    ck_assert_int_eq(model_capacity(&m, 100), 100); /* no bound */
    m.expert_imbalance = 2;
    ck_assert_int_eq(model_capacity(&m, 100), 50); /* 2 · 2 · 100 / 8 */
    m.capacity_factor = 1.25;
    ck_assert_int_eq(model_capacity(&m, 100), 32); /* 1.25 · 2 · 100 / 8 = 31.25 */
    ck_assert_int_eq(model_capacity(&m, 1), 1);
    m.capacity_factor = 100;
    ck_assert_int_eq(model_capacity(&m, 100), 100);
}
END_TEST

/* --- dropout --- */

static struct made *dropped(const double *x, int64_t sequences, int64_t first, double rate)
{
    char shape[40];
    struct made *m = arena_alloc(memory, 1, sizeof *m);
    m->attrs = (struct op_attrs){.rate = rate, .stream = 3};
    snprintf(shape, sizeof shape, "%d,9,7", (int)sequences);
    m->shapes.n_inputs = calls_shapes(shape, m->shapes.input);
    m->c.input[0] = x, m->c.seed = 11, m->c.first_sequence = first;
    calls_finish(m, OP_dropout, DTYPE_fp64);
    calls_run_checked(m);
    return m;
}

START_TEST(dropout_drops_its_share_and_keeps_the_mean)
{
    enum { N = 400 * 63 };
    double *x = calls_space(DTYPE_fp64, N);
    for (int i = 0; i < N; i++) x[i] = 1;
    for (double rate = 0.1; rate < 1; rate += 0.4) {
        const double *y = result(dropped(x, 400, 0, rate));
        int zeros = 0;
        for (int i = 0; i < N; i++) {
            zeros += y[i] == 0;
            if (y[i] != 0) ck_assert_double_eq_tol(y[i], 1 / (1 - rate), 1e-12);
        }
        /* five standard deviations */
        ck_assert_double_eq_tol(zeros, rate * N, 5 * sqrt(rate * (1 - rate) * N));
    }
    ck_assert_mem_eq(result(dropped(x, 400, 0, 0)), x, N * sizeof *x);
}
END_TEST

START_TEST(masks_belong_to_sequences_wherever_they_are_computed)
{
    double *x = calls_numbers(DTYPE_fp64, 6 * 63);
    const double *whole = result(dropped(x, 6, 100, 0.3));
    for (int64_t first = 0, n = 1; first < 6; first += n, n++) /* 1, 2, 3 sequences */
        ck_assert_mem_eq(result(dropped(x + first * 63, n, 100 + first, 0.3)), whole + first * 63,
                         (size_t)n * 63 * sizeof *x);
    const double *others = result(dropped(x, 6, 101, 0.3));
    int same = 0;
    for (int i = 0; i < 6 * 63; i++) same += (others[i] == 0) == (whole[i] == 0);
    ck_assert_int_lt(same, 6 * 63 * 3 / 4); /* 0.58 where they are independent */
}
END_TEST

/* Element i of sequence n: word i mod 4 of Philox's block (i / 4, n). */
START_TEST(the_bits_are_philoxs)
{
    enum { N = 3 * 63 };
    double *x = calls_numbers(DTYPE_fp64, N);
    int64_t first = ((int64_t)1 << 40) - 1; /* a number beyond 32 bits */
    struct made *m = dropped(x, 3, first, 0.25);
    uint64_t k = op_values_random_key(&m->c);
    for (int i = 0; i < N; i++) {
        uint64_t n = (uint64_t)(first + i / 63);
        const uint32_t counter[4] = {(uint32_t)(i % 63 / 4), 0, (uint32_t)n, (uint32_t)(n >> 32)};
        uint32_t out[4];
        rng_philox(counter, (const uint32_t[]){(uint32_t)k, (uint32_t)(k >> 32)}, out);
        ck_assert_double_eq(result(m)[i], out[i % 63 % 4] < 1u << 30 ? 0 : x[i] * (1 / 0.75));
    }
}
END_TEST

START_TEST(masks_differ_by_operator_and_seed)
{
    double *x = calls_numbers(DTYPE_fp64, 6 * 63);
    struct made *m = dropped(x, 6, 0, 0.5);
    double first[6 * 63];
    memcpy(first, result(m), sizeof first);
    for (int change = 0; change < 2; change++) {
        m->attrs.stream = change ? 3 : 4, m->c.seed = change ? 12 : 11;
        calls_run_checked(m);
        int same = 0;
        for (int i = 0; i < 6 * 63; i++) same += (first[i] == 0) == (result(m)[i] == 0);
        ck_assert(same > 6 * 63 * 2 / 5 && same < 6 * 63 * 3 / 5);
    }
}
END_TEST

/* --- targets that do not count --- */

START_TEST(the_mean_is_over_the_targets_that_count)
{
    static const int32_t targets[] = {-1, 2, -1, /**/ 0, -1, -1};
    struct op_attrs attrs = {.counted = 1, .scale = 0.5};
    const double *x = calls_numbers(DTYPE_fp64, 2 * 3 * 4);
    struct made *m = GIVEN(OP_cross_entropy, attrs, "2,3,4 x 2,3", x, targets);
    const double *lse = m->c.output[1];
    ck_assert_double_eq_tol(*result(m), (lse[1] - x[4 + 2] + lse[3] - x[12]) / 2, 1e-14);
    const double *g =
        result(GIVEN(OP_cross_entropy_grad, attrs, "2,3,4 x 2,3 x 2,3", x, targets, lse));
    for (int r = 0; r < 6; r++)
        for (int i = 0; i < 4; i++) {
            double want =
                targets[r] < 0 ? 0 : 0.5 * (exp(x[4 * r + i] - lse[r]) - (targets[r] == i));
            ck_assert_double_eq_tol(g[4 * r + i], want, 1e-14);
        }
}
END_TEST

START_TEST(minus_one_is_no_target_where_all_count)
{
    struct error err = {0};
    static const int32_t targets[] = {1, -1};
    struct made *m = GIVEN(OP_cross_entropy, (struct op_attrs){.counted = 1}, "1,2,4 x 1,2",
                           calls_numbers(DTYPE_fp64, 8), targets);
    m->attrs.counted = 0;
    ck_assert_int_eq(kernels_host_run(&context, &m->c, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "id -1") != NULL, "%s", err.text);
}
END_TEST

/* How many of how many experts' gates the gating behind an operator's gates chose, and how many of them it was given. */
struct dealt {
    int32_t chosen, of, given;
};

/* Rows are sent where gates are not 0: a bench's are made by a gating, untimed, before what it times. All operators with gates
 * must have the ones of this gating. */
static int check_bench_of_experts(struct arena *a, const struct program_op *ops, int32_t n,
                                  const struct program_device *device, struct dealt wanted)
{
    struct program bench;
    struct error err = {0};
    ck_assert_msg(bench_ops(a, ops, n, device, 2, 256, &bench, &err) == OK, "%s", err.text);
    ck_assert_msg(program_check(a, &bench, &err) == OK, "%s", err.text);
    const struct program_stage *b = &bench.stages[0];
    const struct procedure *f = &b->procedures[0];
    struct dealt made[4096] = {0}; /* by slot */
    int n_routed = 0;
    for (int32_t i = 0; i < f->n_instrs; i++) {
        if (f->instrs[i].kind != INSTR_COMPUTE) continue;
        const struct program_op *op = &b->ops[f->instrs[i].arg];
        int32_t gates = op_gates_input(op->kind), width = (int32_t)op->shapes.output[0].dim[2];
        bool gating = op->kind == OP_gating && !op->key;
        if (gating) made[op->output[0]] = (struct dealt){op->attrs.chosen, width, width};
        if (op->kind == OP_slice && !op->key) {
            made[op->output[0]] = made[op->input[0]];
            made[op->output[0]].given = width;
        }
        if (gates < 0) continue;
        ck_assert_int_eq(made[op->input[gates]].chosen, wanted.chosen);
        ck_assert_int_eq(made[op->input[gates]].of, wanted.of);
        ck_assert_int_eq(made[op->input[gates]].given, wanted.given);
        n_routed++;
    }
    return n_routed;
}

START_TEST(a_bench_of_experts_sends_as_many_rows_as_training)
{
    struct arena *a = memory;
    struct plan p = plans_new(a, "gpt2", 1, 1);
    p.job.model = plans_model_file(a, "tiny-mixtral");
    plans_replica(a, &p, 2, 1, (const int32_t[]){plans_layers(a, &p) - 1});
    const struct program *program = plans_lower(a, &p, true);
    const struct program_stage *s = &program->stages[0];
    int32_t experts = (int32_t)p.job.model.experts;
    ck_assert_int_gt(check_bench_of_experts(a, s->ops, s->n_ops, &program->devices[0],
                                            (struct dealt){2, experts, experts}),
                     20);
}
END_TEST

/* Two of eight experts get the rows of two, not those of all. */
START_TEST(a_bench_of_some_experts_sends_them_their_share_of_rows)
{
    struct arena *a = memory;
    struct plan p = plans_new(a, "gpt2", 1, 1);
    struct program_op op = {
        .kind = OP_expert_matmul, .phase = PHASE_F, .dtype = DTYPE_fp32,
        .attrs = {.chosen = 2, .experts = 8},
        .shapes = {.n_inputs = 3, .input = {{4, {3, 2, 16, 6}}, {3, {2, 6, 10}}, {3, {3, 16, 2}}}}};
    ck_assert_int_eq(op_infer(op.kind, &op.attrs, &op.shapes, NULL), OK);
    op.key = op_key(op.kind, &op.attrs, &op.shapes, op.dtype);
    plans_replica(a, &p, 2, 1, (const int32_t[]){plans_layers(a, &p) - 1});
    ck_assert_int_eq(check_bench_of_experts(a, &op, 1, &plans_lower(a, &p, true)->devices[0],
                                            (struct dealt){2, 8, 2}),
                     1);
}
END_TEST

static double excess(int64_t part, int32_t all, int32_t chosen, int64_t capacity, double spread)
{
    struct op_attrs attrs = {.chosen = chosen, .experts = all, .capacity = capacity};
    struct op_shapes s = {
        .n_inputs = 2,
        .input = {{.rank = 3, .dim = {1, 128, 6}}, {.rank = 3, .dim = {1, 128, part}}}};
    ck_assert_int_eq(op_infer(OP_dispatch, &attrs, &s, NULL), OK);
    return op_expert_excess(OP_dispatch, &attrs, &s, spread);
}

/* 8 experts, 2 chosen: 32 rows each where all are alike. */
START_TEST(the_fullest_shard_of_the_experts_has_more_rows_than_an_even_one)
{
    ck_assert_double_eq_tol(excess(2, 8, 2, 128, 1), 1.676139, 1e-5);
    ck_assert_double_eq(excess(2, 8, 2, 128, 0), 1);
    ck_assert_double_eq(excess(8, 8, 2, 128, 1), 1);
    ck_assert_double_eq(excess(2, 0, 2, 128, 1), 1); /* a model of two */
    ck_assert_double_eq(excess(0, 8, 2, 128, 1), 1);
    ck_assert_double_eq_tol(excess(1, 8, 2, 128, 10), 4, 1e-12);   /* all 128 rows */
    ck_assert_double_eq_tol(excess(4, 8, 2, 128, 10), 2, 1e-12);   /* all rows of both */
    ck_assert_double_eq_tol(excess(1, 8, 2, 40, 10), 1.25, 1e-12); /* no more than the slots */
}
END_TEST

/* Experts with 1 … 16 rows dealt out in n parts at random: the mean of the fullest. */
START_TEST(parts_dealt_out_are_as_uneven_as_expected)
{
    double variance = (16.0 * 16 - 1) / 12, mean = 8.5;
    for (int parts = 2; parts <= 8; parts *= 2) {
        double sum = 0;
        for (uint64_t trial = 0; trial < 4000; trial++) {
            int rows[16], most = 0;
            for (int i = 0; i < 16; i++) rows[i] = i + 1;
            for (int i = 15; i > 0; i--) {
                int k = (int)(rng_u64(7, trial, (uint64_t)(16 * parts + i)) % (uint64_t)(i + 1));
                int other = rows[i];
                rows[i] = rows[k], rows[k] = other;
            }
            for (int p = 0; p < parts; p++) {
                int here = 0;
                for (int i = 0; i < 16 / parts; i++) here += rows[16 / parts * p + i];
                if (here > most) most = here;
            }
            sum += most;
        }
        double seen = sum / 4000 / (mean * 16 / parts);
        double expected = excess(16 / parts, 16, 2, 128, sqrt(variance) / mean);
        ck_assert_msg(fabs(expected - seen) < 0.06 * seen, "%d parts: %g, not %g", parts, expected,
                      seen);
    }
}
END_TEST

Suite *experts_suite(void)
{
    Suite *suite = suite_create("experts");
    TCase *c = tcase_create("experts");
    tcase_add_checked_fixture(c, calls_begin, calls_end);
    const TTest *tests[] = {the_largest_logits_are_chosen_and_of_equal_ones_the_first,
                            a_layer_of_experts_is_what_each_row_gets_from_its_own,
                            rows_beyond_the_capacity_skip_the_expert,
                            balance_pulls_at_logits_as_differences_of_its_loss_do,
                            experts_apart_add_up_to_experts_together,
                            a_sequence_alone_is_routed_as_among_others,
                            capacity_is_a_share_of_one_sequence,
                            the_fullest_shard_of_the_experts_has_more_rows_than_an_even_one,
                            parts_dealt_out_are_as_uneven_as_expected,
                            dropout_drops_its_share_and_keeps_the_mean,
                            masks_belong_to_sequences_wherever_they_are_computed,
                            the_bits_are_philoxs,
                            masks_differ_by_operator_and_seed,
                            the_mean_is_over_the_targets_that_count,
                            minus_one_is_no_target_where_all_count,
                            a_bench_of_experts_sends_as_many_rows_as_training,
                            a_bench_of_some_experts_sends_them_their_share_of_rows};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(c, tests[i]);
    suite_add_tcase(suite, c);
    return suite;
}
