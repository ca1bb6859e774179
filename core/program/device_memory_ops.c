/* core/program/device_memory_ops.c - scratch of the CUDA operators by their shapes; a row here for every kind that asks for some.
 *
 * Upper bounds, and tight ones: kernels cut their work by constants, and these are the same constants. A suite asks every kernel
 * for what it takes and compares (tests/exec/test_device_memory.c), and a run that was told too little is refused.
 */
#include "core/program/device_memory.h"

enum { CHUNKS = 256, BLOCKS = 1056, CHUNK_ROWS = 32, WARP = 32 }; /* exec/cuda/kernels_sums.cu */
enum { SQUARES_BLOCKS = 1024, SQUARES_BLOCK = 256 * 4 * 8 };      /* there too */
enum { ID_WINDOW = 32, ID_TILE = 4096 };                          /* exec/cuda/kernels_tokens.cu */

static int64_t over(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t rounded(int64_t bytes) { return over(bytes, 256) * 256; }
/* Of what sums are kept in. */
static int64_t wide(enum dtype t) { return t == DTYPE_fp64 ? 8 : 4; }

static int64_t stretches(int64_t tiles)
{
    int64_t n = BLOCKS / tiles;
    return n <= CHUNKS ? n : least(CHUNKS, BLOCKS / 2 / tiles);
}

/* Two rows of partial sums for each stretch of rows. */
static int64_t column_sums(enum dtype t, int64_t rows, int64_t n)
{
    if (n <= 0) return 0;
    int64_t packs = over(n, 16 / dtype_bytes(t)), x = 1;
    while (x < packs && x < WARP) x *= 2;
    int64_t chunks = most(1, least(over(rows, CHUNK_ROWS), stretches(over(packs, x))));
    return 2 * chunks * n * wide(t);
}

static int64_t channel_sums(enum dtype t, int64_t outer, int64_t channels)
{
    int64_t chunks = most(1, least(least(outer, CHUNKS), over(BLOCKS, most(1, channels))));
    return 2 * chunks * channels * wide(t);
}

static int64_t bias_grad(const struct op_attrs *a, const struct shape *x, enum dtype t)
{
    int64_t outer = 1, middle = 1, inner = 1;
    if (!a->dim) return column_sums(t, shape_rows(x), shape_last(x));
    for (int32_t i = 0; i < x->rank; i++)
        *(i < a->dim ? &outer : i < a->dim + a->dims ? &middle : &inner) *= x->dim[i];
    return inner == 1 ? column_sums(t, outer, middle) : channel_sums(t, outer, middle);
}

static int64_t embedding_grad(const struct op_attrs *a, const struct op_shapes *s, enum dtype t)
{
    int64_t n = shape_elements(&s->input[0]), d = shape_last(&s->input[1]), rows = a->vocabulary;
    return rounded((2 * rows + 1) * 4) + rounded(over(rows + 1, ID_TILE) * 4) + rounded(8 * n) +
           2 * over(n, ID_WINDOW) * d * wide(t);
}

/* Who is in which slot of which expert. */
static int64_t routes(enum op_kind kind, const struct op_shapes *s)
{
    const struct shape *gates = &s->input[op_gates_input(kind)];
    int64_t filled = gates->dim[0] * gates->dim[2];
    const struct shape *slots = kind == OP_dispatch ? &s->output[0] : &s->input[0];
    return 4 * filled * (kind == OP_expert_matmul ? 1 : 1 + gates->dim[1] + slots->dim[2]);
}

struct conv {
    int64_t images, out, taps, places;
    bool plain; /* columns are the image itself */
};

static struct conv conv_of(const struct op_attrs *a, const struct shape *x, const struct shape *w,
                           const struct shape *y)
{
    const struct stencil *k = &a->stencil;
    return (struct conv){x->dim[0], y->dim[1], x->dim[1] * w->dim[2] * w->dim[3],
                         y->dim[2] * y->dim[3],
                         w->dim[2] * w->dim[3] == 1 && k->stride[0] * k->stride[1] == 1};
}

static int64_t at_once(const struct conv *c, int64_t each)
{
    return most(1, least(c->images, DEVICE_COLUMNS / most(1, each)));
}

static int64_t columns(const struct conv *c, int64_t bytes)
{
    int64_t each = c->taps * c->places * bytes;
    return c->plain ? 0 : at_once(c, each) * each;
}

/* Columns, a product for each image, their sum where it is rounded, and room for adding up. */
static int64_t conv_weights(const struct conv *c, enum dtype t)
{
    int64_t size = c->out * c->taps, w = wide(t);
    int64_t column = c->plain ? 0 : c->taps * c->places * dtype_bytes(t);
    int64_t n = at_once(c, most(column, size * w));
    enum dtype summed = t == DTYPE_fp64 ? DTYPE_fp64 : DTYPE_fp32;
    return rounded(n * column) + rounded(n * size * w) + rounded(size * w) +
           column_sums(summed, n, size);
}

static int64_t scratch(enum op_kind kind, const struct op_attrs *a, const struct op_shapes *s,
                       enum dtype t)
{
    const struct shape *in = s->input, *out = s->output;
    struct conv c;
    int64_t n;
    switch (kind) {
    case OP_bias_grad:
        return bias_grad(a, &in[0], t);
    case OP_layer_norm_weight_grad:
    case OP_rms_norm_weight_grad:
        n = shape_elements(&out[0]);
        return n ? column_sums(t, shape_elements(&in[0]) / n, n) : 0;
    case OP_matmul_gelu_grad: /* where the slope is no epilogue of the product */
        n = shape_elements(&out[1]);
        return n ? column_sums(t, shape_elements(&out[0]) / n, n) : 0;
    case OP_group_norm_weight_grad:
        return channel_sums(t, in[0].dim[0], in[0].dim[1]);
    case OP_embedding_grad:
        return embedding_grad(a, s, t);
    case OP_rotary:
        return 2 * in[0].dim[1] * (a->head_dim / 2) * wide(t);
    case OP_attention_grad: /* of each row of o its product with its gradient */
        return in[s->n_inputs - 2].dim[0] * a->heads * in[s->n_inputs - 2].dim[2] * wide(t);
    case OP_cross_entropy:
        return 8 * shape_rows(&in[0]);
    case OP_cross_entropy_join:
        return 8 * most(shape_rows(&in[0]), shape_rows(&in[1]));
    case OP_overflow: /* squares of blocks, and their sum */
        return 8 *
               (1 + most(1, least(SQUARES_BLOCKS, over(shape_elements(&in[0]), SQUARES_BLOCK))));
    case OP_gating_grad:
        return 4 * in[0].dim[0] * in[0].dim[2];
    case OP_dispatch:
    case OP_combine:
    case OP_gates_grad:
    case OP_expert_matmul:
        return routes(kind, s);
    case OP_conv2d:
        c = conv_of(a, &in[0], &in[1], &out[0]);
        return columns(&c, dtype_bytes(t));
    case OP_conv2d_grad:
        c = conv_of(a, &out[0], &in[0], &in[1]);
        return columns(&c, wide(t));
    case OP_conv2d_weight_grad:
        c = conv_of(a, &in[0], &out[0], &in[1]);
        return conv_weights(&c, t);
    default:
        return 0;
    }
}

/* An operator whose operands are all wide runs in fp32. */
int64_t device_op_scratch(enum op_kind kind, const struct op_attrs *a, const struct op_shapes *s,
                          enum dtype t)
{
    int64_t bytes = scratch(kind, a, s, t);
    return dtype_is_half(t) ? most(bytes, scratch(kind, a, s, DTYPE_fp32)) : bytes;
}

bool device_op_multiplies(enum op_kind kind)
{
    switch (kind) {
    case OP_matmul:
    case OP_linear:
    case OP_linear_gelu:
    case OP_matmul_gelu_grad:
    case OP_logits:
    case OP_logits_grad:
    case OP_logits_weight_grad:
    case OP_conv2d:
    case OP_conv2d_grad:
    case OP_conv2d_weight_grad:
        return true;
    default:
        return false;
    }
}
