/* tests/standin/kernels_try.cu - kernels that only the stand-in's own suites run. */
#include "tests/standin/kernels_try.h"

#include "exec/cuda/launch.h"
#include "exec/cuda/numbers.cuh"

template <class T> __global__ void block_sums(const T *in, T *out, int n)
{
    using W = typename number<T>::wide;
    __shared__ W part[32];
    W sum = 0;
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n;
         i += (int)(gridDim.x * blockDim.x))
        sum += number<T>::get(in[i]);
    for (int by = 16; by; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0;
        for (unsigned w = 0; w < blockDim.x / 32; w++) sum += part[w];
        out[blockIdx.x] = number<T>::put(sum);
    }
}

cudaError_t try_block_sums(enum cuda_number number_, const void *in, void *out, int n, int blocks,
                           cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    CUDA_WITH_NUMBER(number_, T, e = LAUNCH((block_sums<T>), blocks, 256, 0, stream,
                                            static_cast<const T *>(in), static_cast<T *>(out), n));
    return e;
}
