/* tests/support/op_rows.h - what a row of the operator table's suite says, and the rows of images. For tests/core/test_op.c. */
#ifndef TESTS_SUPPORT_OP_ROWS_H
#define TESTS_SUPPORT_OP_ROWS_H

#include "core/graph/op.h"

/* Shapes are written as "8,16 x 16,32"; the case names what it expects of the rest. */
struct row {
    enum op_kind kind;
    struct op_attrs attrs;
    const char *inputs;
    const char *outputs;
    double flops;
    int64_t read, written; /* fp32 */
};

struct misfit {
    enum op_kind kind;
    struct op_attrs attrs;
    const char *inputs, *first, *second; /* what the message must name */
};

static const struct row image_rows[] = {
    {OP_cross_entropy, {0}, "6,10 x 6", "1 x 6", 240, 240 + 24, 28},
    {OP_bias, {.dim = 1}, "2,3,4,5 x 3", "2,3,4,5", 120, 492, 480},
    {OP_bias_grad, {.dim = 1, .dims = 2, .accumulate = true}, "2,3,4", "3,4", 24, 96 + 48, 48},
    /* places 4 x 2 of 2 channels of 3 x 2: 2·3·6 = 36 products each */
    {OP_conv2d,
     {.stencil = {.stride = {1, 2}, .padding = {1, 0}}},
     "2,6,5,4 x 7,6,3,2",
     "2,7,5,2",
     2 * 140 * 36,
     4 * (240 + 252),
     560},
    {OP_conv2d_grad,
     {.stencil = {.stride = {1, 2}, .padding = {1, 0}, .size = {5, 4}}},
     "7,6,3,2 x 2,7,5,2",
     "2,6,5,4",
     2 * 140 * 36,
     4 * (252 + 140),
     960},
    {OP_conv2d_weight_grad,
     {.accumulate = true, .stencil = {.kernel = {3, 2}, .stride = {1, 2}, .padding = {1, 0}}},
     "2,6,5,4 x 2,7,5,2",
     "7,6,3,2",
     2 * 140 * 36,
     4 * (240 + 140 + 252),
     4 * 252},
    {OP_relu, {0}, "2,3", "2,3", 6, 24, 24},
    {OP_relu_grad, {0}, "2,3 x 2,3", "2,3", 6, 48, 24},
    {OP_max_pool2d,
     {.stencil = {{2, 3}, {2, 1}, {1, 0}, {0}}},
     "2,3,5,4",
     "2,3,3,2 x 2,3,3,2",
     36 * 6,
     480,
     288},
    {OP_max_pool2d_grad,
     {.stencil = {{2, 3}, {2, 1}, {1, 0}, {5, 4}}},
     "2,3,3,2 x 2,3,3,2",
     "2,3,5,4",
     36,
     288,
     480},
    {OP_avg_pool2d,
     {.stencil = {{2, 3}, {2, 1}, {1, 0}, {0}}},
     "2,3,5,4",
     "2,3,3,2",
     216,
     480,
     144},
    {OP_avg_pool2d_grad,
     {.stencil = {{2, 3}, {2, 1}, {1, 0}, {5, 4}}},
     "2,3,3,2",
     "2,3,5,4",
     36 * 7,
     144,
     480},
    {OP_group_norm, {.groups = 2}, "2,6,5 x 6 x 6", "2,6,5 x 4,2", 420, 4 * 72, 4 * 68},
    {OP_group_norm_grad,
     {.groups = 2},
     "2,6,5 x 6 x 4,2 x 2,6,5",
     "2,6,5",
     600,
     4 * (120 + 6 + 8),
     240},
    {OP_group_norm_weight_grad,
     {.groups = 2, .accumulate = true},
     "2,6,5 x 4,2 x 2,6,5",
     "6 x 6",
     300,
     4 * (128 + 12),
     48},
    {OP_to_rows, {0}, "2,3,4,5", "2,20,3", 0, 480, 480},
    {OP_to_rows, {.flat = true}, "2,3,4,5", "2,60", 0, 480, 480},
    {OP_to_rows, {.inverse = true, .stencil.size = {4, 5}}, "2,20,3", "2,3,4,5", 0, 480, 480},
    {OP_to_rows,
     {.inverse = true, .flat = true, .stencil.size = {4, 5}},
     "2,60",
     "2,3,4,5",
     0,
     480,
     480},
    {OP_prepend, {0}, "2,3,4 x 1,4", "2,4,4", 0, 112, 128},
    {OP_slice, {.dim = 1, .start = 2, .sequences = 1}, "2,3,4", "2,1,4", 0, 32, 32},
    {OP_paste, {.dim = 1, .start = 2, .sequences = 3, .blank = true}, "2,1,4", "2,3,4", 0, 32, 96},
};
enum { N_IMAGE_ROWS = sizeof image_rows / sizeof *image_rows };

