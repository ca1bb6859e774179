/* Kernels that no operator of the table asks for by itself: casts between numbers, sums of squares, updates that are scaled or left
 * out. On the stand-in, whose kernels work on any memory. */
#include "core/base/rng.h"
#include "core/graph/half.h"
#include "exec/cuda/kernels_cross_entropy.h"
#include "exec/cuda/kernels_elementwise.h"
#include "exec/cuda/kernels_sums.h"
#include "exec/cuda/kernels_update.h"
#include "tests/support/narrow.h"
#include "tests/support/suites.h"

#include <math.h>

enum { N = 1003, ROOM = 16384 };

static const enum dtype dtype_of[CUDA_DTYPE_COUNT] = {DTYPE_fp32, DTYPE_fp64, DTYPE_bf16,
                                                       DTYPE_fp16};

/* Room for N of any number, at a multiple of 64. */
static void *room(int which)
{
    static _Alignas(64) unsigned char all[4][ROOM];
    return all[which];
}

static void done(cudaError_t e)
{
    ck_assert_int_eq(e, cudaSuccess);
    ck_assert_int_eq(cudaDeviceSynchronize(), cudaSuccess);
}

/* Numbers of all sizes that a half may round up, down, to nothing or to infinity. */
static double drawn(uint64_t i)
{
    double v = rng_normal(3, 1, i) * pow(2, (double)rng_below(3, 2, i, 40) - 20);
    return i % 97 == 0 ? v * 1e6 : v;
}

START_TEST(a_cast_rounds_once_to_the_nearest)
{
    enum cuda_dtype from = (enum cuda_dtype)(_i / CUDA_DTYPE_COUNT),
                     to = (enum cuda_dtype)(_i % CUDA_DTYPE_COUNT);
    enum dtype x_type = dtype_of[from], y_type = dtype_of[to];
    for (int add = 0; add < 2; add++)
        for (int64_t shift = 0; shift < 2; shift++) {
            unsigned char *x = (unsigned char *)room(0) + shift * dtype_bytes(x_type),
                          *y = (unsigned char *)room(1) + shift * dtype_bytes(y_type);
            for (int64_t i = 0; i < N; i++) {
                narrow_set(x_type, x, i, drawn((uint64_t)i));
                narrow_set(y_type, y, i, 3);
            }
            done(cuda_cast(from, x, to, y, add, N, NULL));
            for (int64_t i = 0; i < N; i++) {
                double v = narrow_get(x_type, x, i), got = narrow_get(y_type, y, i);
                /* sums and halves of fp64 are taken in fp32 */
                if (y_type != DTYPE_fp64) v = (double)(float)v;
                double want = add ? v + 3 : v;
                if (dtype_is_half(y_type)) want = (double)(float)want;
                ck_assert_msg(got == narrow_value(y_type, want), "%s to %s: %g became %g",
                              dtype_name(x_type), dtype_name(y_type), v, got);
            }
        }
}
END_TEST

START_TEST(what_is_no_number_stays_none_and_what_is_too_large_becomes_infinite)
{
    const float x[] = {NAN, INFINITY, -INFINITY, 1e30f, -65520.0f, 0.0f};
    for (int k = 0; k < 2; k++) {
        enum cuda_dtype to = k ? CUDA_fp16 : CUDA_bf16;
        done(cuda_cast(CUDA_fp32, x, to, room(1), false, 6, NULL));
        double y[6];
        for (int i = 0; i < 6; i++) y[i] = narrow_get(dtype_of[to], room(1), i);
        ck_assert(isnan(y[0]) && isinf(y[1]) && y[1] > 0 && isinf(y[2]) && y[2] < 0);
        ck_assert(k ? isinf(y[3]) && isinf(y[4]) : isfinite(y[3]) && isfinite(y[4]));
        ck_assert_double_eq(y[5], 0);
    }
}
END_TEST

/* The host's conversions and the device's are the same. */
START_TEST(halves_are_those_of_the_host)
{
    float *x = room(0);
    uint16_t *y = room(1);
    for (int64_t i = 0; i < N; i++) x[i] = (float)drawn((uint64_t)i);
    for (int k = 0; k < 2; k++) {
        done(cuda_cast(CUDA_fp32, x, k ? CUDA_fp16 : CUDA_bf16, y, false, N, NULL));
        for (int64_t i = 0; i < N; i++)
            ck_assert_uint_eq(y[i], half_of(k ? DTYPE_fp16 : DTYPE_bf16, x[i]));
    }
}
END_TEST

