/* tests/support/kernel_rows_products.h - more rows of products, attention, losses and experts: sizes at which tensor cores are used, tails
 * behind whole tiles, shards of operators. Knows no Check.
 */
#ifndef TESTS_SUPPORT_KERNEL_ROWS_PRODUCTS_H
#define TESTS_SUPPORT_KERNEL_ROWS_PRODUCTS_H

#include "core/base/arena.h"
#include "tests/support/kernel_rows.h"

/* clang-format off */
/* queries `n` of `of` positions from `first` on, of a packed qkv */
#define SOME(h, k, d, w, first, n, of) {.heads = (h), .kv_heads = (k), .head_dim = (d), .window = (w), .lines = {first, n, of}}
#define FROM(h, k, d, w, first) {.heads = (h), .kv_heads = (k), .head_dim = (d), .window = (w), .start = (first)}
#define SLICE(first, n, of) {first, n, of}
/* clang-format on */

/* Heads of 64 and 128 and what is filled up to them; tiles are 64 or 128 positions. */
static const struct kernel_row attention_rows[] = {
    {OP_attention, ATTENTION(2, 1, 64, 0), "1,150,256", PACKED},
    {OP_attention, ATTENTION(1, 1, 128, 0), "1,70,384", PACKED},
    {OP_attention, ATTENTION(2, 2, 40, 0), "1,67,240", PACKED},
    {OP_attention, ATTENTION(1, 1, 64, 50), "1,200,192", PACKED},
    {OP_attention, ATTENTION(1, 1, 72, 1), "2,5,216", PACKED},
    {OP_attention, BIDIRECTIONAL(1, 1, 64), "1,131,192", PACKED},
    {OP_attention, ATTENTION(4, 2, 16, 0), "2,65,64 x 2,65,32 x 2,65,32", SEPARATE},
    {OP_attention, SOME(2, 1, 64, 0, 70, 37, 131), "1,131,256", PACKED},
    {OP_attention, SOME(2, 1, 3, 9, 5, 40, 67), "2,67,12", PACKED},
    {OP_attention, FROM(2, 1, 64, 0, 101), "1,30,128 x 1,131,64 x 1,131,64", SEPARATE},
    {OP_attention, FROM(2, 1, 5, 20, 60), "1,7,10 x 1,131,5 x 1,131,5", SEPARATE},
    /* heads that no shared memory would hold whole */
    {OP_attention, ATTENTION(1, 1, 200, 0), "1,40,600", PACKED},
};
enum { N_ATTENTION_ROWS = sizeof attention_rows / sizeof *attention_rows };

static const struct kernel_row loss_rows[] = {
    {OP_cross_entropy, {.scale = 0.1}, "2,3,3001 x 2,3", {{OP_cross_entropy_grad, 0, "abB", "0"}}},
    {OP_cross_entropy,
     {.scale = 0.5, .counted = 2},
     "2,4,19 x 2,4",
     {{OP_cross_entropy_grad, 0, "abB", "0"}}},
    {OP_cross_entropy,
     {.scale = 2, .counted = 1},
     "3,2,1500 x 3,2",
     {{OP_cross_entropy_grad, 0, "abB", "0"}}},
    {OP_cross_entropy_shard, {.start = 7, .whole = 40}, "2,9,20 x 2,9", {{0}}},
    {OP_cross_entropy_shard, {.start = 900, .whole = 4000}, "1,5,2050 x 1,5", {{0}}},
    {OP_cross_entropy_grad, {.start = 7, .whole = 40, .scale = 0.3}, "2,9,20 x 2,9 x 2,9", {{0}}},
    {OP_cross_entropy_join, {0}, "2,3,6 x 2,3,10 x 2,3", {{0}}},
    {OP_cross_entropy_join, {.counted = 2}, "9,40,2 x 9,40,10 x 9,40", {{0}}},
};
enum { N_LOSS_ROWS = sizeof loss_rows / sizeof *loss_rows };

static const struct kernel_row expert_rows_table[] = {
    {OP_gating, GATING(3, true), "2,5,70", {{OP_gating_grad, 0, "aAd", "0"}}},
    {OP_gating, {.chosen = 2, .scale = 0.3}, "3,7,40", {{OP_gating_grad, 0, "aAd", "0"}}},
    {OP_dispatch, {.capacity = 3, .lines = SLICE(2, 4, 9)}, "2,4,5 x 2,9,4", {{OP_combine, 0, "db", "0"}}},
    {OP_dispatch, {.capacity = 2, .columns = SLICE(1, 2, 4), .weighted = true}, "2,9,16 x 2,9,4",
     {{OP_combine, 0, "db", "0"}}},
    {OP_combine, {.weighted = true, .columns = SLICE(1, 3, 6), .lines = SLICE(3, 5, 9), .capacity = 3},
     "2,4,3,24 x 2,9,4", COMBINE},
    {OP_combine, {.weighted = true, .capacity = 20}, "1,40,20,8 x 1,70,40", COMBINE},
    {OP_expert_matmul, {.columns = SLICE(2, 3, 6)}, "2,4,3,5 x 4,5,6 x 2,9,4", EXPERTS},
    /* whole tiles and tails of 128 rows and columns and of 64 between them */
    {OP_expert_matmul, {0}, "2,2,140,72 x 2,72,136 x 2,500,2", EXPERTS},
    {OP_expert_matmul, {.trans_b = true}, "1,3,10,200 x 3,16,200 x 1,40,3",
     {{OP_expert_matmul, 0, "dbc", "0"}, {OP_expert_matmul, TA | ACC, "dac", "1"}}},
};
enum { N_EXPERT_ROWS = sizeof expert_rows_table / sizeof *expert_rows_table, LARGE_EXPERT_ROW = 7 };

enum random_row { RANDOM_ATTENTION, RANDOM_MATMUL, RANDOM_LOSS, RANDOM_EXPERTS, RANDOM_ROWS };
/* A row of that kind, of sizes that the number chooses: small ones mostly, beyond a tile now and then. Text is the arena's. */
void kernel_rows_products_random(struct arena *a, enum random_row kind, uint64_t number,
                        struct kernel_row *out);

#endif
