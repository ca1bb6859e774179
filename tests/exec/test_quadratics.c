/* Descent on quadratics by the host's kernels, beside theory: delayed gradients, outer optimizers of local SGD, codes with and without feedback,
 * PowerSGD. A bound of stability is confirmed on both sides: 0.97 of it converges, 1.03 diverges. */
#include "tests/support/codes.h"

static void op_run(enum op_kind kind, struct op_attrs attrs, const struct optimizer_step *step, int n, const struct shape *shapes,
                   const void *const *in, void *const *out, int n_out)
{
    struct op_shapes s = {.n_inputs = n};
    struct error err = {0};
    struct op_call c = {.kind = kind, .dtype = DTYPE_fp64, .attrs = &attrs, .shapes = &s, .optimizer = step};
    for (int i = 0; i < n; i++) s.input[i] = shapes[i], c.input[i] = in[i];
    for (int i = 0; i < n_out; i++) c.output[i] = out[i];
    ck_assert_msg(op_infer(kind, &attrs, &s, &err) == OK, "%s", err.text);
    coder_on_host(NULL, &c);
}

/* x -= rate g, g = 0 */
static void sgd(double *x, double *g, int n, double rate)
{
    struct optimizer_step step = {.lr = rate, .step = 1};
    struct shape s = {1, {n}};
    op_run(OP_sgd, (struct op_attrs){0}, &step, 2, (struct shape[]){s, s}, (const void *[]){x, g}, (void *[]){x, g}, 2);
}

static double squared(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    return sum;
}

/* --- delayed gradients: x(t + 1) = x(t) - lr λ x(t - τ), stable if and only if lr λ < 2 sin(π / (2 (2 τ + 1))) for every curvature λ --- */

enum { CURVATURES = 16, DELAY_MAX = 16 };

/* ‖x‖² after so many steps ÷ ‖x‖² at the start; the largest curvature is 1, and the last step's gradient is that of `delay` steps before. */
static double delayed(double rate, int delay, int steps)
{
    double past[DELAY_MAX + 1][CURVATURES], x[CURVATURES], g[CURVATURES], begin;
    for (int i = 0; i < CURVATURES; i++) x[i] = 1;
    begin = squared(x, CURVATURES);
    for (int t = 0; t < steps; t++) {
        for (int i = 0; i < CURVATURES; i++) past[t % (delay + 1)][i] = x[i];
        int then = t < delay ? 0 : (t - delay) % (delay + 1);
        for (int i = 0; i < CURVATURES; i++) g[i] = (i + 1.0) / CURVATURES * past[then][i];
        sgd(x, g, CURVATURES, rate);
        if (!(squared(x, CURVATURES) < 1e200)) return INFINITY;
    }
    return squared(x, CURVATURES) / begin;
}

START_TEST(delayed_gradients_are_stable_up_to_the_bound)
{
    static const int delays[] = {0, 1, 2, 4, 8, 16};
    const int steps = 40000;
    for (size_t k = 0; k < sizeof delays / sizeof *delays; k++) {
        int delay = delays[k];
        double bound = 2 * sin(acos(-1) / (2 * (2 * delay + 1)));
        double below = delayed(0.97 * bound, delay, steps), above = delayed(1.03 * bound, delay, steps), safe = delayed(1.0 / (delay + 1), delay, steps);
        ck_assert_msg(below < 1e-20, "delay %d, 0.97 of the bound %g: %g", delay, bound, below);
        ck_assert_msg(above > 1e20, "delay %d, 1.03 of the bound %g: %g", delay, bound, above);
        ck_assert_msg(safe < 1e-20, "delay %d, 1 / (delay + 1): %g", delay, safe); /* staleness-aware rates, Zhang et al. 2016 */
    }
}
END_TEST

/* --- local SGD: islands of equal curvature and different optima, every steps of sgd, then the outer optimizer --- */

enum { ISLANDS = 3, EVERY = 5 };

