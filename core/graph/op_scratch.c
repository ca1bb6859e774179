/* core/graph/op_scratch.c - scratch of the CUDA operators by their shapes.
 *
 * Tight upper bounds: kernels divide their work by constants, repeated here. A test compares every kernel's
 * use (tests/exec/test_device_memory.c), and at run time too small a bound is an error.
 */
#include "core/base/units.h"
#include "core/graph/op_work.h"

enum { CHUNKS = 256, BLOCKS = 1056, CHUNK_ROWS = 32, WARP = 32 }; /* exec/cuda/kernels_sums.cu */
enum { SQUARES_BLOCKS = 1024, SQUARES_BLOCK = 256 * 4 * 8 };      /* there too */
enum { TRUST_BLOCKS = 1024, TRUST_BLOCK = 256 * 8 };              /* exec/cuda/kernels_trust.cu */
enum {
    DEVICE_COLUMNS = 64 << 20
}; /* bytes; a convolution makes as many columns at once as take so many */
enum { ID_WINDOW = 32, ID_TILE = 4096 }; /* exec/cuda/kernels_tokens.cu */

static int64_t over(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t rounded(int64_t bytes) { return over(bytes, 256) * 256; }
/* Of what sums are kept in. */
static int64_t wide(enum dtype t) { return t == DTYPE_fp64 ? 8 : 4; }

static int64_t stretches(int64_t tiles)
{
    int64_t n = BLOCKS / tiles;
    return n <= CHUNKS ? n : units_min(CHUNKS, BLOCKS / 2 / tiles);
}

/* Two rows of partial sums for each stretch of rows. */
static int64_t column_sums(enum dtype t, int64_t rows, int64_t n)
{
    if (n <= 0) return 0;
    int64_t packs = over(n, 16 / dtype_bytes(t)), x = 1;
    while (x < packs && x < WARP) x *= 2;
    int64_t chunks = units_max(1, units_min(over(rows, CHUNK_ROWS), stretches(over(packs, x))));
    return 2 * chunks * n * wide(t);
}

static int64_t channel_sums(enum dtype t, int64_t outer, int64_t channels)
{
    int64_t chunks =
        units_max(1, units_min(units_min(outer, CHUNKS), over(BLOCKS, units_max(1, channels))));
    return 2 * chunks * channels * wide(t);
}

int64_t scratch_bias_grad(const struct op_attrs *a, const struct op_shapes *s, enum dtype t)
{
    const struct shape *x = &s->input[0];
    int64_t outer = 1, middle = 1, inner = 1;
    if (!a->dim) return column_sums(t, shape_rows(x), shape_last(x));
    for (int32_t i = 0; i < x->rank; i++)
        *(i < a->dim ? &outer : i < a->dim + a->dims ? &middle : &inner) *= x->dim[i];
    return inner == 1 ? column_sums(t, outer, middle) : channel_sums(t, outer, middle);
}

int64_t scratch_embedding_grad(const struct op_attrs *a, const struct op_shapes *s, enum dtype t)
{
    int64_t n = shape_elements(&s->input[0]), d = shape_last(&s->input[1]), rows = a->vocabulary;
    return rounded((2 * rows + 1) * 4) + rounded(over(rows + 1, ID_TILE) * 4) + rounded(8 * n) +
           2 * over(n, ID_WINDOW) * d * wide(t);
}

/* Table of the rows in each expert's slots. */
static int64_t routes(const struct shape *gates, const struct shape *slots)
{
    return 4 * gates->dim[0] * gates->dim[2] * (1 + gates->dim[1] + slots->dim[2]);
}

int64_t scratch_dispatch(const struct op_attrs *a, const struct op_shapes *s, enum dtype t)
{
    (void)a, (void)t;
    return routes(&s->input[1], &s->output[0]);
}

int64_t scratch_combine(const struct op_attrs *a, const struct op_shapes *s, enum dtype t)
{
    (void)a, (void)t;
    return routes(&s->input[1], &s->input[0]);
}

int64_t scratch_expert_matmul(const struct op_attrs *a, const struct op_shapes *s, enum dtype t)
{
    (void)a, (void)t;
    return 4 * s->input[2].dim[0] * s->input[2].dim[2];
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
    return units_max(1, units_min(c->images, DEVICE_COLUMNS / units_max(1, each)));
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
    int64_t n = at_once(c, units_max(column, size * w));
    enum dtype summed = t == DTYPE_fp64 ? DTYPE_fp64 : DTYPE_fp32;
    return rounded(n * column) + rounded(n * size * w) + rounded(size * w) +
           column_sums(summed, n, size);
}

int64_t scratch_norm_weight_grad(const struct op_attrs *a, const struct op_shapes *s, enum dtype t)
{
    int64_t n = shape_elements(&s->output[0]);
    (void)a;
    return n ? column_sums(t, shape_elements(&s->input[0]) / n, n) : 0;
}

/* Where the slope is no epilogue of the product. */
int64_t scratch_matmul_gelu_grad(const struct op_attrs *a, const struct op_shapes *s, enum dtype t)
{
    int64_t n = shape_elements(&s->output[1]);
    (void)a;
    return n ? column_sums(t, shape_elements(&s->output[0]) / n, n) : 0;
}

int64_t scratch_group_norm_weight_grad(const struct op_attrs *a, const struct op_shapes *s,
                                       enum dtype t)
{
    (void)a;
    return channel_sums(t, s->input[0].dim[0], s->input[0].dim[1]);
}

int64_t scratch_rotary(const struct op_attrs *a, const struct op_shapes *s, enum dtype t)
{
    return 2 * s->input[0].dim[1] * (a->head_dim / 2) * wide(t);
}

/* Of each row of o its product with its gradient. */
int64_t scratch_attention_grad(const struct op_attrs *a, const struct op_shapes *s, enum dtype t)
{
    const struct shape *o = &s->input[s->n_inputs - 2];
    return o->dim[0] * a->heads * o->dim[2] * wide(t);
}

int64_t scratch_cross_entropy(const struct op_attrs *a, const struct op_shapes *s, enum dtype t)
{
    (void)a, (void)t;
    return 8 * shape_rows(&s->input[0]);
}

int64_t scratch_cross_entropy_join(const struct op_attrs *a, const struct op_shapes *s,
                                   enum dtype t)
{
    (void)a, (void)t;
    return 8 * units_max(shape_rows(&s->input[0]), shape_rows(&s->input[1]));
}

/* Squares of blocks, and their sum. */
int64_t scratch_overflow(const struct op_attrs *a, const struct op_shapes *s, enum dtype t)
{
    (void)a, (void)t;
    return 8 * (1 + units_max(1, units_min(SQUARES_BLOCKS,
                                           over(shape_elements(&s->input[0]), SQUARES_BLOCK))));
}

/* Two sums of squares of each block, and their ratio. */
int64_t scratch_trust(const struct op_attrs *a, const struct op_shapes *s, enum dtype t)
{
    (void)a, (void)t;
    return 8 * (1 + 2 * units_max(1, units_min(TRUST_BLOCKS, over(shape_elements(&s->input[0]), TRUST_BLOCK))));
}

int64_t scratch_gating_grad(const struct op_attrs *a, const struct op_shapes *s, enum dtype t)
{
    (void)a, (void)t;
    return 4 * s->input[0].dim[0] * s->input[0].dim[2];
}

int64_t scratch_conv2d(const struct op_attrs *a, const struct op_shapes *s, enum dtype t)
{
    struct conv c = conv_of(a, &s->input[0], &s->input[1], &s->output[0]);
    return columns(&c, dtype_bytes(t));
}

int64_t scratch_conv2d_grad(const struct op_attrs *a, const struct op_shapes *s, enum dtype t)
{
    struct conv c = conv_of(a, &s->output[0], &s->input[0], &s->input[1]);
    return columns(&c, wide(t));
}

int64_t scratch_conv2d_weight_grad(const struct op_attrs *a, const struct op_shapes *s,
                                   enum dtype t)
{
    struct conv c = conv_of(a, &s->input[0], &s->output[0], &s->input[1]);
    return conv_weights(&c, t);
}
