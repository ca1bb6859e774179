/* exec/cuda/kernels_dropout.h - dropout: the very elements that the host drops (exec/host/kernels_host_dropout.inc). */
#ifndef EXEC_CUDA_KERNELS_DROPOUT_H
#define EXEC_CUDA_KERNELS_DROPOUT_H

#include "exec/cuda/dtype.h"

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* rows rows of n elements, one behind the other, per_sequence of them a sequence: row r begins at element
 * begin + (r mod per_sequence) · step of sequence first + r / per_sequence. An element is dropped where its 32 bits are less than
 * `below`, else multiplied by scale. */
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
