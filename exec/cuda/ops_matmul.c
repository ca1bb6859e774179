/* exec/cuda/ops_matmul.c - matmul by cuBLAS (exec/cuda/blas.h).
 *
 * Leading dimensions of the left operand are flattened: one product, never a batch. Weight gradients of bf16 and fp16
 * operands are fp32 and accumulated. Both operands must have one dtype; otherwise lowering has an error.
 */
#include "exec/cuda/blas.h"
#include "exec/cuda/operands.h"

#include <inttypes.h>

cuda_op cuda_op_matmul;

enum status cuda_op_matmul(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    const struct op_attrs *t = c->attrs;
    const struct shape *a = &c->shapes->input[0], *b = &c->shapes->input[1];
    enum dtype type = cuda_input_dtype(c, 0), type_b = cuda_input_dtype(c, 1);
    int64_t a_rows = shape_rows(a), a_last = shape_last(a);
    struct cuda_product p = {.trans_a = t->trans_a,
                             .trans_b = t->trans_b,
                             .m = t->trans_a ? a_last : a_rows,
                             .n = t->trans_b ? shape_rows(b) : shape_last(b),
                             .k = t->trans_a ? a_rows : a_last,
                             .lda = a_last,
                             .ldb = shape_last(b),
                             .batch = 1,
                             .type = type,
                             .type_c = cuda_output_dtype(c, 0),
                             .beta = t->accumulate ? 1 : 0,
                             .a = c->input[0],
                             .b = c->input[1],
                             .c = c->output[0]};
    p.ldc = p.n;
    if (type != type_b)
        return error_set(err, ERR_INPUT, "matmul: a left operand of %s and a right one of %s",
                         dtype_name(type), dtype_name(type_b));
    if (p.m > INT32_MAX || p.n > INT32_MAX || p.k > INT32_MAX)
        return error_set(err, ERR_INPUT,
                         "matmul: (%" PRId64 ",%" PRId64 ")x(%" PRId64 ",%" PRId64 ") is too large for BLAS",
                         p.m, p.k, p.k, p.n);
    return cuda_product(x, &p, err);
}
