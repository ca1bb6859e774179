/* The host's kernels over images against their definitions, written out one number at a time, on random shapes. */
#include "tests/support/calls.h"

#include <stdio.h>

enum { DRAWS = 60 };

static uint64_t draw_seed, draw_at;
static int32_t draw(int32_t least, int32_t most)
{
    return least + (int32_t)rng_below(draw_seed, 7, draw_at++, (uint64_t)(most - least + 1));
}

struct shot { /* a stencil on an image that it fits on */
    struct stencil k;
    int32_t b, c, o, h, w, oh, ow;
};

static struct shot random_shot(uint64_t seed)
{
    struct shot s;
    int32_t size[2], places[2];
    draw_seed = seed, draw_at = 0;
    for (int i = 0; i < 2; i++) {
        s.k.kernel[i] = draw(1, 5);
        s.k.stride[i] = draw(1, 4);
        s.k.padding[i] = draw(0, s.k.kernel[i] - 1);
        size[i] = draw(1, 12);
        if (size[i] + 2 * s.k.padding[i] < s.k.kernel[i]) size[i] = s.k.kernel[i];
        s.k.size[i] = size[i];
        places[i] = (size[i] + 2 * s.k.padding[i] - s.k.kernel[i]) / s.k.stride[i] + 1;
    }
    s.b = draw(1, 3), s.c = draw(1, 4), s.o = draw(1, 5);
    s.h = size[0], s.w = size[1], s.oh = places[0], s.ow = places[1];
    return s;
}

/* x at (plane, y, x), outside of the image `beyond`. */
static double pixel(const struct shot *s, const double *x, int64_t plane, int32_t i, int32_t j,
                    double beyond)
{
    return i < 0 || j < 0 || i >= s->h || j >= s->w ? beyond : x[(plane * s->h + i) * s->w + j];
}

static double convolved(const struct shot *s, const double *x, const double *weight, int32_t b,
                        int32_t o, int32_t r, int32_t q)
{
    const struct stencil *k = &s->k;
    double sum = 0;
    for (int32_t c = 0; c < s->c; c++)
        for (int32_t i = 0; i < k->kernel[0]; i++)
            for (int32_t j = 0; j < k->kernel[1]; j++)
                sum += weight[((o * s->c + c) * k->kernel[0] + i) * k->kernel[1] + j] *
                       pixel(s, x, b * s->c + c, r * k->stride[0] - k->padding[0] + i,
                             q * k->stride[1] - k->padding[1] + j, 0);
    return sum;
}

START_TEST(a_convolution_is_what_its_definition_says)
{
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        struct shot s = random_shot(seed);
        struct op_attrs a = {.stencil = s.k};
        char text[96];
        snprintf(text, sizeof text, "%d,%d,%d,%d x %d,%d,%d,%d", s.b, s.c, s.h, s.w, s.o, s.c,
                 s.k.kernel[0], s.k.kernel[1]);
        struct made *m = calls_make(OP_conv2d, &a, text, DTYPE_fp64);
        calls_run_checked(m);
        const double *y = m->c.output[0];
        ck_assert_int_eq(calls_output_size(m, 0), (int64_t)s.b * s.o * s.oh * s.ow);
        for (int32_t b = 0; b < s.b; b++)
            for (int32_t o = 0; o < s.o; o++)
                for (int32_t r = 0; r < s.oh; r++)
                    for (int32_t q = 0; q < s.ow; q++, y++) {
                        double want = convolved(&s, m->c.input[0], m->c.input[1], b, o, r, q);
                        ck_assert_msg(fabs(*y - want) <= 1e-12 * (1 + fabs(want)),
                                      "%s: %.17g, not %.17g", text, *y, want);
                    }
    }
}
END_TEST

/* max or mean of what a window sees, padding being -infinity or 0 */
static double pooled(const struct shot *s, const double *x, int64_t plane, int32_t r, int32_t q,
                     bool mean)
{
    const struct stencil *k = &s->k;
    double sum = 0, most = -INFINITY;
    for (int32_t i = 0; i < k->kernel[0]; i++)
        for (int32_t j = 0; j < k->kernel[1]; j++) {
            int32_t at = r * k->stride[0] - k->padding[0] + i;
            int32_t to = q * k->stride[1] - k->padding[1] + j;
            sum += pixel(s, x, plane, at, to, 0);
            most = fmax(most, pixel(s, x, plane, at, to, -INFINITY));
        }
    return mean ? sum / (k->kernel[0] * k->kernel[1]) : most;
}

START_TEST(pooling_is_the_largest_or_the_mean_of_what_a_window_sees)
{
    for (uint64_t seed = 0; seed < 2 * DRAWS; seed++) {
        struct shot s = random_shot(seed / 2);
        struct op_attrs a = {.stencil = s.k};
        bool mean = seed % 2;
        char text[96];
        snprintf(text, sizeof text, "%d,%d,%d,%d", s.b, s.c, s.h, s.w);
        struct made *m = calls_make(mean ? OP_avg_pool2d : OP_max_pool2d, &a, text, DTYPE_fp64);
        calls_run_checked(m);
        const double *y = m->c.output[0];
        for (int64_t plane = 0; plane < (int64_t)s.b * s.c; plane++)
            for (int32_t r = 0; r < s.oh; r++)
                for (int32_t q = 0; q < s.ow; q++, y++)
                    ck_assert_double_eq_tol(*y, pooled(&s, m->c.input[0], plane, r, q, mean),
                                            1e-14);
    }
}
END_TEST