/* |a - optimum|² after so many exchanges, from 1 on; the inner rate makes a change of 1 - contraction of the distance. */
static double exchanged(enum op_kind outer, double inner_rate, double outer_rate, double momentum, int exchanges)
{
    static const double optimum[ISLANDS] = {-1, 0.25, 0.75}; /* mean 0 */
    double a[ISLANDS], v[ISLANDS] = {0}, p[ISLANDS], change, sum, g;
    struct optimizer_step step = {.lr = inner_rate, .step = 1, .outer_lr = outer_rate, .outer_momentum = momentum};
    struct shape s = {1, {1}}, shapes[4] = {s, s, s, s};
    for (int w = 0; w < ISLANDS; w++) a[w] = p[w] = 1;
    for (int k = 0; k < exchanges; k++) {
        sum = 0;
        for (int w = 0; w < ISLANDS; w++) {
            for (int t = 0; t < EVERY; t++) {
                g = p[w] - optimum[w];
                sgd(&p[w], &g, 1, inner_rate);
            }
            op_run(OP_outer_delta, (struct op_attrs){.scale = 1.0 / ISLANDS}, &step, 2, shapes, (const void *[]){&a[w], &p[w]}, (void *[]){&change}, 1);
            sum += change;
        }
        for (int w = 0; w < ISLANDS; w++) {
            g = sum;
            void *average[] = {&p[w], &a[w], &g}, *nesterov[] = {&p[w], &a[w], &v[w], &g};
            bool has_v = outer == OP_outer_nesterov;
            op_run(outer, (struct op_attrs){0}, &step, has_v ? 4 : 3, shapes, (const void *const *)(has_v ? nesterov : average),
                   has_v ? nesterov : average, has_v ? 4 : 3);
        }
        for (int w = 1; w < ISLANDS; w++) ck_assert(a[w] == a[0] && p[w] == a[0]);
        if (!(fabs(a[0]) < 1e100)) return INFINITY;
    }
    return a[0] * a[0];
}

/* The average: the inner rate alone, as of gradient descent. Nesterov: a change is (1 - c) of the distance, c = (1 - lr λ)^H, so the outer rate is
 * below 2 (1 + μ) / ((1 + 2 μ) (1 - c)). */
START_TEST(outer_optimizers_are_stable_up_to_their_bounds)
{
    const int n = 4000;
    ck_assert_double_le(exchanged(OP_outer_average, 0.97 * 2, 0, 0, n), 1e-20);
    ck_assert_double_ge(exchanged(OP_outer_average, 1.03 * 2, 0, 0, n), 1e20);
    static const double momenta[] = {0, 0.5, 0.9}, rates[] = {0.02, 0.3, 1};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) {
            double mu = momenta[i], bound = 2 * (1 + mu) / (1 + 2 * mu) / (1 - pow(1 - rates[k], EVERY));
            double below = exchanged(OP_outer_nesterov, rates[k], 0.97 * bound, mu, n), above = exchanged(OP_outer_nesterov, rates[k], 1.03 * bound, mu, n);
            ck_assert_msg(below < 1e-20 && above > 1e20, "momentum %g, inner rate %g, bound %g: %g and %g", mu, rates[k], bound, below, above);
        }
    ck_assert_double_le(exchanged(OP_outer_nesterov, 0.3, 0.7, 0.9, n), 1e-20); /* DiLoCo's */
}
END_TEST

/* --- codes: workers w of W with f_w(x) = |x - b_w|² / 2, whose mean has its minimum at the mean of b_w --- */

enum { DIM = 256, WORKERS = 4 };

/* ‖x - x*‖² ÷ ‖x*‖² after gradient descent from 0 whose gradients are encoded. */
static double descend(struct encoding code, double rate, int steps)
{
    struct coder c = coder_of(code, DTYPE_fp64, DIM);
    double *b[WORKERS], *state[WORKERS], *x = calls_space(DTYPE_fp64, DIM), *g = calls_space(DTYPE_fp64, DIM),
                                         *sum = calls_space(DTYPE_fp64, DIM), error = 0, all = 0;
    char *words = calls_space(DTYPE_int32, WORKERS * coder_words(&c));
    for (int w = 0; w < WORKERS; w++) b[w] = calls_numbers(DTYPE_fp64, DIM), state[w] = calls_space(DTYPE_fp64, DIM);
    memset(x, 0, DIM * sizeof *x), memset(sum, 0, DIM * sizeof *sum);
    for (int w = 0; w < WORKERS; w++) memset(state[w], 0, DIM * sizeof **state);
    for (c.step = 1; c.step <= steps; c.step++) {
        for (int w = 0; w < WORKERS; w++) {
            for (int i = 0; i < DIM; i++) g[i] = (x[i] - b[w][i]) / WORKERS;
            c.device = w;
            coder_encode(&c, coder_on_host, NULL, g, code.feedback ? state[w] : NULL, words + 4 * w * coder_words(&c));
        }
        coder_decode(&c, coder_on_host, NULL, words, WORKERS, code.feedback == FEEDBACK_EF21 ? sum : NULL, g);
        sgd(x, g, DIM, rate);
    }
    for (int i = 0; i < DIM; i++) {
        double best = 0;
        for (int w = 0; w < WORKERS; w++) best += b[w][i] / WORKERS;
        error += (x[i] - best) * (x[i] - best), all += best * best;
    }
    return error / all;
}

