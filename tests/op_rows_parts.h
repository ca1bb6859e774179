/* tests/op_rows_parts.h - rows of the operator table's suite: parts of tensors and what devices do together. For tests/test_op.c. */
#ifndef TESTS_OP_ROWS_PARTS_H
#define TESTS_OP_ROWS_PARTS_H

#include "core/exchange.h"
#include "tests/op_rows.h"

/* Two devices share 4, of which the second has 3, and 3, of which it has 1. */
static const struct run parts_runs[] = {{0, 1}, {1, 3}}, others_runs[] = {{0, 2}, {2, 1}};
static const struct division parts_of_4 = {2, 1, 4, parts_runs},
                             parts_of_3 = {2, 1, 3, others_runs};
static const struct exchange exchange = {
    .n = 2, .self = 1, .dim = 1, .parts = &parts_of_4, .to_dim = 2, .to = &parts_of_3};

static const struct row part_rows[] = {
    {OP_cross_entropy_part, {0}, "2,3,10 x 2,3", "2,3,2", 240, 240 + 24, 48},
    {OP_cross_entropy_join, {0}, "2,3,4 x 2,3,10 x 2,3", "1 x 2,3", 48, 96 + 24, 28},
    {OP_take_part, {.exchange = &exchange}, "2,4,3", "2,3,3", 0, 72, 72},
    {OP_add_part, {.exchange = &exchange}, "2,3,3", "2,4,3", 18, 72, 96},
    {OP_add_part, {.exchange = &exchange, .accumulate = true}, "2,3,3", "2,4,3", 18, 144, 72},
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
    {OP_attention, {.head_dim = 4}, "2,3,0 x 2,3,0 x 2,3,0", "2,3,0 x 2,0,3", 0, 0, 0},
};
enum { N_PART_ROWS = sizeof part_rows / sizeof *part_rows };

#endif
