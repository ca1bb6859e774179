/* tests/gpu/plain/blas.c - products in plain loops: a reference, slow and the same everywhere. */
#include "tests/gpu/plain/cblas.h"

#include <stdint.h>

/* c (m,n) = alpha · op(a) · op(b) + beta · c, row-major. beta 0: what c held is not read. O(m·n·k). */
#define GEMM(name, REAL)                                                                           \
    void name(enum CBLAS_ORDER order, enum CBLAS_TRANSPOSE trans_a, enum CBLAS_TRANSPOSE trans_b,  \
              blasint m, blasint n, blasint k, REAL alpha, const REAL *a, blasint lda,             \
              const REAL *b, blasint ldb, REAL beta, REAL *c, blasint ldc)                         \
    {                                                                                              \
        int64_t a_row = trans_a == CblasTrans ? 1 : lda, a_step = trans_a == CblasTrans ? lda : 1; \
        int64_t b_row = trans_b == CblasTrans ? 1 : ldb, b_step = trans_b == CblasTrans ? ldb : 1; \
        (void)order;                                                                               \
        for (int64_t i = 0; i < m; i++) {                                                          \
            REAL *y = c + i * ldc;                                                                 \
            for (int64_t j = 0; j < n; j++) y[j] = beta == 0 ? 0 : beta * y[j];                    \
            for (int64_t p = 0; p < k; p++) {                                                      \
                REAL x = alpha * a[i * a_row + p * a_step];                                        \
                for (int64_t j = 0; j < n; j++) y[j] += x * b[p * b_row + j * b_step];             \
            }                                                                                      \
        }                                                                                          \
    }

GEMM(cblas_sgemm, float)
GEMM(cblas_dgemm, double)

void openblas_set_num_threads(int n) { (void)n; }
char *openblas_get_corename(void)
{
    static char name[] = "plain loops";
    return name;
}
char *openblas_get_config(void)
{
    static char name[] = "";
    return name;
}
