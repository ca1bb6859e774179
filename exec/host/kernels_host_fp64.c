/* exec/host/kernels_host_fp64.c - the kernels of exec/host/kernels_host_all.inc over double. */
#define REAL double
#define BITS uint64_t
#define REAL_FRACTION 52 /* bits */
#define REAL_BIAS 1023
#define NAME(x) x##_fp64
#define TABLE kernels_host_fp64
#define EXP host_exp_fp64
#define NORMAL host_normal_fp64
#define SQRT sqrt
#define ROOTS host_roots_fp64
#define LOG log
#define TANH tanh
#define GEMM cblas_dgemm
#include "exec/host/kernels_host_all.inc"