static const struct misfit image_misfits[] = {
    {OP_bias, {.dim = 1}, "2,3,4 x 4", "(2,3,4)", "(4)"},
    {OP_bias, {.dim = 2}, "2,3,4 x 4,5", "(2,3,4)", "(4,5)"},
    {OP_bias_grad, {.dim = 2, .dims = 2}, "2,3,4", "2 dimensions from 2", "rank 3"},
    {OP_conv2d, {.stencil.stride = {1, 1}}, "2,3,4,4 x 5,4,3,3", "(2,3,4,4)", "(5,4,3,3)"},
    {OP_conv2d, {.stencil.stride = {1, 1}}, "2,3,4,4 x 5,3,3,5", "kernel of 5", "width of 4"},
    {OP_conv2d, {0}, "2,3,4,4 x 5,3,3,3", "stride 0", "height"},
    {OP_conv2d, {.stencil.stride = {1, 1}}, "2,3,4 x 5,3,3,3", "(2,3,4)", "channels"},
    {OP_conv2d_grad,
     {.stencil = {.stride = {1, 1}, .size = {4, 4}}},
     "5,3,3,3 x 2,5,4,4",
     "(2,5,2,2)",
     "(2,5,4,4)"},
    {OP_conv2d_weight_grad,
     {.stencil = {.kernel = {3, 3}, .stride = {1, 1}}},
     "2,3,4,4 x 3,5,2,2",
     "(2,3,4,4)",
     "(3,5,2,2)"},
    {OP_max_pool2d,
     {.stencil = {{2, 2}, {2, 2}, {2, 0}, {0}}},
     "2,3,4,4",
     "kernel of 2",
     "padding 2"},
    {OP_max_pool2d_grad,
     {.stencil = {{2, 2}, {2, 2}, {0}, {4, 4}}},
     "2,3,2,1 x 2,3,2,2",
     "(2,3,2,1)",
     "(2,3,2,2)"},
    {OP_group_norm, {.groups = 4}, "2,6,5 x 6 x 6", "(2,6,5)", "4 groups"},
    {OP_group_norm, {.groups = 2}, "2,6,5 x 5 x 6", "(6)", "(5)"},
    {OP_group_norm_grad, {.groups = 2}, "2,6,5 x 6 x 4,1 x 2,6,5", "(4,2)", "(4,1)"},
    {OP_to_rows, {0}, "2,3,4", "(2,3,4)", "height"},
    {OP_to_rows, {.inverse = true, .stencil.size = {4, 5}}, "2,19,3", "(2,19,3)", "4 x 5"},
    {OP_prepend, {0}, "2,3,4 x 1,5", "(2,3,4)", "(1,5)"},
    {OP_slice, {.dim = 1, .start = 2, .sequences = 2}, "2,3,4", "2 places from 2", "(2,3,4)"},
    {OP_slice, {.dim = 3, .sequences = 1}, "2,3,4", "1 places", "(2,3,4)"},
    /* shards of operators */
    {OP_conv2d,
     {.stencil.stride = {1, 1}, .lines = {3, 2, 4}},
     "2,3,4,4 x 5,3,1,1",
     "2 lines from 3",
     "part of 4"},
    {OP_attention,
     {.heads = 1, .kv_heads = 1, .head_dim = 4, .lines = {0, 2, 4}},
     "2,3,12",
     "of 4",
     "part of 3"},
    {OP_attention,
     {.heads = 1, .kv_heads = 1, .head_dim = 4, .start = 2},
     "2,2,4 x 2,3,4 x 2,3,4",
     "(2,3,4)",
     "(2,2,4)"},
    {OP_dropout, {.columns = {3, 2, 4}}, "2,3,2", "from 3", "of 4"},
    {OP_dispatch, {.capacity = 2, .lines = {1, 2, 4}}, "2,3,5 x 2,4,6", "(2,3,5)", "(2,4,6)"},
};
enum { N_IMAGE_MISFITS = sizeof image_misfits / sizeof *image_misfits };

#endif
