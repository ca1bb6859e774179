/* exec/cuda/ops_linear.c - a product and its bias in one kernel of cuBLASLt; two where that has none (exec/cuda/blas.c).
 *
 * The product's sum is rounded once, after the bias; apart it is rounded before and after. In half precision the bias
 * is of the product's numbers, as cuBLASLt wants it; a call whose bias is fp32 there is a mistake in lowering.
 */
#include "exec/cuda/blas.h"
#include "exec/cuda/operands.h"

cuda_op cuda_op_linear;

enum status cuda_op_linear(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    const struct shape *a = &c->shapes->input[0], *b = &c->shapes->input[1];
    enum dtype type = cuda_input_dtype(c, 0), of_bias = cuda_input_dtype(c, 2),
               of_c = cuda_output_dtype(c, 0);
    struct cuda_product p = {.trans_b = c->attrs->trans_b,
                             .m = shape_rows(a),
                             .n = shape_last(&c->shapes->output[0]),
                             .k = shape_last(a),
                             .lda = shape_last(a),
                             .ldb = shape_last(b),
                             .batch = 1,
                             .type = type,
                             .type_c = of_c,
                             .a = c->input[0],
                             .b = c->input[1],
                             .c = c->output[0],
                             .epilogue = EPILOGUE_BIAS,
                             .bias = c->input[2]};
    p.ldc = p.n;
    if (cuda_input_dtype(c, 1) != type || of_bias != of_c)
        return error_set(err, ERR_INPUT, "linear: operands of %s and %s, a bias of %s for %s",
                         dtype_name(type), dtype_name(cuda_input_dtype(c, 1)), dtype_name(of_bias),
                         dtype_name(of_c));
    return cuda_product(x, &p, err);
}
