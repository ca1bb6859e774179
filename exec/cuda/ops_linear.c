/* exec/cuda/ops_linear.c - linear layers with fused bias and GELU, and products with GELU's derivative, by cuBLASLt
 * or its fallback (exec/cuda/blas.c).
 *
 * The fused result is rounded once, after the bias; the separate operators round before and after it. In half
 * precision the bias has the product's dtype, as cuBLASLt requires; an fp32 bias there is an error of lowering.
 */
#include "exec/cuda/blas.h"
#include "exec/cuda/kernels_elementwise.h"
#include "exec/cuda/kernels_sums.h"
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

/* The product, its GELU derivative in place, and the column sums are three launches. cuBLASLt's DGELU_BGRAD epilogue is not fused on
 * sm_90 either: a general kernel of 322 us follows the product of 112 us (16,384 x 3,072 in bf16, cuBLAS 13.1, H200). */
enum status cuda_op_matmul_gelu_grad(struct cuda_context *x, const struct op_call *c,
                                     struct error *err)
{
    struct cuda_product p;
    TRY(product_of(c, EPILOGUE_NONE, &p, err));
    TRY(cuda_product(x, &p, err));
    enum cuda_dtype t = cuda_dtype_of(p.type_c);
    struct cuda_sum s = {.kind = CUDA_SUM_plain, .dtype = t, .dy = p.c, .out = {c->output[1]}};
    void *scratch;
    TRY(cuda_scratch(x, cuda_column_sums_scratch(t, p.m, p.n), &scratch, err));
    TRY(cuda_failed(cuda_flat(CUDA_FLAT_gelu_tanh_grad, t, c->input[2], p.c, NULL, 0, p.c, NULL,
                              p.m * p.n, x->stream),
                    "gelu_grad", err));
    return cuda_failed(cuda_column_sums(&s, p.m, p.n, scratch, x->stream), "sums", err);
}