/* Top-k of 6 % and one bit an element. Without feedback descent stalls at any rate; error feedback's error falls with the square of the rate, and at
 * rate 0.5 is worse than none of one bit; EF21 finds the minimum. The same laws hold in another implementation on another such quadratic: 0.51; 1.0e-3,
 * 1.2e-5, 1.2e-7; 1e-12, and of one bit 0.31; 0.37, 3.4e-3, 3.4e-5, 3.1e-7; 8e-13. */
static const struct figure {
    struct encoding code;
    double rate;
    int steps;
    double least, most;
} figures[] = {
    {{.kind = ENCODING_TOP_K, .kept = 16, .feedback = FEEDBACK_NONE}, 0.5, 4000, 0.45, 0.7},
    {{.kind = ENCODING_TOP_K, .kept = 16, .feedback = FEEDBACK_NONE}, 0.05, 4000, 0.5, 0.79},
    {{.kind = ENCODING_TOP_K, .kept = 16, .feedback = FEEDBACK_EF}, 0.05, 4000, 0.018, 0.029},
    {{.kind = ENCODING_TOP_K, .kept = 16, .feedback = FEEDBACK_EF}, 0.005, 8000, 0.00018, 0.00028},
    {{.kind = ENCODING_TOP_K, .kept = 16, .feedback = FEEDBACK_EF}, 0.0005, 80000, 2e-06, 3.2e-06},
    {{.kind = ENCODING_TOP_K, .kept = 16, .feedback = FEEDBACK_EF21}, 0.05, 4000, 0, 1e-12},
    {{.kind = ENCODING_TOP_K, .kept = 16, .feedback = FEEDBACK_EF21}, 0.005, 8000, 0, 1e-12},
    {{.kind = ENCODING_SIGN, .feedback = FEEDBACK_NONE}, 0.5, 4000, 0.24, 0.38},
    {{.kind = ENCODING_SIGN, .feedback = FEEDBACK_NONE}, 0.05, 4000, 0.25, 0.4},
    {{.kind = ENCODING_SIGN, .feedback = FEEDBACK_EF}, 0.5, 4000, 0.69, 1.1},
    {{.kind = ENCODING_SIGN, .feedback = FEEDBACK_EF}, 0.05, 4000, 0.0051, 0.008},
    {{.kind = ENCODING_SIGN, .feedback = FEEDBACK_EF}, 0.005, 8000, 5.1e-05, 8e-05},
    {{.kind = ENCODING_SIGN, .feedback = FEEDBACK_EF}, 0.0005, 80000, 4.8e-07, 7.4e-07},
    {{.kind = ENCODING_SIGN, .feedback = FEEDBACK_EF21}, 0.05, 4000, 0, 1e-12},
    {{.kind = ENCODING_SIGN, .feedback = FEEDBACK_EF21}, 0.005, 8000, 0, 1e-12},
};

START_TEST(feedback_finds_what_codes_lose)
{
    const struct figure *f = &figures[_i];
    struct encoding code = f->code;
    code.block = DIM, stream = 0;
    double error = descend(code, f->rate, f->steps);
    ck_assert_msg(f->least <= error && error <= f->most, "figure %d: %g, not %g to %g", _i, error, f->least, f->most);
}
END_TEST

/* --- PowerSGD (core/lower/factors.h), by the operators of its program --- */

enum { ROWS = 16, COLUMNS = 16, WORKERS_OF_POWER = 4 };

static void power_op(enum op_kind kind, struct op_attrs attrs, struct shape a, const void *x, struct shape b, const void *y,
                     void *out)
{
    struct optimizer_step step = {.step = 1};
    op_run(kind, attrs, &step, y ? 2 : 1, (struct shape[]){a, b}, (const void *[]){x, y}, &out, 1);
}

/* One sum of the workers' m: g = P Qᵀ. */
static void power_sum(double *const *m, bool feedback, int rank, double *q, double *g)
{
    struct shape whole = {2, {ROWS, COLUMNS}}, left = {2, {ROWS, rank}}, right = {2, {COLUMNS, rank}};
    double p[ROWS * ROWS] = {0}, part[COLUMNS * ROWS], own[COLUMNS * ROWS];
    for (int w = 0; w < WORKERS_OF_POWER; w++) {
        power_op(OP_matmul, (struct op_attrs){0}, whole, m[w], right, q, part);
        for (int i = 0; i < ROWS * rank; i++) p[i] += part[i];
    }
    power_op(OP_orthonormal, (struct op_attrs){.stream = 7}, left, p, left, NULL, p);
    memset(q, 0, (size_t)(COLUMNS * rank) * sizeof *q);
    for (int w = 0; w < WORKERS_OF_POWER; w++) {
        power_op(OP_matmul, (struct op_attrs){.trans_a = true}, whole, m[w], left, p, own);
        power_op(OP_matmul, (struct op_attrs){.trans_b = true}, left, p, right, own, g);
        if (feedback) power_op(OP_outer_delta, (struct op_attrs){.scale = 1}, whole, m[w], whole, g, m[w]);
        for (int i = 0; i < COLUMNS * rank; i++) q[i] += own[i];
    }
    power_op(OP_matmul, (struct op_attrs){.trans_b = true}, left, p, right, q, g);
}