START_TEST(squares_of_all_elements_are_summed_and_added)
{
    enum dtype t = dtype_of[_i];
    static const int64_t sizes[] = {0, 1, 7, N};
    double *out = room(2);
    ck_assert_uint_le(cuda_squares_scratch(N), ROOM);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        double want = 0;
        for (int64_t i = 0; i < sizes[k]; i++) {
            double v = narrow_value(t, rng_normal(4, 1, (uint64_t)i));
            narrow_set(t, room(0), i, v);
            want += v * v;
        }
        for (int add = 0; add < 2; add++)
            done(cuda_squares((enum cuda_dtype)_i, room(0), sizes[k], add, out, room(1), NULL));
        ck_assert_double_le(fabs(*out - 2 * want), 1e-6 * want);
    }
}
END_TEST

START_TEST(one_element_that_is_no_number_shows_in_the_sum_of_squares)
{
    enum dtype t = dtype_of[_i];
    double *out = room(2);
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int64_t i = 0; i < N; i++) narrow_set(t, room(0), i, 1);
    for (int k = 0; k < 3; k++)
        for (int64_t at = 0; at < N; at += N / 5) {
            narrow_set(t, room(0), at, bad[k]);
            done(cuda_squares((enum cuda_dtype)_i, room(0), N, false, out, room(1), NULL));
            ck_assert_msg(!isfinite(*out), "%g at %d gives %g", bad[k], (int)at, *out);
            narrow_set(t, room(0), at, 1);
        }
    done(cuda_squares((enum cuda_dtype)_i, room(0), N, false, out, room(1), NULL));
    ck_assert_double_eq(*out, N);
}
END_TEST

/* --- long runs: what goes by whole tiles, and what is left of one --- */

START_TEST(whole_tiles_and_what_is_left_are_alike)
{
    enum dtype t = dtype_of[_i];
    int64_t size = dtype_bytes(t), tile = 8192 / size;
    static const int64_t beside[] = {-1, 0, 1, 9};
    for (int64_t shift = 0; shift < 2; shift++)
        for (int k = 0; k < 4; k++) {
            int64_t n = tile + beside[k];
            unsigned char *x[3];
            for (int o = 0; o < 3; o++) x[o] = (unsigned char *)room(o) + shift * size;
            for (int64_t i = 0; i <= n; i++) {
                narrow_set(t, x[0], i, (double)(i % 13));
                narrow_set(t, x[1], i, (double)(i % 7) - 3);
                narrow_set(t, x[2], i, NAN);
            }
            done(cuda_flat(CUDA_FLAT_add, (enum cuda_dtype)_i, x[0], x[1], NULL, 0, x[2], NULL, n, NULL));
            for (int64_t i = 0; i < n; i++)
                ck_assert_double_eq(narrow_get(t, x[2], i), (double)(i % 13 + i % 7 - 3));
            ck_assert(isnan(narrow_get(t, x[2], n)));
        }
}
END_TEST

/* --- rows of logits --- */

enum { LOGITS = 70, ROWS = 2, PACK_MAX = 8 };

/* log Σ exp of row r of logits that are all 1 but for n of the first row, from the given one on, which are v. */
static double log_sum(int number, int from, int n, double v, int r)
{
    enum dtype t = dtype_of[number];
    static const int32_t targets[ROWS] = {LOGITS - 1, LOGITS - 1};
    static double row_loss[ROWS];
    struct cross_entropy_call c = {.dtype = (enum cuda_dtype)number,
                                   .rows = ROWS,
                                   .n = LOGITS,
                                   .row = LOGITS,
                                   .logits = room(0),
                                   .targets = targets,
                                   .lse = room(1),
                                   .wide_lse = true,
                                   .row_loss = row_loss};
    for (int i = 0; i < ROWS * LOGITS; i++)
        narrow_set(t, room(0), i, i >= from && i < from + n ? v : 1);
    done(cuda_cross_entropy_rows(&c, false, NULL));
    return narrow_get(t == DTYPE_fp64 ? t : DTYPE_fp32, room(1), r);
}

/* Also where all that a thread has of a row is none. */
START_TEST(a_logit_that_is_no_number_shows_in_its_row_alone)
{
    for (int n = 1; n <= PACK_MAX; n += PACK_MAX - 1)
        for (int from = 0; from + n <= LOGITS; from++) {
            ck_assert_msg(isnan(log_sum(_i, from, n, NAN, 0)), "%d from %d on", n, from);
            ck_assert_double_eq_tol(log_sum(_i, from, n, NAN, 1), 1 + log(LOGITS), 1e-5);
        }
}
END_TEST

