/* Kernels that add the squares of whole tensors: the sum against one in long double, LAMB and LARS against their papers' formulas. */
#include "core/graph/loss_scale.h"

#include "tests/support/calls.h"

static const char *const lengths[] = {"1", "7", "4096", "4097", "3,5,7", "100003"};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

START_TEST(square_sum_adds_the_squares)
{
    for (int k = 0; k < 2; k++)
        for (int add = 0; add < 2; add++) {
            enum dtype t = k ? DTYPE_fp64 : DTYPE_fp32;
            struct made *m = calls_make(OP_square_sum, &(struct op_attrs){.accumulate = add}, lengths[_i], t);
            int64_t n = shape_elements(&m->shapes.input[0]);
            long double want = add ? 3 : 0;
            for (int64_t i = 0; i < n; i++) {
                long double x = (long double)calls_get(t, m->c.input[0], i);
                want += x * x;
            }
            calls_set(t, m->c.output[0], 0, 3);
            calls_run(m);
            double got = calls_get(t, m->c.output[0], 0);
            ck_assert_double_eq_tol(got, (double)want, (k ? 1e-14 : 3e-7) * (double)want);
        }
}
END_TEST

/* Added one by one in fp32, 1/16 beside 2^24 is lost; the blocks' sums are double. */
START_TEST(small_squares_beside_a_large_sum_are_not_lost)
{
    enum { N = 1 << 20 };
    struct made *m = calls_make(OP_square_sum, &(struct op_attrs){0}, "1048576", DTYPE_fp32);
    float *x = (void *)(uintptr_t)m->c.input[0];
    for (int i = 0; i < N; i++) x[i] = i ? 0.25f : 4096;
    calls_run(m);
    ck_assert_double_eq_tol(calls_get(DTYPE_fp32, m->c.output[0], 0), 4096.0 * 4096 + (N - 1) / 16.0, 16);
}
END_TEST

START_TEST(what_is_not_finite_stays_so)
{
    struct made *m = calls_make(OP_square_sum, &(struct op_attrs){0}, "5000", DTYPE_fp32);
    float *x = (void *)(uintptr_t)m->c.input[0];
    x[4321] = INFINITY;
    calls_run(m);
    ck_assert(isinf(calls_get(DTYPE_fp32, m->c.output[0], 0)));
    x[4321] = NAN;
    calls_run(m);
    ck_assert(isnan(calls_get(DTYPE_fp32, m->c.output[0], 0)));
}
END_TEST

/* --- LAMB, LARS --- */

enum { N = 1000 };

/* In place; `order`: the operands of the results. */
static struct made *make_update(enum op_kind kind, const char *shapes, enum dtype t, bool decay, struct optimizer_step step, const int *order)
{
    struct made *m = calls_make(kind, &(struct op_attrs){.decay = decay}, shapes, t);
    for (int i = 0; i < m->shapes.n_outputs; i++) m->c.output[i] = (void *)(uintptr_t)m->c.input[order[i]];
    m->step = step;
    return m;
}