/* ‖x - x*‖² of descent on |x - b_w|² / 2. */
static double descend_by_power(int rank, bool feedback, double rate, int steps)
{
    enum { N = ROWS * COLUMNS };
    double *b[WORKERS_OF_POWER], *m[WORKERS_OF_POWER], x[N] = {0}, g[N], q[COLUMNS * ROWS] = {0}, error = 0;
    for (int w = 0; w < WORKERS_OF_POWER; w++) {
        b[w] = calls_numbers(DTYPE_fp64, N), m[w] = calls_space(DTYPE_fp64, N);
        memset(m[w], 0, N * sizeof **m);
    }
    for (int step = 0; step < steps; step++) {
        for (int w = 0; w < WORKERS_OF_POWER; w++)
            for (int i = 0; i < N; i++) m[w][i] = (feedback ? m[w][i] : 0) + (x[i] - b[w][i]) / WORKERS_OF_POWER;
        power_sum(m, feedback, rank, q, g);
        sgd(x, g, N, rate);
    }
    for (int i = 0; i < N; i++) {
        double best = 0;
        for (int w = 0; w < WORKERS_OF_POWER; w++) best += b[w][i] / WORKERS_OF_POWER;
        error += (x[i] - best) * (x[i] - best);
    }
    return error;
}

START_TEST(low_ranks_descend_and_the_full_rank_is_the_sum)
{
    double with = descend_by_power(1, true, 0.05, 1000), without = descend_by_power(1, false, 0.05, 1000), one = descend_by_power(ROWS, false, 1, 1);
    ck_assert_msg(with < 1e-20, "rank 1 with feedback: %g", with);
    ck_assert_msg(without > 1e-4 && without < 1, "rank 1 without feedback descends more slowly: %g", without);
    ck_assert_msg(one < 1e-24, "full rank: %g after one step of rate 1", one);
}
END_TEST

/* P has orthonormal columns, so that P Pᵀ M is a projection: it leaves ‖M‖² - ‖Pᵀ M‖² of any matrix, at most 1 - rank / ROWS of it after a power
 * iteration from any Q on the mean of random ones. */
START_TEST(low_ranks_contract_every_matrix)
{
    struct shape whole = {2, {ROWS, COLUMNS}};
    for (int rank = 1; rank <= ROWS; rank++) {
        struct shape left = {2, {ROWS, rank}}, right = {2, {COLUMNS, rank}};
        double lost = 0;
        for (int draw = 0; draw < 20; draw++) {
            const double *m = calls_numbers(DTYPE_fp64, ROWS * COLUMNS), *q = calls_numbers(DTYPE_fp64, COLUMNS * rank);
            double p[ROWS * ROWS] = {0}, own[COLUMNS * ROWS] = {0}, near[ROWS * COLUMNS];
            power_op(OP_matmul, (struct op_attrs){0}, whole, m, right, q, p);
            power_op(OP_orthonormal, (struct op_attrs){.stream = 7}, left, p, left, NULL, p);
            power_op(OP_matmul, (struct op_attrs){.trans_a = true}, whole, m, left, p, own);
            power_op(OP_matmul, (struct op_attrs){.trans_b = true}, left, p, right, own, near);
            double all = squared(m, ROWS * COLUMNS), left_out = codes_squared(DTYPE_fp64, m, near, ROWS * COLUMNS);
            ck_assert_double_le(fabs(left_out - (all - squared(own, COLUMNS * rank))), 1e-12 * all);
            lost += left_out / all / 20;
        }
        ck_assert_msg(lost <= 1 - (double)rank / ROWS + 1e-12, "rank %d loses %g", rank, lost);
    }
}
END_TEST

Suite *quadratics_suite(void)
{
    Suite *suite = suite_create("quadratics");
    TCase *c = tcase_create("quadratics");
    tcase_add_checked_fixture(c, calls_begin, calls_end);
    tcase_add_test(c, delayed_gradients_are_stable_up_to_the_bound);
    tcase_add_test(c, outer_optimizers_are_stable_up_to_their_bounds);
    tcase_add_loop_test(c, feedback_finds_what_codes_lose, 0, sizeof figures / sizeof *figures);
    tcase_add_test(c, low_ranks_descend_and_the_full_rank_is_the_sum);
    tcase_add_test(c, low_ranks_contract_every_matrix);
    suite_add_tcase(suite, c);
    return suite;
}
