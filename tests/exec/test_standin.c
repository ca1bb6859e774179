/* tests/exec/test_standin.c - kernels on CPU threads do what CUDA says they do, and say so where a kernel does what it must not. */
#include "tests/standin/emulator.h"
#include "tests/standin/kernels_try.h"
#include "tests/standin/narrow.h"

#include "core/base/rng.h"

#include "tests/standin/dies.h"
#include "tests/support/suites.h"

#include <math.h>

enum { SEEDS = 6 };

static void good(cudaError_t e) { ck_assert_msg(e == cudaSuccess, "%s", cudaGetErrorString(e)); }
static void done(void) { good(cudaStreamSynchronize(NULL)); }

START_TEST(every_thread_of_a_grid_knows_where_it_is)
{
    static uint64_t out[4096];
    for (uint64_t c = 0; c < 60; c++) {
        struct dim3 grid = {1 + (unsigned)rng_below(1, c, 0, 4),
                            1 + (unsigned)rng_below(1, c, 1, 3),
                            1 + (unsigned)rng_below(1, c, 2, 3)};
        struct dim3 block = {1 + (unsigned)rng_below(1, c, 3, 8),
                             1 + (unsigned)rng_below(1, c, 4, 4),
                             1 + (unsigned)rng_below(1, c, 5, 3)};
        standin_order(c % 3);
        good(try_coordinates(grid, block, out, NULL));
        done();
        uint64_t i = 0;
        for (uint64_t bz = 0; bz < grid.z; bz++)
            for (uint64_t by = 0; by < grid.y; by++)
                for (uint64_t bx = 0; bx < grid.x; bx++)
                    for (uint64_t z = 0; z < block.z; z++)
                        for (uint64_t y = 0; y < block.y; y++)
                            for (uint64_t x = 0; x < block.x; x++, i++)
                                ck_assert_uint_eq(out[i], bz << 40 | by << 32 | bx << 24 | z << 16 |
                                                              y << 8 | x);
    }
}
END_TEST

START_TEST(sums_by_warps_and_blocks_are_exact_in_every_order)
{
    enum { N = 3001, BLOCKS = 3 };
    static float in[N];
    for (int i = 0; i < N; i++) in[i] = (float)(i % 7);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        float out[BLOCKS];
        standin_order(seed);
        good(try_block_sums(CUDA_fp32, in, out, N, BLOCKS, NULL));
        done();
        float sum = 0;
        for (int i = 0; i < BLOCKS; i++) sum += out[i];
        ck_assert_float_eq(sum, 3001 / 7 * 21 + 0 + 1 + 2 + 3 + 4); /* 3001 = 428·7 + 5 */
    }
}
END_TEST

START_TEST(narrow_numbers_are_summed_wide)
{
    enum { N = 2048 };
    static uint16_t bf16[N], fp16[N];
    uint16_t sum;
    for (int i = 0; i < N; i++) bf16[i] = narrow_to_bf16(1), fp16[i] = narrow_to_fp16(1);
    /* Added one by one in bf16 they would stay at 256. */
    good(try_block_sums(CUDA_bf16, bf16, &sum, N, 1, NULL));
    done();
    ck_assert_float_eq(narrow_from_bf16(sum), N);
    good(try_block_sums(CUDA_fp16, fp16, &sum, N, 1, NULL));
    done();
    ck_assert_float_eq(narrow_from_fp16(sum), N);
}
END_TEST

START_TEST(tiles_in_shared_memory_turn_matrices)
{
    static float in[40 * 40], out[40 * 40];
    for (uint64_t c = 0; c < 40; c++) {
        int rows = 1 + (int)rng_below(2, c, 0, 40), columns = 1 + (int)rng_below(2, c, 1, 40);
        for (int i = 0; i < rows * columns; i++) in[i] = (float)i;
        standin_order(c % SEEDS);
        good(try_turn(in, out, rows, columns, NULL));
        done();
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < columns; j++)
                ck_assert_float_eq(out[j * rows + i], in[i * columns + j]);
    }
}
END_TEST

/* How many of a seed's runs reverse n numbers. */
static int reversals(int whole)
{
    enum { N = 96 };
    float in[N], out[N];
    int right = 0;
    for (int i = 0; i < N; i++) in[i] = (float)i;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        standin_order(seed);
        good(try_reverse(in, out, N, whole, NULL));
        done();
        int same = 0;
        for (int i = 0; i < N; i++) same += out[i] == in[N - 1 - i];
        right += same == N;
    }
    return right;
}

START_TEST(a_barrier_makes_what_a_block_wrote_seen_in_every_order)
{
    ck_assert_int_eq(reversals(1), SEEDS);
}
END_TEST

START_TEST(without_its_barrier_a_kernel_reads_what_nobody_wrote)
{
    ck_assert_int_eq(reversals(0), 0);
}
END_TEST