START_TEST(logits_of_minus_infinity_are_as_if_they_were_not_there)
{
    for (int n = 1; n < LOGITS; n++)
        ck_assert_double_eq_tol(log_sum(_i, 0, n, -INFINITY, 0), 1 + log(LOGITS - n), 1e-5);
    double none = log_sum(_i, 0, LOGITS, -INFINITY, 0);
    ck_assert(isinf(none) && none < 0);
}
END_TEST

/* --- updates --- */

enum { COUNT = 37 };

struct state {
    _Alignas(16) float p[COUNT + 3], m[COUNT + 3], v[COUNT + 3], g[COUNT + 3];
    _Alignas(16) uint16_t copy[COUNT + 3];
};

static void a_state(struct state *s, float gradient)
{
    for (int i = 0; i < COUNT; i++) {
        s->p[i] = (float)rng_normal(5, 1, (uint64_t)i);
        s->m[i] = (float)rng_normal(5, 2, (uint64_t)i);
        s->v[i] = fabsf((float)rng_normal(5, 3, (uint64_t)i));
        s->g[i] = gradient * (float)rng_normal(5, 4, (uint64_t)i);
    }
    memset(s->copy, 0xff, sizeof s->copy);
}

#define NUMBERS_OF_ADAMW .beta1 = 0.9, .beta2 = 0.99, .keep = 0.999, .rate = 0.01, .root = 0.5, .eps = 1e-8

static void update_clipped(struct state *s, const float *factor, const float *clip, bool adam)
{
    struct cuda_optimizer u = {.rule = adam ? CUDA_ADAM : CUDA_SGD,
                               .dtype = CUDA_fp32,
                               .p = s->p,
                               .m = adam ? s->m : NULL,
                               .v = adam ? s->v : NULL,
                               .g = s->g,
                               .copy = s->copy,
                               .copy_dtype = CUDA_bf16,
                               .factor = factor,
                               .clip = clip,
                               NUMBERS_OF_ADAMW};
    done(cuda_update(&u, COUNT, NULL));
}

static void update(struct state *s, const float *factor, bool adam) { update_clipped(s, factor, NULL, adam); }

/* Powers of two, so that the order of products changes no bit. */
START_TEST(a_clip_is_a_second_factor)
{
    static struct state a, b;
    const float quarter = 0.25f, eighth = 0.125f, product = 0.03125f;
    a_state(&a, 1);
    a_state(&b, 1);
    update_clipped(&a, &quarter, &eighth, _i);
    update(&b, &product, _i);
    ck_assert_mem_eq(&a, &b, sizeof a);
    a_state(&a, 1);
    a_state(&b, 1);
    update_clipped(&a, NULL, &eighth, _i);
    update(&b, &eighth, _i);
    ck_assert_mem_eq(&a, &b, sizeof a);
}
END_TEST

START_TEST(a_factor_of_the_gradient_is_as_if_the_gradient_had_it)
{
    static struct state a, b;
    const float quarter = 0.25f;
    a_state(&a, 1);
    a_state(&b, quarter);
    update(&a, &quarter, _i);
    update(&b, NULL, _i);
    ck_assert_mem_eq(&a, &b, sizeof a);
    for (int i = 0; i < COUNT; i++) {
        ck_assert_float_eq(a.g[i], 0);
        ck_assert_uint_eq(a.copy[i], half_of(DTYPE_bf16, a.p[i]));
    }
}
END_TEST

START_TEST(a_factor_that_is_no_number_leaves_all_but_the_gradient)
{
    static const float factors[] = {NAN, INFINITY, -INFINITY};
    static struct state a, b;
    for (int k = 0; k < 3; k++) {
        a_state(&a, 1);
        a_state(&b, 1);
        update(&a, &factors[k], _i);
        ck_assert_mem_eq(a.p, b.p, sizeof a.p);
        ck_assert_mem_eq(a.m, b.m, sizeof a.m);
        ck_assert_mem_eq(a.v, b.v, sizeof a.v);
        for (int i = 0; i < COUNT; i++) {
            ck_assert_float_eq(a.g[i], 0);
            ck_assert_uint_eq(a.copy[i], half_of(DTYPE_bf16, a.p[i]));
        }
    }
}
END_TEST

