/* exec/cuda/dtype.h - the dtypes that kernels are compiled for.
 *
 * One list generates the enum and, in dtypes.cuh, the switch from a value to a C++ type. The names are those of
 * core/graph/op.h's dtypes, so that a dtype maps to its cuda_dtype by name and this header needs no operator table.
 */
#ifndef EXEC_CUDA_DTYPE_H
#define EXEC_CUDA_DTYPE_H

/* name, element type in device memory */
#define CUDA_DTYPES(X) X(fp32, float) X(fp64, double) X(bf16, __nv_bfloat16) X(fp16, __half)

enum cuda_dtype {
#define X(name, type) CUDA_##name,
    CUDA_DTYPES(X)
#undef X
        CUDA_DTYPE_COUNT
};

#endif
