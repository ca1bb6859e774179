/* tests/standin/product.h - one matrix product, shared by the stand-in's cuBLAS and cuBLASLt. */
#ifndef TESTS_STANDIN_PRODUCT_H
#define TESTS_STANDIN_PRODUCT_H

#include "tests/standin/cublas_v2.h"

#include <stdbool.h>
#include <stdint.h>

struct product_matrix { /* columns contiguous, ld elements apart */
    const void *at;
    cudaDataType_t type;
    int64_t ld, stride; /* elements; stride from one of the batch to the next */
};

/* d (m,n) = finish(alpha · op(a) (m,k) · op(b) (k,n) + beta · c + bias) */
struct product {
    int64_t m, n, k, batch;
    bool turn_a, turn_b;
    struct product_matrix a, b, c, d;
    bool fp64; /* compute type; else fp32 */
    bool rounds_between; /* split along k in two; the first half's sum is rounded to d's type */
    double alpha, beta;
    const void *bias; /* (m) of d's type; NULL: none */
    bool gelu;        /* by tanh */
    void *aux;        /* gelu's input, of d's type; NULL: not needed */
    int64_t aux_ld;
};

/* A scalar of the compute type. */
double product_scalar(const void *p, bool fp64);
/* Pushes it to the stream. Operands on another device, or beyond their allocation, make the device lost. */
cublasStatus_t product_push(const struct product *p, const char *call, cudaStream_t stream);
/* CUBLAS_STATUS of a runtime error. */
cublasStatus_t product_status(cudaError_t e);

#endif