START_TEST(lanes_shuffle_and_vote_as_cuda_says)
{
    enum { N = 64 };
    static int out[7 * N];
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        standin_order(seed);
        good(try_lanes(out, N, NULL));
        done();
        for (int i = 0; i < N; i++) {
            int lane = i % 32;
            ck_assert_int_eq(out[i], lane ^ 5);
            ck_assert_int_eq(out[N + i], lane + 3 < 32 ? lane + 3 : lane);
            ck_assert_int_eq(out[2 * N + i], lane >= 2 ? lane - 2 : lane);
            ck_assert_int_eq(out[3 * N + i], 9);
            ck_assert_int_eq(out[4 * N + i], lane % 8 < 7 ? lane + 1 : lane);
            ck_assert_int_eq(out[5 * N + i], (int)0xaaaaaaaau);
            ck_assert_int_eq(out[6 * N + i], N / 2);
        }
    }
}
END_TEST

START_TEST(shared_memory_that_nobody_wrote_is_no_number_in_every_block)
{
    uint32_t out[2] = {0};
    good(try_unwritten(out, 3, NULL));
    done();
    ck_assert_uint_eq(out[0], 0xffffffffu);
    ck_assert_uint_eq(out[1], 0xffffffffu);
}
END_TEST

START_TEST(copies_to_shared_memory_arrive_when_they_are_waited_for)
{
    enum { N = 10 };
    float in[N], out[N];
    for (int i = 0; i < N; i++) in[i] = (float)i;
    for (int wait = 0; wait <= 2; wait++) { /* groups that have come */
        good(try_copies(in, out, N, wait, NULL));
        done();
        for (int i = 0; i < N; i++)
            if (i < wait * N / 2)
                ck_assert_float_eq(out[i], in[i]);
            else
                ck_assert(isnan(out[i]));
    }
}
END_TEST

START_TEST(integers_are_counted_by_all_threads)
{
    for (uint64_t seed = 0; seed < 2; seed++) {
        unsigned count = 5;
        standin_order(seed);
        good(try_count(&count, 7, 96, NULL));
        done();
        ck_assert_uint_eq(count, 5 + 7 * 96);
    }
}
END_TEST

static void make_mistake(int mistake)
{
    (void)try_mistake((enum try_mistake)mistake, NULL);
    (void)cudaStreamSynchronize(NULL);
}

START_TEST(what_cuda_leaves_undefined_ends_with_its_reason)
{
    static const char *const said[] = {
        [TRY_BARRIER_MISSED] = "thread (7,0,0) missed: it has ended",
        [TRY_BARRIERS_TWO] = "while others wait at that of line",
        [TRY_MASK_LACKS_CALLER] = "which lacks the calling lane 1",
        [TRY_MASK_NAMES_NOBODY] = "but its warp has 8 lanes",
        [TRY_MASKS_DIFFER] = "with mask ffff0001, while lane 0 of its warp waits",
        [TRY_OPERATIONS_DIFFER] = "waits in __syncwarp of line",
        [TRY_SHUFFLE_OUTSIDE] = "reads lane 20, which is not in mask 0000ffff",
        [TRY_WARP_MISSED] = "thread (3,0,0) missed: it waits at the barrier of line",
    };
    char text[512];
    for (int i = 0; i < (int)(sizeof said / sizeof *said); i++) {
        ck_assert_msg(aborts_saying(make_mistake, i, text, sizeof text), "mistake %d: '%s'", i,
                      text);
        ck_assert_msg(strstr(text, "stand-in: kernel mistakes, block (0,0,0)") != NULL, "%s", text);
        ck_assert_msg(strstr(text, said[i]) != NULL, "mistake %d: '%s'", i, text);
    }
}
END_TEST

START_TEST(a_trap_ends_its_launch_and_loses_the_device)
{
    int out[3] = {0};
    good(try_trap(out, NULL));
    ck_assert_int_eq(cudaStreamSynchronize(NULL), cudaErrorLaunchFailure);
    ck_assert_int_eq(out[0], 1);
    ck_assert_int_eq(out[1], 0);
    ck_assert_int_eq(out[2], 0);
    ck_assert_int_eq(try_trap(out, NULL), cudaErrorLaunchFailure);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorLaunchFailure);
}
END_TEST

START_TEST(launches_that_a_gpu_refuses_are_refused)
{
    unsigned count = 0;
    ck_assert_int_eq(try_count(&count, 0, 32, NULL), cudaErrorInvalidConfiguration);
    ck_assert_int_eq(try_count(&count, 1, 0, NULL), cudaErrorInvalidConfiguration);
    ck_assert_int_eq(try_count(&count, 1, 1025, NULL), cudaErrorInvalidConfiguration);
    ck_assert_int_eq(cudaGetLastError(), cudaErrorInvalidConfiguration);
    ck_assert_int_eq(cudaGetLastError(), cudaSuccess);
    good(try_shared(49152, 0, NULL));
    ck_assert_int_eq(try_shared(49156, 0, NULL), cudaErrorInvalidValue);
    ck_assert_int_eq(try_shared(1 << 20, 1, NULL), cudaErrorInvalidValue);
    good(try_shared(200000, 1, NULL));
    done();
    ck_assert_uint_eq(count, 0);
}
END_TEST

