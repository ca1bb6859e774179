/* exec/cuda/kernels_attention_delta.cu - delta = Σ o·do per row and head, an input of both kernels of attention's
 * gradient.
 *
 * DELTA_LANES threads share one row of one head; o and do have the same layout, (b, queries, heads, head_dim), and
 * are read once. The kernel is bandwidth-bound as long as the row index costs little beside 256 bytes (bf16, heads of
 * 64). So a sequence's rows have 32-bit indices, divided by a multiplication; blockIdx.y is the sequence. (Four
 * 64-bit divisions take longer than a row's bytes.)
 */
#include "exec/cuda/kernels_attention.h"
#include "exec/cuda/launch.h"
#include "exec/cuda/pack.cuh"

enum { DELTA_LANES = 8, DELTA_THREADS = 256, DELTA_ROWS = DELTA_THREADS / DELTA_LANES };

template <class T>
static __global__ void __launch_bounds__(DELTA_THREADS)
    row_deltas(attention_call a, divider by_heads, bool vectors)
{
    using wide = typename dtype_traits<T>::wide;
    enum { VECTOR = 16 / sizeof(T) };
    uint32_t rows = (uint32_t)a.queries * (uint32_t)a.heads;
    uint32_t row = blockIdx.x * DELTA_ROWS + threadIdx.x / DELTA_LANES;
    int lane = threadIdx.x % DELTA_LANES;
    wide sum = 0;
    if (row < rows) {
        int64_t at = ((int64_t)blockIdx.y * rows + row) * a.head_dim;
        const T *o = static_cast<const T *>(a.o) + at, *dout = static_cast<const T *>(a.dout) + at;
        if (vectors)
            for (int i = lane * VECTOR; i < a.head_dim; i += DELTA_LANES * VECTOR) {
                wide x[VECTOR], y[VECTOR];
                read_packed<T, VECTOR>(o + i, x);
                read_packed<T, VECTOR>(dout + i, y);
#pragma unroll
                for (int j = 0; j < VECTOR; j++) sum += x[j] * y[j];
            }
        else
            for (int i = lane; i < a.head_dim; i += DELTA_LANES)
                sum += dtype_traits<T>::get(o[i]) * dtype_traits<T>::get(dout[i]);
    }
    sum = sum_lanes(sum, DELTA_LANES);
    if (lane || row >= rows) return;
    uint32_t position = row / by_heads, head = row - position * (uint32_t)a.heads;
    static_cast<wide *>(a.delta)[((int64_t)blockIdx.y * a.heads + head) * a.queries + position] = sum;
}

extern "C" cudaError_t cuda_attention_delta(const struct attention_call *a, cudaStream_t stream)
{
    int64_t rows = (int64_t)a->queries * a->heads;
    cudaError_t e = cudaSuccess;
    if (!rows || !a->b) return e;
    if (rows > INT32_MAX) return cudaErrorInvalidValue;
    dim3 grid((unsigned)over(rows, DELTA_ROWS), (unsigned)a->b);
    divider by_heads = divider_of(a->heads);
    CUDA_WITH_DTYPE(a->dtype, T,
                     bool vectors = a->head_dim * sizeof(T) % 16 == 0 && lies_packed(a->o, a->dout);
                     e = LAUNCH((row_deltas<T>), grid, dim3(DELTA_THREADS), 0, stream, *a, by_heads,
                                vectors));
    return e;
}