static double norm(const double *x)
{
    double sum = 0;
    for (int i = 0; i < N; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

static void fill(enum dtype t, double *x, void *of, bool absolute)
{
    for (int i = 0; i < N; i++) {
        x[i] = calls_get(t, of, i);
        if (absolute) calls_set(t, of, i, x[i] = fabs(x[i]));
    }
}

static void compare(enum dtype t, const void *got, const double *want)
{
    for (int i = 0; i < N; i++)
        ck_assert_double_eq_tol(calls_get(t, got, i), want[i], (t == DTYPE_fp64 ? 1e-13 : 1e-5) * (1 + fabs(want[i])));
}

/* You et al. 2020, algorithm 2, in three steps. */
START_TEST(lamb_is_the_papers)
{
    static const int order[] = {0, 2, 3, 1};
    enum dtype t = _i & 1 ? DTYPE_fp64 : DTYPE_fp32;
    bool decay = _i & 2;
    struct optimizer_step s = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.3};
    struct made *made = make_update(OP_lamb, "1000 x 1000 x 1000 x 1000", t, decay, s, order);
    double p[N], m[N], v[N], u[N];
    fill(t, p, made->c.output[0], false), fill(t, m, made->c.output[1], false), fill(t, v, made->c.output[2], true);
    for (int step = 1; step <= 3; step++) {
        made->step.step = step;
        for (int i = 0; i < N; i++) {
            double g = sin(i * step);
            calls_set(t, made->c.output[3], i, g), g = calls_get(t, made->c.output[3], i);
            m[i] = 0.9 * m[i] + 0.1 * g, v[i] = 0.95 * v[i] + 0.05 * g * g;
            u[i] = m[i] / (1 - pow(0.9, step)) / (sqrt(v[i] / (1 - pow(0.95, step))) + 1e-6) + (decay ? 0.3 * p[i] : 0);
        }
        double ratio = norm(p) / norm(u);
        for (int i = 0; i < N; i++) p[i] -= 0.1 * ratio * u[i];
        calls_run(made);
    }
    compare(t, made->c.output[0], p), compare(t, made->c.output[1], m), compare(t, made->c.output[2], v);
    for (int i = 0; i < N; i++) ck_assert(calls_get(t, made->c.output[3], i) == 0);
    /* the change has the length lr·|p| */
    double before = norm(p), changed = 0;
    fill(t, p, made->c.output[0], false);
    for (int i = 0; i < N; i++) calls_set(t, made->c.output[3], i, cos(i));
    made->step.step = 4;
    calls_run(made);
    for (int i = 0; i < N; i++) changed += pow(calls_get(t, made->c.output[0], i) - p[i], 2);
    ck_assert_double_eq_tol(sqrt(changed), 0.1 * before, 1e-4 * before);
}
END_TEST

/* You et al. 2017, algorithm 1, in three steps. */
START_TEST(lars_is_the_papers)
{
    static const int order[] = {0, 2, 1};
    enum dtype t = _i & 1 ? DTYPE_fp64 : DTYPE_fp32;
    double decay = _i & 2 ? 0.3 : 0;
    struct optimizer_step s = {.lr = 2, .beta1 = 0.9, .weight_decay = 0.3, .trust = 0.01};
    struct made *made = make_update(OP_lars, "1000 x 1000 x 1000", t, decay > 0, s, order);
    double p[N], m[N], g[N];
    fill(t, p, made->c.output[0], false), fill(t, m, made->c.output[1], false);
    for (int step = 1; step <= 3; step++) {
        for (int i = 0; i < N; i++) calls_set(t, made->c.output[2], i, sin(i * step));
        fill(t, g, made->c.output[2], false);
        double rate = 0.01 * norm(p) / (norm(g) + decay * norm(p));
        for (int i = 0; i < N; i++) {
            m[i] = 0.9 * m[i] + 2 * rate * (g[i] + decay * p[i]);
            p[i] -= m[i];
        }
        calls_run(made);
    }
    compare(t, made->c.output[0], p), compare(t, made->c.output[1], m);
    for (int i = 0; i < N; i++) ck_assert(calls_get(t, made->c.output[2], i) == 0);
}
END_TEST

/* torch.optim.SGD with momentum, and with Nesterov's, in three steps; weight decay is part of the gradient. */
START_TEST(momentum_is_torchs)
{
    static const int order[] = {0, 2, 1};
    enum dtype t = _i & 1 ? DTYPE_fp64 : DTYPE_fp32;
    double decay = _i & 2 ? 0.3 : 0;
    bool nesterov = _i & 4;
    struct optimizer_step s = {.lr = 0.1, .beta1 = 0.9, .weight_decay = 0.3, .nesterov = nesterov};
    struct made *made = make_update(_i & 1 ? OP_flat_momentum : OP_momentum, "1000 x 1000 x 1000", t, decay > 0, s, order);
    double p[N], m[N], g[N];
    fill(t, p, made->c.output[0], false), fill(t, m, made->c.output[1], false);
    for (int step = 1; step <= 3; step++) {
        for (int i = 0; i < N; i++) calls_set(t, made->c.output[2], i, sin(i * step));
        fill(t, g, made->c.output[2], false);
        for (int i = 0; i < N; i++) {
            double d = g[i] + decay * p[i];
            m[i] = 0.9 * m[i] + d;
            p[i] -= 0.1 * (nesterov ? d + 0.9 * m[i] : m[i]);
        }
        calls_run(made);
    }
    compare(t, made->c.output[0], p), compare(t, made->c.output[1], m);
    for (int i = 0; i < N; i++) ck_assert(calls_get(t, made->c.output[2], i) == 0);
}
END_TEST

/* Chen et al. 2023, program 1, in three steps; the sign of 0 is 0. */
START_TEST(lion_is_the_papers)
{
    static const int order[] = {0, 2, 1};
    enum dtype t = _i & 1 ? DTYPE_fp64 : DTYPE_fp32;
    double decay = _i & 2 ? 0.3 : 0;
    struct optimizer_step s = {.lr = 0.1, .beta1 = 0.9, .beta2 = 0.75, .weight_decay = 0.3};
    struct made *made = make_update(_i & 1 ? OP_flat_lion : OP_lion, "1000 x 1000 x 1000", t, decay > 0, s, order);
    double p[N], m[N], g[N];
    calls_set(t, made->c.output[1], 0, 0);
    fill(t, p, made->c.output[0], false), fill(t, m, made->c.output[1], false);
    for (int step = 1; step <= 3; step++) {
        for (int i = 0; i < N; i++) calls_set(t, made->c.output[2], i, sin(i * step)); /* of element 0 always 0 */
        fill(t, g, made->c.output[2], false);
        for (int i = 0; i < N; i++) {
            double c = 0.9 * m[i] + 0.1 * g[i];
            p[i] -= 0.1 * (decay * p[i] + (c > 0 ? 1 : c < 0 ? -1 : 0));
            m[i] = 0.75 * m[i] + 0.25 * g[i];
        }
        calls_run(made);
    }
    compare(t, made->c.output[0], p), compare(t, made->c.output[1], m);
    for (int i = 0; i < N; i++) ck_assert(calls_get(t, made->c.output[2], i) == 0);
}
END_TEST

/* torch.nn.utils.clip_grad_norm_: min(1, max / (norm + 1e-6)); a loss scale is divided out; updates multiply by the factor. */
START_TEST(a_norm_above_the_maximum_is_scaled_to_it)
{
    static const struct {
        double squares, scale, norm, factor;
    } cases[] = {{9, 1, 3, 0.5 / (3 + 1e-6)}, {0.0625, 1, 0.25, 1}, {0, 1, 0, 1}, {9 * 64 * 64, 64, 3, 0.5 / (3 + 1e-6)}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        enum dtype t = _i ? DTYPE_fp64 : DTYPE_fp32;
        struct made *m = calls_make(OP_clip, &(struct op_attrs){0}, "1", t);
        float numbers[LOSS_SCALE_NUMBERS] = {[LOSS_SCALE_FACTOR] = (float)(1 / cases[k].scale)};
        m->step = (struct optimizer_step){.max_grad_norm = 0.5};
        if (cases[k].scale > 1) m->c.scale = numbers;
        calls_set(t, (void *)(uintptr_t)m->c.input[0], 0, cases[k].squares);
        calls_run(m);
        ck_assert_double_eq_tol(calls_get(t, m->c.output[0], 0), cases[k].norm, 1e-6);
        ck_assert_double_eq_tol(calls_get(t, m->c.output[0], 1), cases[k].factor, t == DTYPE_fp64 ? 1e-15 : 1e-7);
        struct made *u = calls_make(OP_sgd, &(struct op_attrs){0}, "1 x 1", t);
        u->c.output[0] = (void *)(uintptr_t)u->c.input[0], u->c.output[1] = (void *)(uintptr_t)u->c.input[1];
        u->step = (struct optimizer_step){.lr = 1};
        u->c.clip = (const char *)m->c.output[0] + dtype_bytes(t);
        calls_set(t, u->c.output[0], 0, 0), calls_set(t, u->c.output[1], 0, 8);
        calls_run(u);
        ck_assert_double_eq_tol(calls_get(t, u->c.output[0], 0), -8 * cases[k].factor, 1e-6);
    }
    struct made *none = calls_make(OP_square_sum, &(struct op_attrs){.accumulate = true, .blank = true}, "1000", DTYPE_fp64);
    calls_set(DTYPE_fp64, none->c.output[0], 0, 0.25);
    calls_run(none);
    ck_assert(calls_get(DTYPE_fp64, none->c.output[0], 0) == 0.25);
}
END_TEST

/* A parameter of zeros, as a bias at first, has the plain rate; without a gradient nothing changes. */
START_TEST(a_norm_of_zero_leaves_the_plain_rate)
{
    static const int lamb_order[] = {0, 2, 3, 1}, lars_order[] = {0, 2, 1};
    struct optimizer_step s = {.lr = 0.5, .beta1 = 0, .beta2 = 0, .eps = 0x1p-30, .trust = 0.01, .step = 1};
    struct made *lamb = make_update(OP_lamb, "2 x 2 x 2 x 2", DTYPE_fp64, false, s, lamb_order),
                *lars = make_update(OP_lars, "2 x 2 x 2", DTYPE_fp64, false, s, lars_order);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 3; k++) calls_set(DTYPE_fp64, lamb->c.output[k], i, 0), calls_set(DTYPE_fp64, lars->c.output[k], i, 0);
    double *lamb_p = lamb->c.output[0], *lars_p = lars->c.output[0], *g = lamb->c.output[3];
    g[0] = 4, g[1] = -1;
    calls_run(lamb);
    ck_assert_double_eq_tol(lamb_p[0], -0.5, 1e-8);
    ck_assert_double_eq_tol(lamb_p[1], 0.5, 1e-8);
    g = lars->c.output[2], g[0] = 4, g[1] = -1;
    calls_run(lars);
    ck_assert(lars_p[0] == -2 && lars_p[1] == 0.5);
    g[0] = g[1] = 0;
    calls_run(lars);
    ck_assert(lars_p[0] == -2 && lars_p[1] == 0.5);
}
END_TEST

Suite *kernel_norms_suite(void)
{
    Suite *suite = suite_create("kernel_norms");
    TCase *t = tcase_create("kernel_norms");
    tcase_add_checked_fixture(t, calls_begin, calls_end);
    tcase_add_loop_test(t, square_sum_adds_the_squares, 0, N_LENGTHS);
    tcase_add_test(t, small_squares_beside_a_large_sum_are_not_lost);
    tcase_add_test(t, what_is_not_finite_stays_so);
    tcase_add_loop_test(t, lamb_is_the_papers, 0, 4);
    tcase_add_loop_test(t, momentum_is_torchs, 0, 8);
    tcase_add_loop_test(t, lion_is_the_papers, 0, 4);
    tcase_add_loop_test(t, a_norm_above_the_maximum_is_scaled_to_it, 0, 2);
    tcase_add_loop_test(t, lars_is_the_papers, 0, 4);
    tcase_add_test(t, a_norm_of_zero_leaves_the_plain_rate);
    suite_add_tcase(suite, t);
    return suite;
}
