/* tests/standin/product.h - one matrix product, as both of the BLAS twins ask for it. */
#ifndef TESTS_STANDIN_PRODUCT_H
#define TESTS_STANDIN_PRODUCT_H

#include "tests/standin/cublas_v2.h"

#include <stdbool.h>
#include <stdint.h>

struct product_matrix { /* columns contiguous, ld elements from one to the next */
    const void *at;
    cudaDataType_t type;
    int64_t ld, stride; /* elements; stride from one of the batch to the next */
};

/* d (m,n) = finish(alpha · op(a) (m,k) · op(b) (k,n) + beta · c + bias) */
struct product {
    int64_t m, n, k, batch;
    bool turn_a, turn_b;
    struct product_matrix a, b, c, d;
    bool fp64; /* computed in; else fp32 */
    bool rounds_between; /* cut along k in two, the first of which is rounded to d's type */
    double alpha, beta;
    const void *bias; /* (m) of d's type; NULL: none */
    bool gelu;        /* by tanh */
    void *aux;        /* what gelu was taken of, of d's type; NULL: nobody asks */
    int64_t aux_ld;
    bool slope; /* times gelu's slope at aux, which is only read */
    void *sums; /* (m) of d's type: d's columns added up; NULL: nobody asks */
};

/* The scalar as the type of computing has it. */
double product_scalar(const void *p, bool fp64);
/* Gives it to the stream. Operands that are not on the stream's device, or leave their allocation, lose the device. */
cublasStatus_t product_push(const struct product *p, const char *call, cudaStream_t stream);
/* CUBLAS_STATUS of a call that must not go on. */
cublasStatus_t product_status(cudaError_t e);

#endif
