/* tests/support/kernel_rows_elements.h - more rows of what memory bounds: tails behind whole packs and whole warps, rows that no registers
 * hold, parts, updates, moves of parts. Knows no Check.
 */
#ifndef TESTS_SUPPORT_KERNEL_ROWS_ELEMENTS_H
#define TESTS_SUPPORT_KERNEL_ROWS_ELEMENTS_H

#include "core/base/arena.h"
#include "core/graph/exchange.h"
#include "tests/support/kernel_rows.h"

/* Two devices share 10: the second has 1 … 3 and 7, 8. */
static const struct run two_runs[] = {{0, 1}, {4, 3}, {1, 3}, {7, 2}};
static const struct division parts_of_10 = {2, 2, 10, two_runs};
static const struct exchange second_part = {.n = 2, .self = 1, .dim = 1, .shards = &parts_of_10};
static const struct run one_run[] = {{0, 24}, {24, 0}};
static const struct division all_of_24 = {2, 1, 24, one_run};
static const struct exchange whole_part = {.n = 2, .self = 0, .dim = 2, .shards = &all_of_24};
static const struct exchange empty_part = {.n = 2, .self = 1, .dim = 2, .shards = &all_of_24};

/* clang-format off */
#define NONE {{0}}
static const struct kernel_row element_rows[] = {
    {OP_add, {0}, "4099 x 4099", {{OP_accumulate, ACC, "d", "0"}}},
    {OP_add, {0}, "8192 x 8192", {{OP_multiply, 0, "ad", "0"}}},
    {OP_gelu, {0}, "3,600", {{OP_gelu_grad, 0, "ad", "0"}}},
    {OP_bias, {0}, "9,264 x 264", {{OP_bias_grad, ACC, "d", "1"}}},
    {OP_bias, {0}, "300,40 x 40", {{OP_bias_grad, ACC, "d", "1"}}},
    {OP_bias, {0}, "5,2056 x 2056", {{OP_bias_grad, ACC, "d", "1"}}},
    {OP_bias_gelu, {0}, "21,520 x 520", BIAS_GELU},
    {OP_bias, {.dim = 1, .dims = 1}, "9,5,16 x 5", {{OP_bias_grad, ACC, "d", "1"}}},
    {OP_bias, {.dim = 1, .dims = 1}, "3,2,33,70 x 2", {{OP_bias_grad, ACC, "d", "1"}}},
    {OP_layer_norm, {.eps = 1e-5}, "5,768 x 768 x 768", LAYER_NORM},
    {OP_layer_norm, {.eps = 1e-5}, "3,1030 x 1030 x 1030", LAYER_NORM},
    {OP_layer_norm, {.eps = 1e-5}, "2,8200 x 8200 x 8200", LAYER_NORM},
    {OP_layer_norm, {.eps = 1e-5}, "300,24 x 24 x 24", LAYER_NORM},
    {OP_rms_norm, {.eps = 1e-5}, "7,192 x 64", RMS_NORM},
    {OP_rms_norm, {.eps = 1e-5}, "2,2048 x 2048", RMS_NORM},
    {OP_rms_norm, {.eps = 1e-5, .unit_offset = true}, "2,2048 x 2048", RMS_NORM},
    {OP_rms_norm, {.eps = 1e-5}, "1,9000 x 9000", RMS_NORM},
    {OP_embedding, {.vocabulary = 7}, "3,50 x 7,264", {{OP_embedding_grad, ACC, "ad", "1"}}},
    {OP_embedding, {.vocabulary = 5000}, "2,40 x 5000,3", {{OP_embedding_grad, ACC, "ad", "1"}}},
    {OP_embedding, {.vocabulary = 1}, "300 x 1,8", {{OP_embedding_grad, ACC, "ad", "1"}}},
    {OP_embedding, {.vocabulary = 3, .start = 2, .whole = 7}, "90 x 3,16", {{OP_embedding_grad, ACC, "ad", "1"}}},
    {OP_embedding, {.vocabulary = 2, .start = 5, .whole = 7}, "40 x 2,2100", {{OP_embedding_grad, ACC, "ad", "1"}}},
    {OP_rotary, {.heads = 3, .head_dim = 64, .theta = 10000, .start = 1000}, "2,5,192", {{OP_rotary, TURN_BACK, "d", "0"}}},
    {OP_rotary, {.heads = 1, .head_dim = 272, .theta = 10000}, "1,3,272", {{OP_rotary, TURN_BACK, "d", "0"}}},
    {OP_rotary, {.heads = 3, .head_dim = 64, .rotary_dim = 32, .theta = 10000, .start = 7}, "2,5,192", {{OP_rotary, TURN_BACK, "d", "0"}}},
    {OP_scale, {.scale = 48}, "3,600", {{OP_scale, 0, "d", "0"}}},
    {OP_softcap, {.scale = 30}, "3,600", {{OP_softcap_grad, 0, "Ad", "0"}}},
    {OP_dropout, {.rate = 0.1, .stream = 9}, "3,5,1000", {{OP_dropout, 0, "d", "0"}}},
    {OP_dropout, {.rate = 0.5, .stream = 2, .start = 37, .whole = 101}, "2,29", {{OP_dropout, 0, "d", "0"}}},
    {OP_dropout, {.rate = 0.4, .columns = {3, 7, 12}}, "2,5,7", {{OP_dropout, 0, "d", "0"}}},
    {OP_dropout, {.rate = 0.4, .columns = {8, 16, 32}}, "3,9,16", {{OP_dropout, 0, "d", "0"}}},
    {OP_dropout, {.rate = 0}, "9", {{OP_dropout, 0, "d", "0"}}},
    {OP_conv2d, {.stencil = {{3, 3}, {1, 2}, {1, 1}, {7, 6}}, .lines = {2, 3, 7}}, "2,3,7,6 x 4,3,3,3", CONV},
    {OP_conv2d, {.stencil = {{1, 1}, {1, 1}, {0, 0}, {6, 8}}, .lines = {1, 4, 6}}, "3,8,6,8 x 5,8,1,1", CONV},
    {OP_conv2d, {.stencil = {{1, 1}, {1, 1}, {0, 0}, {5, 4}}}, "2,3,5,4 x 6,3,1,1", CONV},
    {OP_max_pool2d, {.stencil = {{3, 3}, {2, 2}, {1, 1}, {9, 7}}, .lines = {1, 3, 5}}, "2,3,9,7", MAX_POOL},
    {OP_avg_pool2d, {.stencil = {{3, 2}, {1, 1}, {1, 1}, {6, 70}}, .lines = {2, 2, 6}}, "1,3,6,70", AVG_POOL},
    {OP_group_norm, {.eps = 1e-5, .groups = 3}, "2,6,17,9 x 6 x 6", GROUP_NORM},
    {OP_group_norm, {.eps = 1e-5, .groups = 1}, "1,8,40,32 x 8 x 8", GROUP_NORM},
    {OP_to_rows, {.stencil.size = {9, 16}}, "2,72,9,16", TO_ROWS},
    {OP_slice, {.dim = 2, .start = 8, .sequences = 16}, "3,7,32", {{OP_paste, BLANK, "d", "0"}}},
    {OP_slice, {.dim = 0, .start = 1, .sequences = 3}, "5,4,70", {{OP_paste, BLANK, "d", "0"}}},
    {OP_paste, {.dim = 1, .start = 2, .sequences = 9}, "2,4,8", NONE},
    {OP_prepend, {.dim = 1, .dims = 2, .start = 1, .sequences = 4}, "3,4,32 x 1,32", PREPEND},
    {OP_local_slice, {.exchange = &second_part}, "3,10,7", NONE},
    {OP_local_slice, {.exchange = &whole_part}, "2,3,24", NONE},
    {OP_local_slice, {.exchange = &empty_part}, "2,3,24", NONE},
    {OP_add_to_slice, {.exchange = &second_part}, "3,5,7", NONE},
    {OP_add_to_slice, {.exchange = &second_part, .accumulate = true}, "3,5,8", NONE},
    {OP_add_to_slice, {.exchange = &second_part, .accumulate = true}, "3,5,24", NONE},
    {OP_add_to_slice, {.exchange = &second_part}, "2,5,40", NONE},
    {OP_add_to_slice, {.exchange = &empty_part}, "2,3,0", NONE},
    {OP_accumulate, {0}, "2051", NONE},
    {OP_zero, {0}, "33", NONE},
    {OP_adamw, {.decay = true}, "1033 x 1033 x 1033 x 1033", NONE},
    {OP_adamw, {0}, "7 x 7 x 7 x 7", NONE},
    {OP_flat_adamw, {0}, "4096 x 4096 x 4096 x 4096", NONE},
    {OP_flat_adamw, {0}, "0 x 0 x 0 x 0", NONE},
    {OP_adamw, {.decay = true, .narrows = true}, "1033 x 1033 x 1033 x 1033", NONE},
    {OP_sgd, {.decay = true}, "35 x 35", NONE},
    {OP_flat_sgd, {0}, "4096 x 4096", NONE},
    {OP_sgd, {.narrows = true}, "35 x 35", NONE},
    {OP_momentum, {.decay = true}, "1033 x 1033 x 1033", NONE},
    {OP_flat_momentum, {0}, "4099 x 4099 x 4099", NONE},
    {OP_momentum, {.decay = true, .narrows = true}, "35 x 35 x 35", NONE},
    {OP_lion, {.decay = true}, "1033 x 1033 x 1033", NONE},
    {OP_flat_lion, {0}, "4099 x 4099 x 4099", NONE},
    {OP_lion, {.narrows = true}, "35 x 35 x 35", NONE},
    {OP_lamb, {.decay = true}, "1033 x 1033 x 1033 x 1033", NONE},
    {OP_lamb, {.narrows = true}, "40007 x 40007 x 40007 x 40007", NONE},
    {OP_lamb, {0}, "0 x 0 x 0 x 0", NONE},
    {OP_lars, {.decay = true}, "1033 x 1033 x 1033", NONE},
    {OP_lars, {.narrows = true}, "40007 x 40007 x 40007", NONE},
    {OP_outer_delta, {.scale = 0.25}, "1033 x 1033", NONE},
    {OP_outer_average, {0}, "1033 x 1033 x 1033", NONE},
    {OP_outer_average, {.narrows = true}, "35 x 35 x 35", NONE},
    {OP_outer_nesterov, {0}, "1033 x 1033 x 1033 x 1033", NONE},
    {OP_outer_nesterov, {.narrows = true}, "35 x 35 x 35 x 35", NONE},
    {OP_outer_average, {.scale = 0.25}, "35 x 35 x 35", NONE},
    {OP_outer_nesterov, {.scale = 0.25, .narrows = true}, "35 x 35 x 35 x 35", NONE},
    {OP_overflow, {0}, "2051", NONE},
    {OP_overflow, {.accumulate = true}, "40007", NONE},
    {OP_overflow, {0}, "0", NONE},
    {OP_square_sum, {0}, "2051", NONE},
    {OP_square_sum, {.accumulate = true}, "40007", NONE},
    {OP_square_sum, {0}, "0", NONE},
    {OP_square_sum, {.blank = true}, "2051", NONE},
    {OP_square_sum, {.accumulate = true, .blank = true}, "2051", NONE},
    {OP_clip, {0}, "1", NONE},
};
#undef NONE
/* clang-format on */
enum { N_ELEMENT_ROWS = sizeof element_rows / sizeof *element_rows };

/* A row, everything about it drawn; kinds take turns as `number` goes up, and it is within some thousand elements. */
void kernel_rows_elements_random(struct arena *a, uint64_t number, struct kernel_row *out);
enum { N_ELEMENT_MAKERS = 12 };

#endif
