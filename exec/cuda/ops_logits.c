/* exec/cuda/ops_logits.c - products with the vocabulary, whose rows of logits are padded (core/graph/op.h).
 *
 * cuBLAS uses its fast kernels only if addresses, rows and extents are multiples of 16 bytes; with an odd vocabulary
 * no product qualified. So each product is two: all entries but the last few, fewer than EVEN, and those. The second
 * reads the other operand once more, which costs some us and halves the time of the first.
 */
#include "exec/cuda/blas.h"
#include "exec/cuda/operands.h"

cuda_op cuda_op_logits, cuda_op_logits_grad, cuda_op_logits_weight_grad;

enum { EVEN = 8 };

static int64_t even(int64_t n) { return n - n % EVEN; }

/* Both operands of one dtype; the caller sets the sizes. */
static enum status product_of(const struct op_call *c, struct cuda_product *p, struct error *err)
{
    enum dtype type = cuda_input_dtype(c, 0), other = cuda_input_dtype(c, 1);
    *p = (struct cuda_product){.batch = 1,
                               .type = type,
                               .type_c = cuda_output_dtype(c, 0),
                               .beta = c->attrs->accumulate ? 1 : 0,
                               .a = c->input[0],
                               .b = c->input[1],
                               .c = c->output[0]};
    if (type == other) return OK;
    return error_set(err, ERR_INPUT, "%s: a left operand of %s and a right one of %s",
                     op_kind_name(c->kind), dtype_name(type), dtype_name(other));
}

static const void *behind(const void *p, int64_t elements, enum dtype t)
{
    return (const char *)p + elements * dtype_bytes(t);
}

enum status cuda_op_logits(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    const struct shape *a = &c->shapes->input[0];
    int64_t vocabulary = c->shapes->input[1].dim[0], first = even(vocabulary), k = shape_last(a);
    int64_t row = shape_last(&c->shapes->output[0]), rows = shape_rows(a);
    struct cuda_product p;
    TRY(product_of(c, &p, err));
    p.trans_b = true, p.m = rows, p.n = first, p.k = k;
    p.lda = k, p.ldb = k, p.ldc = row;
    struct cuda_product rest = p;
    rest.n = vocabulary - first;
    rest.b = behind(p.b, first * k, p.type);
    rest.c = (void *)(uintptr_t)behind(p.c, first, p.type_c);
    TRY(cuda_product(x, &p, err));
    TRY(cuda_product(x, &rest, err));
    size_t size = (size_t)dtype_bytes(p.type_c);
    if (!rows || row == vocabulary) return OK;
    return cuda_failed(cudaMemset2DAsync((char *)p.c + (size_t)vocabulary * size,
                                         (size_t)row * size, 0, (size_t)(row - vocabulary) * size,
                                         (size_t)rows, x->stream),
                       "logits", err);
}

enum status cuda_op_logits_grad(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    const struct shape *dy = &c->shapes->input[0], *w = &c->shapes->input[1];
    int64_t first = even(w->dim[0]);
    struct cuda_product p;
    TRY(product_of(c, &p, err));
    p.m = shape_rows(dy), p.n = w->dim[1], p.k = first;
    p.lda = shape_last(dy), p.ldb = p.ldc = p.n;
    struct cuda_product rest = p;
    rest.k = w->dim[0] - first;
    rest.a = behind(p.a, first, p.type);
    rest.b = behind(p.b, first * p.n, p.type);
    rest.beta = 1;
    TRY(cuda_product(x, &p, err));
    return cuda_product(x, &rest, err);
}

enum status cuda_op_logits_weight_grad(struct cuda_context *x, const struct op_call *c,
                                       struct error *err)
{
    const struct shape *dy = &c->shapes->input[0], *a = &c->shapes->input[1];
    int64_t first = even(c->attrs->vocabulary);
    struct cuda_product p;
    TRY(product_of(c, &p, err));
    p.trans_a = true, p.m = first, p.n = shape_last(a), p.k = shape_rows(dy);
    p.lda = shape_last(dy), p.ldb = p.ldc = p.n;
    struct cuda_product rest = p;
    rest.m = c->attrs->vocabulary - first;
    rest.a = behind(p.a, first, p.type);
    rest.c = (void *)(uintptr_t)behind(p.c, first * p.n, p.type_c);
    TRY(cuda_product(x, &p, err));
    return cuda_product(x, &rest, err);
}
