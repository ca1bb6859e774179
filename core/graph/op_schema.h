/* core/graph/op_schema.h - a row of the operator table (core/graph/op_rows.inc); private to core/graph; others use core/graph/op.h. */
#ifndef CORE_GRAPH_OP_SCHEMA_H
#define CORE_GRAPH_OP_SCHEMA_H

#include "core/graph/op.h"
#include "core/graph/op_shapes.h"
#include "core/graph/op_work.h"

struct graph;
struct graph_op;

typedef bool op_form_rule(const struct graph *g, const struct graph_op *op);
#define FORM(name) op_form_rule form_##name;
#include "core/graph/op_rows.inc"

/* Attributes that change the work of a kind and are therefore part of its key; accumulate always is. */
enum {
    A_TRANS = 1,
    A_ERF = 2,
    A_HEADS = 4,
    A_HEAD_DIM = 8,
    A_VOCABULARY = 16,
    A_DECAY = 32,
    A_ROW = 64,
    A_LINK = 128,
    A_PART = 512,
    A_KERNEL = 1024, /* of the stencil */
    A_STRIDE = 2048, /* and padding */
    A_SIZE = 4096,
    A_GROUPS = 8192,
    A_DIM = 16384,
    A_TURN = 32768, /* inverse, flat */
    A_EXPERTS = 65536,
    A_CAPACITY = 131072,
    A_WEIGHTED = 262144,
    A_RENORMALISE = 524288,
    A_NARROWS = 1048576,
    A_TP = 2097152,
    A_CODE = 4194304,
    A_HOSTED = 8388608
};

/* The part of an operand's shape that determines the cost: all of it, (rows, last), or its elements. */
enum layout { LAYOUT_WHOLE, LAYOUT_ROWS, LAYOUT_FLAT };

/* Indices by which a kind may be sharded (core/graph/op_index.h). */
struct index_row {
    const char *letters;
    const char *other; /* letters of its second form; NULL: it has one form */
    op_form_rule *is_other;
    char start;        /* attrs.start is the first unit of this letter */
    char
        lines; /* attrs.lines are the units of this letter; unset if an input has the letter and no gates are replicated */
    char columns; /* attrs.columns are the units of this letter */
    char heads;   /* attrs.heads and kv_heads count this letter's units */
    bool alike;   /* every operand has the shape of the first, of any rank; letters gives only its own */
    bool mean;    /* a loss is a mean over its rows: b and p */
    bool linear;  /* accepts and returns partial values */
    bool
        elements; /* attrs.start: first element, attrs.whole: elements of a sequence */
    bool experts; /* attrs.experts: number of experts over all devices */
};

struct op_schema {
    int32_t n_inputs, n_inputs_or; /* n_inputs_or: the other number of a kind with two forms */
    int32_t n_outputs;
    uint32_t int32_inputs; /* bit i: input i holds int32 */
    uint32_t int32_outputs; /* bit i: output i holds int32 */
    uint32_t wide_outputs; /* bit i: output i is wide */
    int32_t gates;         /* 1 + index of the input that holds gates; 0: none */
    op_shape_rule *infer;
    double flops_per_element; /* of input 0; used if flops is NULL */
    flops_rule *flops;
    bytes_rule *bytes; /* NULL: each operand once, and accumulated outputs read too */
    op_gradient_rule *gradient;
    uint32_t key_attrs;
    enum layout layout;
    scratch_rule *scratch; /* of its CUDA kernel; NULL: none */
    bool product;          /* a forward kind that is a matrix product */
    bool workspace;        /* its CUDA kernel multiplies matrices and needs the workspace */
    struct index_row index;
    bool any_inputs; /* the shape rule checks their number */
    bool keeps; /* fused: the output of the first kind is one more output */
    int32_t n_fuses;
    enum op_kind fuses[2];
};

const struct op_schema *op_schema(enum op_kind kind);

#endif