enum { RUN = 4099, PIECE = 1031 }; /* two tiles and a bit; pieces that begin anywhere */

struct long_run {
    _Alignas(16) float p[RUN], m[RUN], v[RUN], g[RUN];
    _Alignas(16) uint16_t copy[RUN];
};

static void a_long_run(struct long_run *r)
{
    for (int i = 0; i < RUN; i++) {
        r->p[i] = (float)rng_normal(6, 1, (uint64_t)i), r->m[i] = (float)rng_normal(6, 2, (uint64_t)i);
        r->v[i] = fabsf((float)rng_normal(6, 3, (uint64_t)i)), r->g[i] = (float)rng_normal(6, 4, (uint64_t)i);
    }
    memset(r->copy, 0xff, sizeof r->copy);
}

static void update_run(struct long_run *r, int from, int n, bool adam)
{
    struct cuda_optimizer u = {.rule = adam ? CUDA_ADAM : CUDA_SGD,
                               .dtype = CUDA_fp32,
                               .p = r->p + from,
                               .m = adam ? r->m + from : NULL,
                               .v = adam ? r->v + from : NULL,
                               .g = r->g + from,
                               .copy = r->copy + from,
                               .copy_dtype = CUDA_fp16,
                               NUMBERS_OF_ADAMW};
    done(cuda_update(&u, n, NULL));
}

START_TEST(a_long_runs_update_is_that_of_its_pieces)
{
    static struct long_run whole, pieces;
    a_long_run(&whole);
    a_long_run(&pieces);
    update_run(&whole, 0, RUN, _i);
    for (int from = 0; from < RUN; from += PIECE)
        update_run(&pieces, from, from + PIECE < RUN ? PIECE : RUN - from, _i);
    ck_assert_mem_eq(&whole, &pieces, sizeof whole);
    for (int i = 0; i < RUN; i++) ck_assert_uint_eq(whole.copy[i], half_of(DTYPE_fp16, whole.p[i]));
}
END_TEST

START_TEST(numbers_that_no_update_works_on_are_refused)
{
    struct cuda_optimizer narrow = {.dtype = CUDA_bf16, .p = room(0), .g = room(1)};
    struct cuda_optimizer copied = {
        .dtype = CUDA_fp64, .p = room(0), .g = room(1), .copy = room(2)};
    ck_assert_int_eq(cuda_update(&narrow, 1, NULL), cudaErrorInvalidValue);
    ck_assert_int_eq(cuda_update(&copied, 1, NULL), cudaErrorInvalidValue);
    ck_assert_int_eq(cuda_update(&narrow, 0, NULL), cudaSuccess);
}
END_TEST

Suite *cuda_launchers_suite(void)
{
    Suite *suite = suite_create("cuda_launchers");
    TCase *c = tcase_create("cuda_launchers");
    tcase_add_loop_test(c, a_cast_rounds_once_to_the_nearest, 0,
                        CUDA_DTYPE_COUNT * CUDA_DTYPE_COUNT);
    tcase_add_test(c, what_is_no_number_stays_none_and_what_is_too_large_becomes_infinite);
    tcase_add_test(c, halves_are_those_of_the_host);
    tcase_add_loop_test(c, squares_of_all_elements_are_summed_and_added, 0, CUDA_DTYPE_COUNT);
    tcase_add_loop_test(c, one_element_that_is_no_number_shows_in_the_sum_of_squares, 0,
                        CUDA_DTYPE_COUNT);
    tcase_add_loop_test(c, whole_tiles_and_what_is_left_are_alike, 0, CUDA_DTYPE_COUNT);
    tcase_add_loop_test(c, a_logit_that_is_no_number_shows_in_its_row_alone, 0, CUDA_DTYPE_COUNT);
    tcase_add_loop_test(c, logits_of_minus_infinity_are_as_if_they_were_not_there, 0,
                        CUDA_DTYPE_COUNT);
    tcase_add_loop_test(c, a_clip_is_a_second_factor, 0, 2);
    tcase_add_loop_test(c, a_factor_of_the_gradient_is_as_if_the_gradient_had_it, 0, 2);
    tcase_add_loop_test(c, a_factor_that_is_no_number_leaves_all_but_the_gradient, 0, 2);
    tcase_add_loop_test(c, a_long_runs_update_is_that_of_its_pieces, 0, 2);
    tcase_add_test(c, numbers_that_no_update_works_on_are_refused);
    suite_add_tcase(suite, c);
    return suite;
}