START_TEST(of_equal_largest_numbers_the_first_one_has_the_gradient)
{
    struct op_attrs a = {.stencil = {{2, 2}, {2, 2}, {0, 0}, {2, 4}}};
    struct made *m = calls_make(OP_max_pool2d, &a, "1,1,2,4", DTYPE_fp64);
    static const double x[] = {1, 3, 5, 5, 3, 3, 5, 5};
    for (int i = 0; i < 8; i++) calls_set(DTYPE_fp64, (void *)(uintptr_t)m->c.input[0], i, x[i]);
    calls_run(m);
    const double *index = m->c.output[1];
    ck_assert(index[0] == 1 && index[1] == 0);
    calls_set(DTYPE_fp64, (void *)(uintptr_t)m->c.input[0], 4, NAN);
    calls_run(m);
    ck_assert(isnan(((const double *)m->c.output[0])[0])); /* a diverged run is seen */
}
END_TEST

/* With one group it is a layer norm of the whole image, whose weights are 1 and 0. */
START_TEST(group_norm_has_mean_0_and_deviation_1_in_each_group)
{
    enum { B = 2, C = 6, N = 35, GROUPS = 3 };
    struct op_attrs a = {.groups = GROUPS};
    struct made *m = calls_make(OP_group_norm, &a, "2,6,5,7 x 6 x 6", DTYPE_fp64);
    calls_run_checked(m);
    const double *y = m->c.output[0], *gamma = m->c.input[1], *beta = m->c.input[2];
    for (int run = 0; run < B * GROUPS; run++) {
        double sum = 0, squares = 0;
        for (int k = 0; k < C / GROUPS; k++)
            for (int i = 0; i < N; i++, y++) {
                int channel = run % GROUPS * (C / GROUPS) + k;
                double normal = (*y - beta[channel]) / gamma[channel];
                sum += normal, squares += normal * normal;
            }
        ck_assert_double_eq_tol(sum, 0, 1e-10);
        ck_assert_double_eq_tol(squares / (N * C / GROUPS), 1, 1e-10);
    }
}
END_TEST

START_TEST(rows_hold_the_channels_of_a_place)
{
    struct op_attrs a = {.stencil.size = {5, 7}};
    struct made *m = calls_make(OP_to_rows, &a, "2,33,5,7", DTYPE_fp64);
    calls_run_checked(m);
    for (int b = 0; b < 2; b++)
        for (int place = 0; place < 35; place++)
            for (int channel = 0; channel < 33; channel++)
                ck_assert(((const double *)m->c.output[0])[(b * 35 + place) * 33 + channel] ==
                          ((const double *)m->c.input[0])[(b * 33 + channel) * 35 + place]);
}
END_TEST

START_TEST(a_token_stands_in_front_of_every_sequence_and_is_taken_off_again)
{
    struct op_attrs a = {0}, front = {.dim = 1, .sequences = 1},
                    rest = {.dim = 1, .start = 1, .sequences = 3};
    struct made *m = calls_make(OP_prepend, &a, "2,3,4 x 1,4", DTYPE_fp64);
    calls_run_checked(m);
    for (int k = 0; k < 2; k++) {
        struct made *cut = arena_alloc(memory, 1, sizeof *cut);
        cut->attrs = k ? rest : front;
        cut->shapes.n_inputs = 1;
        cut->shapes.input[0] = m->shapes.output[0];
        cut->c.input[0] = m->c.output[0];
        calls_finish(cut, OP_slice, DTYPE_fp64);
        calls_run_checked(cut);
        const double *got = cut->c.output[0], *x = m->c.input[0], *token = m->c.input[1];
        for (int i = 0; i < calls_output_size(cut, 0); i++)
            ck_assert(got[i] == (k ? x[i] : token[i % 4]));
    }
}
END_TEST

Suite *kernel_images_suite(void)
{
    Suite *s = suite_create("kernel_images");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, calls_begin, calls_end);
    tcase_add_test(t, a_convolution_is_what_its_definition_says);
    tcase_add_test(t, pooling_is_the_largest_or_the_mean_of_what_a_window_sees);
    tcase_add_test(t, of_equal_largest_numbers_the_first_one_has_the_gradient);
    tcase_add_test(t, group_norm_has_mean_0_and_deviation_1_in_each_group);
    tcase_add_test(t, rows_hold_the_channels_of_a_place);
    tcase_add_test(t, a_token_stands_in_front_of_every_sequence_and_is_taken_off_again);
    suite_add_tcase(s, t);
    return s;
}
