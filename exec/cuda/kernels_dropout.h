/* exec/cuda/kernels_dropout.h - dropout with the same mask as on the host (exec/host/kernels_host_dropout.inc). */
#ifndef EXEC_CUDA_KERNELS_DROPOUT_H
#define EXEC_CUDA_KERNELS_DROPOUT_H

#include "exec/cuda/dtype.h"

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `rows` contiguous rows of n elements, per_sequence of them per sequence: row r begins at element begin + (r mod
 * per_sequence) · step of sequence first + r / per_sequence. An element is dropped if its 32 random bits are less
 * than `below`, else multiplied by scale. */
struct cuda_drop {
    uint64_t key;
    uint32_t below;
    double scale;
    int64_t rows, n, per_sequence, begin, step, first;
};
cudaError_t cuda_dropout(enum cuda_dtype dtype, const struct cuda_drop *d, const void *x,
                         void *y, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
