/* exec/cuda/ops_linear.c - linear layers with fused bias and GELU, and products with GELU's derivative, by cuBLASLt
 * or its fallback (exec/cuda/blas.c).
 *
 * The fused result is rounded once, after the bias; the separate operators round before and after it. In half
 * precision the bias has the product's dtype, as cuBLASLt requires; an fp32 bias there is an error of lowering.
 */
#include "exec/cuda/blas.h"
#include "exec/cuda/operands.h"

cuda_op cuda_op_linear, cuda_op_linear_gelu, cuda_op_matmul_gelu_grad;

/* Inputs a, b and a third one, all of one dtype; a is not transposed. */
static enum status product_of(const struct op_call *c, enum product_epilogue epilogue,
                              struct cuda_product *p, struct error *err)
{
    const struct shape *a = &c->shapes->input[0], *b = &c->shapes->input[1];
    enum dtype type = cuda_input_dtype(c, 0), third = cuda_input_dtype(c, 2),
               of_c = cuda_output_dtype(c, 0);
    *p = (struct cuda_product){.trans_b = c->attrs->trans_b,
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
                               .epilogue = epilogue};
    p->ldc = p->n;
    bool alike = c->shapes->n_outputs < 2 || cuda_output_dtype(c, 1) == of_c;
    if (cuda_input_dtype(c, 1) == type && third == of_c && alike) return OK;
    return error_set(err, ERR_INPUT, "%s: operands of %s and %s, and of %s beside %s",
                     op_kind_name(c->kind), dtype_name(type), dtype_name(cuda_input_dtype(c, 1)),
                     dtype_name(third), dtype_name(of_c));
}

enum status cuda_op_linear(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    struct cuda_product p;
    TRY(product_of(c, EPILOGUE_BIAS, &p, err));
    p.bias = c->input[2];
    return cuda_product(x, &p, err);
}

enum status cuda_op_linear_gelu(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    struct cuda_product p;
    TRY(product_of(c, EPILOGUE_BIAS_GELU, &p, err));
    p.bias = c->input[2];
    p.aux = c->output[1];
    return cuda_product(x, &p, err);
}

enum status cuda_op_matmul_gelu_grad(struct cuda_context *x, const struct op_call *c,
                                     struct error *err)
{
    struct cuda_product p;
    TRY(product_of(c, EPILOGUE_GELU_SLOPE, &p, err));
    p.aux = (void *)(uintptr_t)c->input[2];
    p.sums = c->output[1];
    return cuda_product(x, &p, err);
}
