/* exec/cuda/blas.h - matrix products of row-major matrices by cuBLAS, and by cuBLASLt where something is fused to them.
 *
 * Repeatable: a stream's handle has a workspace of its own and of fixed size, and nothing is tuned at run time, so the same
 * call on the same GPU gives the same bytes. fp32 is computed in fp32 (no TF32); bf16 and fp16 are added up in fp32,
 * also where a product is cut along k.
 */
#ifndef EXEC_CUDA_BLAS_H
#define EXEC_CUDA_BLAS_H

#include "exec/cuda/context.h"

enum product_epilogue {
    EPILOGUE_NONE,
    EPILOGUE_BIAS,      /* + bias of each column */
    EPILOGUE_BIAS_GELU, /* gelu by tanh of that; aux, unless NULL, gets what it was taken of */
    EPILOGUE_GELU_SLOPE /* times gelu's slope, by tanh, at aux; `sums` gets what the rows of that add up to */
};

/* c (m,n) = op(a) (m,k) · op(b) (k,n) + beta · c, `batch` times. a lies as (m,k), with trans_a as (k,m); b as (k,n), with
 * trans_b as (n,k). Rows are lda, ldb, ldc elements apart, matrices of a batch stride_* elements; a stride of 0 is one
 * matrix for all. a and b are of dtype `type`; c is of `type_c`: the same, or fp32 where `type` is bf16 or fp16. */
struct cuda_product {
    bool trans_a, trans_b;
    int64_t m, n, k, lda, ldb, ldc;
    int64_t batch; /* 1 for one product */
    int64_t stride_a, stride_b, stride_c;
    enum dtype type, type_c;
    double beta;
    const void *a, *b;
    void *c;
    /* With batch 1 and beta 0 only. */
    enum product_epilogue epilogue;
    const void *bias; /* (n) of type_c's dtype */
    void *sums;       /* (n) of type_c's dtype */
    void *aux;        /* (m,n) of type_c's dtype, rows ldc apart; GELU_SLOPE only reads it */
};

/* ERR_INPUT for a dtype or size that cuBLAS has no product for. Empty products leave c · beta. */
MUST_CHECK enum status cuda_product(struct cuda_context *x, const struct cuda_product *p,
                                    struct error *err);
/* The workspace and the handles of a prepared stream, at set-up; without it its products are refused. */
MUST_CHECK enum status cuda_product_prepare(struct cuda_context *x, struct error *err);
/* Frees what the products of a stream made. */
void cuda_product_close(struct cuda_context *x);
/* cuBLAS's own version, 130002; 0 where it does not say. */
int32_t cuda_product_version(void);

#endif
