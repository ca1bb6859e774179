/* exec/cuda/kernels_trust.h - launchers of LAMB and LARS for one whole parameter: its rate depends on two norms. */
#ifndef EXEC_CUDA_KERNELS_TRUST_H
#define EXEC_CUDA_KERNELS_TRUST_H

#include "exec/cuda/kernels_update.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As cuda_update, with v; `keep` is not used.
 *   LAMB (v): d = rate·m / (√v / root + eps) + decay·p;  p -= (lr·|p| / |d|) d        decay is lr times the weight decay
 *   LARS (v NULL): m = beta1·m + lr·r·(g + decay·p);  p -= m;  r = trust·|p| / (|g| + decay·|p|)
 * Where a norm is 0 the factor is 1. scratch: cuda_trust_scratch bytes. */
struct cuda_trust {
    struct cuda_optimizer of;
    double lr, decay, trust;
};
size_t cuda_trust_scratch(int64_t n);
cudaError_t cuda_trust_update(const struct cuda_trust *u, int64_t n, void *scratch, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
