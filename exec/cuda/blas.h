/* exec/cuda/blas.h - row-major matrix products by cuBLAS, and by cuBLASLt for fused epilogues.
 *
 * Repeatable: each stream's handle has its own workspace of fixed size and nothing is autotuned, so the same call on
 * the same GPU gives the same bytes. fp32 is computed in fp32 (no TF32); bf16 and fp16 accumulate in fp32, also if a
 * product is split along k.
 */
#ifndef EXEC_CUDA_BLAS_H
#define EXEC_CUDA_BLAS_H

#include "exec/cuda/context.h"

enum product_epilogue {
    EPILOGUE_NONE,
    EPILOGUE_BIAS,      /* + bias per column */
    EPILOGUE_BIAS_GELU  /* then gelu (tanh form); aux, unless NULL, receives gelu's input */
};

/* c (m,n) = op(a) (m,k) · op(b) (k,n) + beta · c, `batch` times. a is stored as (m,k), with trans_a as (k,m); b as
 * (k,n), with trans_b as (n,k). lda, ldb, ldc are row strides in elements, stride_* are batch strides; a stride of 0
 * repeats one matrix. a and b have dtype `type`; c has dtype `type_c`: the same, or fp32 if `type` is bf16 or fp16. */
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
    const void *bias; /* (n) of dtype type_c */
    void *aux;        /* (m,n) of dtype type_c, row stride ldc */
};

/* ERR_INPUT for a dtype or size that cuBLAS does not support. An empty product leaves c · beta. */
MUST_CHECK enum status cuda_product(struct cuda_context *x, const struct cuda_product *p,
                                    struct error *err);
/* Set-up: creates the workspace and handles of a prepared stream; without this call its products are errors. */
MUST_CHECK enum status cuda_product_prepare(struct cuda_context *x, struct error *err);
/* Frees the handles and plans of a stream. */
void cuda_product_close(struct cuda_context *x);
/* cuBLAS's version, 130002; 0 if unknown. */
int32_t cuda_product_version(void);

#endif
