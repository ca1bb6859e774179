/* exec/cuda/dtype.h - the kinds of numbers that kernels are compiled for.
 *
 * One list makes the enum and, in numbers.cuh, the switch that turns one of its values into a type. The names are those
 * of core/graph/op.h's dtypes, so that a dtype becomes a cuda_number by its name and nothing here knows the operator table.
 */
#ifndef EXEC_CUDA_DTYPE_H
#define EXEC_CUDA_DTYPE_H

/* name, the type of an element in device memory */
#define CUDA_NUMBERS(X) X(fp32, float) X(fp64, double) X(bf16, __nv_bfloat16) X(fp16, __half)

enum cuda_number {
#define X(name, type) CUDA_##name,
    CUDA_NUMBERS(X)
#undef X
        CUDA_NUMBER_COUNT
};

#endif
