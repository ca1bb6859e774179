/* exec/cuda/ops_images.c - convolutions as matrix products of im2col columns (exec/cuda/kernels_images.h, blas.h),
 * and pooling.
 *
 * The input window of each output place is a column (Chellapilla et al. 2006). A batched product takes the images
 * whose columns fit into COLUMNS_MAX bytes, at least one. A 1x1 kernel with stride 1 uses x itself without a copy:
 * half of a residual network's convolutions. The weight gradient is one product per image in scratch, added like rows
 * of a matrix, so its size limits the batch too. The batch, and so the order of every sum, depends on shapes alone.
 */
#include "exec/cuda/blas.h"
#include "exec/cuda/context.h"
#include "exec/cuda/kernels_elementwise.h"
#include "exec/cuda/kernels_images.h"
#include "exec/cuda/kernels_sums.h"
#include "exec/cuda/operands.h"

cuda_op cuda_op_conv2d, cuda_op_conv2d_grad, cuda_op_conv2d_weight_grad, cuda_op_max_pool2d,
    cuda_op_max_pool2d_grad, cuda_op_avg_pool2d, cuda_op_avg_pool2d_grad;

enum { COLUMNS_MAX = 64 << 20, ALIGN = 256 };

struct conv {
    struct cuda_window window;
    enum dtype dtype; /* of the images */
    int64_t o, taps;  /* channels of y; c·kh·kw */
    int64_t places,
        from;   /* oh·ow; offset of the first one in a plane of x that is used directly */
    bool plain; /* columns are x itself */
};

