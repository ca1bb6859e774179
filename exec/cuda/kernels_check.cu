/* exec/cuda/kernels_check.cu - checks ids in device memory.
 *
 * One block reads all ids: there are a few thousand of 4 bytes, and one block finds the first invalid one without a
 * second launch. Each thread goes up through its ids, eight loads at once because the loop's continuation depends on
 * them; its first invalid id is its least, and the least of all threads is the one that the host would name. Nothing
 * is written if all ids are valid, so the fault in host memory costs no traffic.
 */
#include "exec/cuda/kernels_check.h"

#include "exec/cuda/launch.h"

#define THREADS 1024u
#define AT_ONCE 8

static __device__ __forceinline__ bool is_row(int32_t id, int64_t vocabulary, int32_t minus_one)
{
    return (id >= 0 && id < vocabulary) || (minus_one && id == -1);
}

static __global__ void __launch_bounds__(THREADS)
    check_ids(const int32_t *__restrict__ ids, int64_t n, int64_t vocabulary, int32_t minus_one,
              int32_t kind, struct cuda_fault *fault)
{
    __shared__ int64_t least[THREADS];
    int64_t found = n;
    for (int64_t i = threadIdx.x; i < n && found == n; i += AT_ONCE * THREADS) {
        int32_t id[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) id[k] = i + k * THREADS < n ? ids[i + k * THREADS] : 0;
#pragma unroll
        for (int k = AT_ONCE - 1; k >= 0; k--)
            if (i + k * THREADS < n && !is_row(id[k], vocabulary, minus_one)) found = i + k * THREADS;
    }
    least[threadIdx.x] = found;
    __syncthreads();
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half && least[threadIdx.x + half] < least[threadIdx.x])
            least[threadIdx.x] = least[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x || least[0] == n || fault->set) return;
    fault->kind = kind;
    fault->id = ids[least[0]];
    fault->index = least[0];
    fault->vocabulary = vocabulary;
    __threadfence_system();
    fault->set = 1;
}

cudaError_t cuda_launch_check_ids(cudaStream_t stream, const int32_t *ids, int64_t n,
                                  int64_t vocabulary, int32_t minus_one, int32_t kind,
                                  struct cuda_fault *fault)
{
    if (n == 0) return cudaSuccess;
    return LAUNCH(check_ids, 1, THREADS, 0, stream, ids, n, vocabulary, minus_one, kind, fault);
}
