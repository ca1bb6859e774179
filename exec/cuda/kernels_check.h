/* exec/cuda/kernels_check.h - launcher of the id check on the device. */
#ifndef EXEC_CUDA_KERNELS_CHECK_H
#define EXEC_CUDA_KERNELS_CHECK_H

#include "exec/cuda/fault.h"

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Records the first of ids (n) outside 0 … vocabulary-1 (and, with minus_one, not -1) as the fault unless one is
 * recorded. */
cudaError_t cuda_launch_check_ids(cudaStream_t stream, const int32_t *ids, int64_t n,
                                  int64_t vocabulary, int32_t minus_one, int32_t kind,
                                  struct cuda_fault *fault);

#ifdef __cplusplus
}
#endif

#endif
