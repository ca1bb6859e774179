/* core/graph/op_schema.h - a row of the operator table (core/graph/op_rows.inc); for core/graph alone, others ask core/graph/op.h. */
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

/* Attributes that change the work of a kind and so belong to its key; accumulate always does. */
enum {
    A_TRANS = 1,
    A_ERF = 2,
    A_HEADS = 4,
    A_HEAD_DIM = 8,
    A_VOCABULARY = 16,
    A_DECAY = 32,
    A_ROW = 64,
    A_LINK = 128,
    A_RANKS = 256,
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
    A_NARROWS = 1048576
};

/* How much of an operand's shape matters to the cost: all of it, (rows, last), or its elements. */
enum layout { LAYOUT_WHOLE, LAYOUT_ROWS, LAYOUT_FLAT };

/* By which indices a kind may be split (core/graph/op_index.h). */
struct index_row {
    const char *letters;
    const char *other; /* of its other form, NULL: it has one */
    op_form_rule *is_other;
    char start;        /* attrs.start is the first unit of this letter */
    char
        lines; /* attrs.lines are those units of this letter; not where an input has it and no gates are whole */
    char columns; /* attrs.columns are the units of this letter */
    char heads;   /* attrs.heads and kv_heads are those of this letter's units */
    bool alike;   /* every operand is like the first, of any rank; letters has but its name */
    bool mean;    /* a loss is a mean over its rows: b and p */
    bool linear;  /* takes and gives partial values */
    bool
        elements; /* attrs.start is the number of the first element, attrs.whole those of a sequence */
    bool experts; /* attrs.experts says how many all have */
};

struct op_schema {
    int32_t n_inputs, n_inputs_or; /* the second where a kind takes either */
    int32_t n_outputs;
    uint32_t int32_inputs; /* bit i: input i holds int32 */
    uint32_t wide_outputs; /* bit i: output i is wide */
    int32_t gates;         /* 1 + the input that is gates; 0: none */
    op_shape_rule *infer;
    double flops_per_element; /* of input 0; used where flops is NULL */
    flops_rule *flops;
    bytes_rule *bytes; /* NULL: each operand once, accumulated outputs read too */
    op_gradient_rule *gradient;
    uint32_t key_attrs;
    enum layout layout;
    scratch_rule *scratch; /* of its CUDA kernel; NULL: none */
    bool product;          /* a forward kind that is a matrix product */
    bool workspace;        /* its CUDA kernel multiplies matrices */
    struct index_row index;
    bool any_inputs; /* the shape rule counts them */
    bool keeps; /* fused: what the first part gives is one more output */
    int32_t n_fuses;
    enum op_kind fuses[2];
};

const struct op_schema *op_schema(enum op_kind kind);

#endif
