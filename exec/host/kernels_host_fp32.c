/* exec/host/kernels_host_fp32.c - the kernels of exec/host/kernels_host_all.inc over float. */
#define REAL float
#define BITS uint32_t
#define REAL_FRACTION 23 /* bits */
#define REAL_BIAS 127
#define NAME(x) x##_fp32
#define TABLE kernels_host_fp32
#define EXP host_exp_fp32
#define NORMAL host_normal_fp32
#define SQRT sqrtf
#define ROOTS host_roots_fp32
#define LOG logf
#define TANH tanhf
#define GEMM cblas_sgemm
#include "exec/host/kernels_host_all.inc"
