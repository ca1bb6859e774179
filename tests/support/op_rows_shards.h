/* tests/support/op_rows_shards.h - rows of the operator table's suite: shards of tensors, what devices do together or agree on, updates with one moment, and what is
 * fused on some of them. For tests/core/test_op.c. */
#ifndef TESTS_SUPPORT_OP_ROWS_SHARDS_H
#define TESTS_SUPPORT_OP_ROWS_SHARDS_H

#include "core/graph/exchange.h"
#include "tests/support/op_rows.h"

/* Two devices share 4, of which the second has 3, and 3, of which it has 1. */
static const struct run shards_runs[] = {{0, 1}, {1, 3}}, others_runs[] = {{0, 2}, {2, 1}};
static const struct division shards_of_4 = {2, 1, 4, shards_runs},
                             shards_of_3 = {2, 1, 3, others_runs};
static const struct exchange exchange = {
    .n = 2, .self = 1, .dim = 1, .shards = &shards_of_4, .to_dim = 2, .to = &shards_of_3};

static const struct row shard_rows[] = {
    {OP_overflow, {0}, "2,3", "1", 12, 24, 4},
    {OP_overflow, {.accumulate = true}, "6", "1", 12, 28, 4},
    {OP_square_sum, {0}, "2,3", "1", 12, 24, 4},
    {OP_square_sum, {.accumulate = true}, "6", "1", 12, 28, 4},
    {OP_momentum, {0}, "2,3 x 2,3 x 2,3", "2,3 x 2,3 x 2,3", 36, 72, 72},
    {OP_flat_momentum, {.decay = true, .narrows = true}, "6 x 6 x 6", "6 x 6 x 6 x 6", 48, 72, 84},
    {OP_lion, {.decay = true}, "2,3 x 2,3 x 2,3", "2,3 x 2,3 x 2,3", 66, 72, 72},
    {OP_flat_lion, {0}, "6 x 6 x 6", "6 x 6 x 6", 54, 72, 72},
    {OP_clip, {0}, "1", "2", 4, 4, 8},
    {OP_rescale, {.grows_after = 5}, "1", "8", 1, 4, 32},
    {OP_linear_gelu, {0}, "2,3,4 x 4,5 x 5", "2,3,5 x 2,3,5", 270 + 9 * 30, 4 * (24 + 20 + 5), 240},
    {OP_matmul_gelu_grad, {0}, "2,3,4 x 4,5 x 2,3,5", "2,3,5 x 5", 240 + 17 * 30 + 30, 4 * (24 + 20 + 30), 4 * 35},
    {OP_logits, {0}, "2,3,4 x 5,4", "2,3,64", 240, 4 * (24 + 20), 4 * 384},
    {OP_logits_grad, {0}, "2,3,64 x 5,4", "2,3,4", 240, 4 * (384 + 20), 96},
    {OP_logits_weight_grad, {.vocabulary = 5}, "2,3,64 x 2,3,4", "5,4", 240, 4 * (384 + 24), 80},
    {OP_layer_norm_grad_add, {0}, "2,3,4 x 4 x 6,2 x 2,3,4 x 2,3,4", "2,3,4", 264, 4 * (24 + 4 + 12 + 48), 96},
    {OP_cross_entropy_shard, {0}, "2,3,10 x 2,3", "2,3,2", 240, 240 + 24, 48},
    {OP_cross_entropy_join, {0}, "2,3,4 x 2,3,10 x 2,3", "1 x 2,3", 48, 96 + 24, 28},
    {OP_local_slice, {.exchange = &exchange}, "2,4,3", "2,3,3", 0, 72, 72},
    {OP_add_to_slice, {.exchange = &exchange}, "2,3,3", "2,4,3", 18, 72, 96},
    {OP_add_to_slice, {.exchange = &exchange, .accumulate = true}, "2,3,3", "2,4,3", 18, 144, 72},
    {OP_group_all_gather, {.exchange = &exchange}, "2,3,3", "2,4,3", 0, 72, 96},
    {OP_group_reduce_scatter, {.exchange = &exchange}, "2,4,3", "2,3,3", 0, 96, 72},
    {OP_group_all_reduce, {.exchange = &exchange}, "2,4,3", "2,4,3", 0, 96, 96},
    {OP_group_all_to_all, {.exchange = &exchange}, "2,3,3", "2,4,1", 0, 72, 32},
    /* the last of 3 positions sees all of them; the first two see 1 and 2 */
    {OP_attention,
     {.heads = 2, .kv_heads = 1, .head_dim = 4, .start = 2},
     "2,1,8 x 2,3,4 x 2,3,4",
     "2,1,8 x 2,2,1",
     4 * 4 * 2 * 2 * 3,
     4 * (16 + 48),
     4 * (16 + 4)},
    /* the same query of a packed qkv: it alone and all keys and values are read */
    {OP_attention,
     {.heads = 2, .kv_heads = 1, .head_dim = 4, .lines = {2, 1, 3}},
     "2,3,16",
     "2,1,8 x 2,2,1",
     4 * 4 * 2 * 2 * 3,
     4 * (16 + 48),
     4 * (16 + 4)},
    {OP_attention_grad,
     {.heads = 2, .kv_heads = 1, .head_dim = 4, .lines = {2, 1, 3}},
     "2,3,16 x 2,1,8 x 2,2,1 x 2,1,8",
     "2,3,16",
     10 * 4 * 2 * 2 * 3,
     4 * (16 + 48 + 16 + 4 + 16),
     4 * 96},
    /* lines 1 and 2 of 5, of 36 products each place */
    {OP_conv2d,
     {.stencil = {.stride = {1, 2}, .padding = {1, 0}}, .lines = {1, 2, 5}},
     "2,6,5,4 x 7,6,3,2",
     "2,7,2,2",
     2 * 56 * 36,
     4 * (240 + 252),
     4 * 56},
    {OP_conv2d_grad,
     {.stencil = {.stride = {1, 2}, .padding = {1, 0}, .size = {5, 4}}, .lines = {1, 2, 5}},
     "7,6,3,2 x 2,7,2,2",
     "2,6,5,4",
     2 * 56 * 36,
     4 * (252 + 56),
     960},
    {OP_max_pool2d,
     {.stencil = {{2, 3}, {2, 1}, {1, 0}, {0}}, .lines = {2, 1, 3}},
     "2,3,5,4",
     "2,3,1,2 x 2,3,1,2",
     12 * 6,
     480,
     96},
    /* 4 positions choose 2 of 4 experts: 2 of an expert's 3 slots are filled, and slot 1 on is one of them */
    {OP_dispatch,
     {.chosen = 2, .capacity = 2, .columns = {1, 2, 3}, .weighted = true},
     "1,4,5 x 1,4,4",
     "1,4,2,5",
     20,
     4 * (20 + 16),
     160},
    /* half of the positions: half of the rows */
    {OP_combine,
     {.chosen = 2, .lines = {2, 2, 4}},
     "1,4,3,5 x 1,4,4",
     "1,2,5",
     20,
     4 * (20 + 16),
     40},
    {OP_attention, {.head_dim = 4}, "2,3,0 x 2,3,0 x 2,3,0", "2,3,0 x 2,0,3", 0, 0, 0},
};
enum { N_SHARD_ROWS = sizeof shard_rows / sizeof *shard_rows };

#endif