static int64_t wide_bytes(enum dtype t) { return t == DTYPE_fp64 ? 8 : 4; }
static int64_t rounded(int64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static const void *at(const void *p, int64_t elements, enum dtype t)
{
    return (const char *)p + elements * dtype_bytes(t);
}
static void *out_at(void *p, int64_t elements, enum dtype t)
{
    return (char *)p + elements * dtype_bytes(t);
}

static struct cuda_window window_of(const struct op_call *c, const struct shape *x,
                                    const struct shape *y, const int64_t kernel[2],
                                    enum cuda_dtype dtype)
{
    const struct stencil *k = &c->attrs->stencil;
    return (struct cuda_window){.dtype = dtype,
                                .b = x->dim[0],
                                .c = x->dim[1],
                                .h = x->dim[2],
                                .w = x->dim[3],
                                .oh = y->dim[2],
                                .ow = y->dim[3],
                                .first = c->attrs->lines.first,
                                .kernel = {(int32_t)kernel[0], (int32_t)kernel[1]},
                                .stride = {k->stride[0], k->stride[1]},
                                .padding = {k->padding[0], k->padding[1]}};
}

/* major: bits of the inputs and outputs that are images or weights of products. */
static enum status conv_of(const struct op_call *c, const struct shape *x,
                           const struct shape *weight, const struct shape *y, uint32_t major_in,
                           uint32_t major_out, struct conv *v, struct error *err)
{
    enum cuda_dtype dtype;
    TRY(cuda_major_dtype(c, major_in, major_out, &dtype, err));
    const struct stencil *k = &c->attrs->stencil;
    *v = (struct conv){.window = window_of(c, x, y, &weight->dim[2], dtype),
                       .dtype = dtype == CUDA_fp32 ? DTYPE_fp32 : c->dtype,
                       .o = y->dim[1],
                       .taps = x->dim[1] * weight->dim[2] * weight->dim[3],
                       .places = y->dim[2] * y->dim[3],
                       .from = c->attrs->lines.first * x->dim[3]};
    v->plain = weight->dim[2] * weight->dim[3] == 1 && k->stride[0] * k->stride[1] == 1;
    if (most(v->taps, most(v->o, most(v->places, v->window.c * v->window.h * v->window.w))) <=
        INT32_MAX)
        return OK;
    return error_set(err, ERR_INPUT, "%s: its images are too large for 32-bit indices",
                     op_kind_name(c->kind));
}

/* Images per batch, each taking `each` bytes of scratch. */
static int64_t images_at_once(const struct conv *v, int64_t each)
{
    return most(1, least(v->window.b, COLUMNS_MAX / most(1, each)));
}

/* Columns of `b` images from the given one on; v then describes them. */
static enum status columns(struct cuda_context *x, struct conv *v, int64_t b, const void *from,
                           void *to, const char *name, struct error *err)
{
    v->window.b = b;
    return cuda_failed(cuda_columns(&v->window, from, to, x->stream), name, err);
}

/* y (o, places) = weight (o, taps) · columns (taps, places) of each image. */
static enum status multiply(struct cuda_context *x, const struct conv *v, int64_t b,
                            const void *weight, const void *column, void *y, struct error *err)
{
    int64_t plane = v->window.h * v->window.w;
    struct cuda_product p = {.m = v->o,
                             .n = v->places,
                             .k = v->taps,
                             .lda = v->taps,
                             .ldb = v->plain ? plane : v->places,
                             .ldc = v->places,
                             .batch = b,
                             .stride_b = v->taps * (v->plain ? plane : v->places),
                             .stride_c = v->o * v->places,
                             .type = v->dtype,
                             .type_c = v->dtype,
                             .a = weight,
                             .b = v->plain ? at(column, v->from, v->dtype) : column,
                             .c = y};
    return cuda_product(x, &p, err);
}

enum status cuda_op_conv2d(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    struct conv v;
    void *scratch = NULL;
    TRY(conv_of(c, &c->shapes->input[0], &c->shapes->input[1], &c->shapes->output[0], 3, 1, &v,
                err));
    int64_t all = v.window.b, each = v.taps * v.places * dtype_bytes(v.dtype);
    int64_t n = v.plain ? all : images_at_once(&v, each);
    int64_t image = v.window.c * v.window.h * v.window.w;
    if (!all || !v.o || !v.places) return OK;
    if (!v.plain) TRY(cuda_scratch(x, (size_t)(n * each), &scratch, err));
    for (int64_t b = 0; b < all; b += n) {
        const void *in = at(c->input[0], b * image, v.dtype);
        int64_t now = least(n, all - b);
        if (!v.plain) TRY(columns(x, &v, now, in, scratch, "conv2d", err));
        TRY(multiply(x, &v, now, c->input[1], v.plain ? in : scratch,
                     out_at(c->output[0], b * v.o * v.places, v.dtype), err));
    }
    return OK;
}

/* columns (taps, places) = weightᵀ · dy of each image; for a plain convolution they are dx itself. */
static enum status multiply_back(struct cuda_context *x, const struct conv *v, int64_t b,
                                 const void *weight, const void *dy, void *column,
                                 struct error *err)
{
    int64_t plane = v->window.h * v->window.w;
    enum dtype wide = v->dtype == DTYPE_fp64 ? DTYPE_fp64 : DTYPE_fp32;
    struct cuda_product p = {.trans_a = true,
                             .m = v->taps,
                             .n = v->places,
                             .k = v->o,
                             .lda = v->taps,
                             .ldb = v->places,
                             .ldc = v->plain ? plane : v->places,
                             .batch = b,
                             .stride_b = v->o * v->places,
                             .stride_c = v->taps * (v->plain ? plane : v->places),
                             .type = v->dtype,
                             .type_c = v->plain ? v->dtype : wide,
                             .a = weight,
                             .b = dy,
                             .c = v->plain ? out_at(column, v->from, v->dtype) : column};
    return cuda_product(x, &p, err);
}

enum status cuda_op_conv2d_grad(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    struct conv v;
    void *scratch = NULL;
    const struct shape *dx = &c->shapes->output[0];
    TRY(conv_of(c, dx, &c->shapes->input[0], &c->shapes->input[1], 3, 1, &v, err));
    int64_t all = v.window.b, each = v.taps * v.places * wide_bytes(v.dtype);
    int64_t n = v.plain ? all : images_at_once(&v, each);
    int64_t bytes = shape_elements(dx) * dtype_bytes(v.dtype);
    /* Zeroes elements of dx that no window covers, or all without channels. */
    bool clears = v.plain ? v.places < v.window.h * v.window.w || !v.o : !v.places || !v.o;
    if (clears && bytes)
        TRY(cuda_failed(cudaMemsetAsync(c->output[0], 0, (size_t)bytes, x->stream), "conv2d_grad",
                        err));
    if (!bytes || !v.places || !v.o) return OK;
    if (!v.plain) TRY(cuda_scratch(x, (size_t)(n * each), &scratch, err));
    for (int64_t b = 0; b < all; b += n) {
        void *out = out_at(c->output[0], b * v.window.c * v.window.h * v.window.w, v.dtype);
        int64_t now = least(n, all - b);
        TRY(multiply_back(x, &v, now, c->input[0], at(c->input[1], b * v.o * v.places, v.dtype),
                          v.plain ? out : scratch, err));
        v.window.b = now;
        if (!v.plain)
            TRY(cuda_failed(cuda_columns_back(&v.window, scratch, out, x->stream), "conv2d_grad",
                            err));
    }
    return OK;
}

/* dweight (o, taps) of each image = dy (o, places) · columnsᵀ. */
static enum status multiply_weights(struct cuda_context *x, const struct conv *v, int64_t b,
                                    const void *dy, const void *column, void *part,
                                    struct error *err)
{
    int64_t plane = v->window.h * v->window.w;
    struct cuda_product p = {.trans_b = true,
                             .m = v->o,
                             .n = v->taps,
                             .k = v->places,
                             .lda = v->places,
                             .ldb = v->plain ? plane : v->places,
                             .ldc = v->taps,
                             .batch = b,
                             .stride_a = v->o * v->places,
                             .stride_b = v->taps * (v->plain ? plane : v->places),
                             .stride_c = v->o * v->taps,
                             .type = v->dtype,
                             .type_c = v->dtype == DTYPE_fp64 ? DTYPE_fp64 : DTYPE_fp32,
                             .a = dy,
                             .b = v->plain ? at(column, v->from, v->dtype) : column,
                             .c = part};
    return cuda_product(x, &p, err);
}

struct
    weight_scratch { /* (n) images: their columns and products; sums of these, and scratch for sums */
    int64_t n;
    void *columns, *parts, *total, *sums;
};

static enum status weight_scratch(struct cuda_context *x, const struct conv *v, bool narrow,
                                  struct weight_scratch *s, struct error *err)
{
    int64_t size = v->o * v->taps, wide = wide_bytes(v->dtype);
    enum cuda_dtype dtype = v->dtype == DTYPE_fp64 ? CUDA_fp64 : CUDA_fp32;
    int64_t column = v->plain ? 0 : v->taps * v->places * dtype_bytes(v->dtype);
    s->n = images_at_once(v, most(column, size * wide));
    int64_t parts = rounded(s->n * column), total = parts + rounded(s->n * size * wide);
    int64_t sums = total + (narrow ? rounded(size * wide) : 0);
    TRY(cuda_scratch(x, (size_t)sums + cuda_column_sums_scratch(dtype, s->n, size), &s->columns,
                     err));
    s->parts = (char *)s->columns + parts;
    s->total = (char *)s->columns + total;
    s->sums = (char *)s->columns + sums;
    return OK;
}

/* Sums the products of the images, optionally into the existing gradient. */
static enum status add_up(struct cuda_context *x, const struct conv *v,
                          const struct weight_scratch *s, int64_t images, void *out, bool add,
                          struct error *err)
{
    struct cuda_sum sum = {.kind = CUDA_SUM_plain,
                           .dtype = v->dtype == DTYPE_fp64 ? CUDA_fp64 : CUDA_fp32,
                           .dy = s->parts,
                           .out = {out},
                           .add = add};
    return cuda_failed(cuda_column_sums(&sum, images, v->o * v->taps, s->sums, x->stream),
                       "conv2d_weight_grad", err);
}

enum status cuda_op_conv2d_weight_grad(struct cuda_context *x, const struct op_call *c,
                                       struct error *err)
{
    struct conv v;
    struct weight_scratch s;
    TRY(conv_of(c, &c->shapes->input[0], &c->shapes->output[0], &c->shapes->input[1], 3, 0, &v,
                err));
    int64_t all = v.window.b, size = v.o * v.taps;
    bool narrow = dtype_is_half(cuda_output_dtype(c, 0)), add = c->attrs->accumulate;
    if (!size) return OK;
    TRY(weight_scratch(x, &v, narrow, &s, err));
    void *out = narrow ? s.total : c->output[0];
    bool begun = add && !narrow;
    for (int64_t b = 0; b < all && v.places; b += s.n, begun = true) {
        const void *in = at(c->input[0], b * v.window.c * v.window.h * v.window.w, v.dtype);
        int64_t now = least(s.n, all - b);
        if (!v.plain) TRY(columns(x, &v, now, in, s.columns, "conv2d_weight_grad", err));
        TRY(multiply_weights(x, &v, now, at(c->input[1], b * v.o * v.places, v.dtype),
                             v.plain ? in : s.columns, s.parts, err));
        TRY(add_up(x, &v, &s, now, out, begun, err));
    }
    if (!begun) TRY(add_up(x, &v, &s, 0, out, false, err)); /* no images: zeros */
    if (!narrow) return OK;
    return cuda_failed(
        cuda_cast(CUDA_fp32, out, cuda_dtype_of(c->dtype), c->output[0], add, size, x->stream),
        "conv2d_weight_grad", err);
}

/* --- pooling --- */

static enum status pool_of(const struct op_call *c, const struct shape *x, const struct shape *y,
                           uint32_t major_in, struct cuda_window *v, struct error *err)
{
    const struct stencil *k = &c->attrs->stencil;
    int64_t kernel[2] = {k->kernel[0], k->kernel[1]};
    enum cuda_dtype dtype;
    TRY(cuda_major_dtype(c, major_in, 1, &dtype, err));
    *v = window_of(c, x, y, kernel, dtype);
    if (most(v->h * v->w, v->oh * v->ow) <= INT32_MAX) return OK;
    return error_set(err, ERR_INPUT, "%s: its images are too large for 32-bit indices",
                     op_kind_name(c->kind));
}

enum status cuda_op_max_pool2d(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    struct cuda_window v;
    TRY(pool_of(c, &c->shapes->input[0], &c->shapes->output[0], 1, &v, err));
    bool wide = v.dtype != CUDA_fp32 && cuda_output_is_wide(c, 1);
    return cuda_failed(cuda_max_pool(&v, c->input[0], c->output[0], c->output[1], wide, x->stream),
                       "max_pool2d", err);
}

enum status cuda_op_max_pool2d_grad(struct cuda_context *x, const struct op_call *c,
                                    struct error *err)
{
    struct cuda_window v;
    TRY(pool_of(c, &c->shapes->output[0], &c->shapes->input[1], 2, &v, err));
    bool wide = v.dtype != CUDA_fp32 && cuda_input_is_wide(c, 0);
    return cuda_failed(
        cuda_max_pool_grad(&v, c->input[0], wide, c->input[1], c->output[0], x->stream),
        "max_pool2d_grad", err);
}

enum status cuda_op_avg_pool2d(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    struct cuda_window v;
    TRY(pool_of(c, &c->shapes->input[0], &c->shapes->output[0], 1, &v, err));
    return cuda_failed(cuda_avg_pool(&v, c->input[0], c->output[0], x->stream), "avg_pool2d", err);
}

enum status cuda_op_avg_pool2d_grad(struct cuda_context *x, const struct op_call *c,
                                    struct error *err)
{
    struct cuda_window v;
    TRY(pool_of(c, &c->shapes->output[0], &c->shapes->input[0], 1, &v, err));
    return cuda_failed(cuda_avg_pool_grad(&v, c->input[0], c->output[0], x->stream),
                       "avg_pool2d_grad", err);
}
