/* tests/gpu/plain/cblas.h - what the host's kernels ask of BLAS, for machines that have none; blas.c answers in plain loops. */
#ifndef TESTS_GPU_PLAIN_CBLAS_H
#define TESTS_GPU_PLAIN_CBLAS_H

typedef int blasint;
enum CBLAS_ORDER { CblasRowMajor = 101 };
enum CBLAS_TRANSPOSE { CblasNoTrans = 111, CblasTrans = 112 };

void cblas_sgemm(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE trans_a, enum CBLAS_TRANSPOSE trans_b,
                 blasint m, blasint n, blasint k, float alpha, const float *a, blasint lda,
                 const float *b, blasint ldb, float beta, float *c, blasint ldc);
void cblas_dgemm(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE trans_a, enum CBLAS_TRANSPOSE trans_b,
                 blasint m, blasint n, blasint k, double alpha, const double *a, blasint lda,
                 const double *b, blasint ldb, double beta, double *c, blasint ldc);

/* Of OpenBLAS: there is one thread, and nothing to tell. */
void openblas_set_num_threads(int n);
char *openblas_get_corename(void);
char *openblas_get_config(void);

#endif
