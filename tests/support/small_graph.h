/* tests/support/small_graph.h - forward graphs made operator by operator: matrices of (4, 8) or so, names by number. */
#ifndef TESTS_SUPPORT_SMALL_GRAPH_H
#define TESTS_SUPPORT_SMALL_GRAPH_H

#include "core/base/arena.h"
#include "core/graph/graph.h"

#include "tests/support/suites.h"

/* An (m, n) tensor that no operator makes. */
static inline int32_t small_graph_given(struct arena *a, struct graph *g, enum tensor_role role,
                                        int64_t m, int64_t n)
{
    return graph_add_tensor(
        g, (struct tensor){.name = arena_printf(a, "t%d", (int)g->n_tensors),
                           .role = role,
                           .dtype = role == TENSOR_INPUT ? DTYPE_int32 : DTYPE_fp32,
                           .shape = {2, {m, n}}});
}

/* The first output of an operator of x and y (y < 0: of x alone). */
static inline int32_t small_graph_op(struct arena *a, struct graph *g, enum op_kind kind, int32_t x,
                                     int32_t y)
{
    int32_t in[2] = {x, y}, out[OP_OPERANDS_MAX];
    struct error err = {0};
    ck_assert_msg(graph_add_op(g, kind, arena_printf(a, "op%d", (int)g->n_ops), NULL, in,
                               y < 0 ? 1 : 2, out, &err) == OK,
                  "%s", err.text);
    return out[0];
}

#endif
