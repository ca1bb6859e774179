/* core/graph/gradient_use.h - helpers of gradient rules; private to core/graph/gradient_rules*.c. */
#ifndef CORE_GRAPH_GRADIENT_USE_H
#define CORE_GRAPH_GRADIENT_USE_H

#include "core/graph/gradient.h"

struct use { /* a copy of the forward operator, because the graph's arrays move as it grows */
    struct gradient_builder *b;
    struct graph_op op;
    int32_t i;  /* index of the operator */
    int32_t dy; /* gradient of output 0; -1 for the loss */
};

static inline struct use use_of(struct gradient_builder *b, int32_t i)
{
    struct graph_op op = gradient_graph(b)->ops[i];
    return (struct use){.b = b, .op = op, .i = i, .dy = gradient_of(b, op.output[0])};
}

static inline bool use_is_parameter(const struct use *u, int32_t input)
{
    return gradient_graph(u->b)->tensors[u->op.input[input]].role == TENSOR_PARAMETER;
}

static inline bool use_wants(const struct use *u, int32_t input)
{
    return gradient_wanted(u->b, u->op.input[input]);
}

/* Contributes grad unchanged to operand `input`, if it requires a gradient. */
static inline enum status use_pass(const struct use *u, int32_t input, int32_t grad,
                                   struct error *err)
{
    return use_wants(u, input) ? gradient_contribute(u->b, u->op.input[input], grad, err) : OK;
}

/* One I operator with one output, the gradient of operand `input`. */
MUST_CHECK enum status use_input(const struct use *u, int32_t input, enum op_kind kind,
                                 const char *suffix, const struct op_attrs *attrs,
                                 const int32_t *inputs, int32_t n_inputs, struct error *err);
/* One W operator that accumulates into the gradients of parameters `input`, `input` + 1 … */
MUST_CHECK enum status use_weights(const struct use *u, int32_t input, int32_t n_outputs,
                                   enum op_kind kind, const char *suffix, struct op_attrs attrs,
                                   const int32_t *inputs, int32_t n_inputs, struct error *err);
/* Gradients of both operands of a product, from u.dy. */
MUST_CHECK enum status use_product(struct use u, struct error *err);

#define INPUTS(...)                                                                                \
    (const int32_t[]){__VA_ARGS__}, (int32_t)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

#endif