/* --- narrow numbers --- */

/* Hundreds of thousands of these: only the first that is wrong is told. */
static int expect(int wrong, uint32_t of, uint16_t got, uint32_t expected)
{
    if (got != expected && !wrong)
        printf("of %08x: %04x instead of %04x\n", (unsigned)of, (unsigned)got, (unsigned)expected);
    return wrong + (got != expected);
}

START_TEST(every_narrow_number_survives_being_widened)
{
    int wrong = 0;
    for (uint32_t i = 0; i < 65536; i++) {
        float bf16 = narrow_from_bf16((uint16_t)i), fp16 = narrow_from_fp16((uint16_t)i);
        if (!isnan(bf16)) wrong = expect(wrong, i, narrow_to_bf16(bf16), i);
        if (!isnan(fp16)) wrong = expect(wrong, i, narrow_to_fp16(fp16), i);
    }
    ck_assert_int_eq(wrong, 0);
    ck_assert(isnan(narrow_from_bf16(narrow_to_bf16(NAN))));
    ck_assert(isnan(narrow_from_fp16(narrow_to_fp16(NAN))));
}
END_TEST

START_TEST(halfway_between_two_narrow_numbers_the_even_one_is_taken)
{
    int wrong = 0;
    for (uint32_t i = 0; i < 0x7c00 - 1; i++) {
        uint32_t even = i % 2 ? i + 1 : i;
        float a = narrow_from_fp16((uint16_t)i), b = narrow_from_fp16((uint16_t)(i + 1));
        float middle = (a + b) / 2; /* exact: fp32 has 13 bits more */
        wrong = expect(wrong, i, narrow_to_fp16(middle), even);
        wrong = expect(wrong, i, narrow_to_fp16(nextafterf(middle, 0)), i);
        wrong = expect(wrong, i, narrow_to_fp16(nextafterf(middle, INFINITY)), i + 1);
        wrong = expect(wrong, i, narrow_to_fp16(-middle), even | 0x8000u);
    }
    for (uint32_t i = 0; i < 0x7f80 - 1; i++) {
        uint32_t even = i % 2 ? i + 1 : i;
        wrong = expect(wrong, i, narrow_to_bf16(narrow_float(i << 16 | 0x8000u)), even);
        wrong = expect(wrong, i, narrow_to_bf16(narrow_float(i << 16 | 0x7fffu)), i);
        wrong = expect(wrong, i, narrow_to_bf16(narrow_float(i << 16 | 0x8001u)), i + 1);
    }
    ck_assert_int_eq(wrong, 0);
}
END_TEST

START_TEST(numbers_too_large_for_fp16_are_infinite)
{
    ck_assert_uint_eq(narrow_to_fp16(65519.99f), 0x7bffu);
    ck_assert_uint_eq(narrow_to_fp16(65520.0f), 0x7c00u);
    ck_assert_uint_eq(narrow_to_fp16(-1e30f), 0xfc00u);
    ck_assert_uint_eq(narrow_to_fp16(-INFINITY), 0xfc00u);
}
END_TEST

START_TEST(kernels_round_numbers_as_their_type_does)
{
    enum { N = 300 };
    static double in[N], out[N];
    for (int i = 0; i < N; i++) in[i] = rng_normal(3, 0, (uint64_t)i) * exp2(i % 30 - 15);
    for (int t = 0; t < CUDA_DTYPE_COUNT; t++) {
        good(try_round((enum cuda_dtype)t, in, out, N, NULL));
        done();
        for (int i = 0; i < N; i++) {
            float v = (float)in[i];
            double expected[CUDA_DTYPE_COUNT] = {
                [CUDA_fp32] = (double)v,
                [CUDA_fp64] = in[i],
                [CUDA_bf16] = (double)narrow_from_bf16(narrow_to_bf16(v)),
                [CUDA_fp16] = (double)narrow_from_fp16(narrow_to_fp16(v)),
            };
            ck_assert_double_eq(out[i], expected[t]);
        }
    }
}
END_TEST

SUITE_OF(standin, every_thread_of_a_grid_knows_where_it_is,
         sums_by_warps_and_blocks_are_exact_in_every_order, narrow_numbers_are_summed_wide,
         tiles_in_shared_memory_turn_matrices,
         a_barrier_makes_what_a_block_wrote_seen_in_every_order,
         without_its_barrier_a_kernel_reads_what_nobody_wrote, lanes_shuffle_and_vote_as_cuda_says,
         shared_memory_that_nobody_wrote_is_no_number_in_every_block,
         copies_to_shared_memory_arrive_when_they_are_waited_for,
         integers_are_counted_by_all_threads, what_cuda_leaves_undefined_ends_with_its_reason,
         a_trap_ends_its_launch_and_loses_the_device, launches_that_a_gpu_refuses_are_refused,
         every_narrow_number_survives_being_widened,
         halfway_between_two_narrow_numbers_the_even_one_is_taken,
         numbers_too_large_for_fp16_are_infinite, kernels_round_numbers_as_their_type_does)
