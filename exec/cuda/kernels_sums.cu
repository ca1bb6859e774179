/* exec/cuda/kernels_sums.cu - sums in an order that depends on shapes alone: no atomics, the same bytes every time.
 *
 * Columns: a block has up to 32 packs of adjacent columns and at least 8 rows, so a warp reads 512 bytes of one row;
 * it goes down a stretch of rows, two or four loads at once, and its rows are then added in a tree through shared
 * memory. The number of stretches fills the GPU, at most CHUNKS: an H200's 132 multiprocessors hold 4 blocks each (by
 * registers), so twice that in all (BLOCKS) or once, never slightly more, because the last few blocks would delay the
 * result. Each stretch leaves one row of sums in scratch, which a second kernel adds. Scratch traffic: 2 · CHUNKS
 * rows of fp32 against thousands of rows of the operand. Channels of images: a block per channel and stretch of
 * images; then the same second kernel.
 */
#include "exec/cuda/kernels_sums.h"

#include "exec/cuda/launch.h"
#include "exec/cuda/pack.cuh"

enum { CHUNKS = 256, BLOCKS = 1056, CHUNK_ROWS = 32 };

/* --- stretches of rows --- */

struct column_plan {
    int64_t tiles, chunks, rows_each;
    dim3 block;
};

/* Number of stretches for columns in `tiles` tiles. */
static int64_t stretches(int64_t tiles)
{
    int64_t n = BLOCKS / tiles;
    return n <= CHUNKS ? n : least(CHUNKS, BLOCKS / 2 / tiles);
}

static column_plan plan_columns(int64_t pack_size, int64_t rows, int64_t n)
{
    column_plan p;
    int64_t packs = over(n, pack_size);
    unsigned x = 1;
    while (x < packs && x < WARP) x *= 2;
    p.block = dim3(x, BLOCK / x);
    p.tiles = over(packs, x);
    p.chunks = most(1, least(over(rows, CHUNK_ROWS), stretches(p.tiles)));
    p.rows_each = over(rows, p.chunks);
    return p;
}

template <class T> struct sum_operands {
    const T *x, *dy;
    either stats;
};

/* The row's mean and scale. */
template <class T, int KIND>
static __device__ __forceinline__ void row_stats(either stats, int64_t r, wide_of<T> &mean,
                                                 wide_of<T> &scale)
{
    mean = 0, scale = 1;
    if (KIND == CUDA_SUM_scaled) scale = read_either<T>(stats, r);
    if (KIND == CUDA_SUM_centred) {
        mean = read_either<T>(stats, 2 * r);
        scale = read_either<T>(stats, 2 * r + 1);
    }
}

template <int KIND> struct sums_of {
    enum { SUMS = KIND == CUDA_SUM_centred ? 2 : 1, ROWS = KIND == CUDA_SUM_plain ? 4 : 2 };
};

/* What a thread adds up: columns i … of its rows of the block's stretch. WHOLE: all lie packed. */
template <class T, int KIND, bool WHOLE, int SUMS, int N>
static __device__ __forceinline__ void add_rows(const sum_operands<T> &o, int64_t i, int64_t begin,
                                                int64_t end, int64_t n, bool packed,
                                                wide_of<T> (&sum)[SUMS][N])
{
    enum { ROWS = sums_of<KIND>::ROWS };
    using W = wide_of<T>;
    int64_t step = blockDim.y;
    for (int64_t r = begin + threadIdx.y; r < end && i < n; r += ROWS * step) {
        elements<T, N> in_x[ROWS], in_dy[ROWS];
        W mean[ROWS], scale[ROWS];
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            int64_t row = r + k * step;
            if (row >= end) break;
            in_dy[k].template load<WHOLE>(o.dy + row * n, i, n, packed);
            if (KIND != CUDA_SUM_plain) in_x[k].template load<WHOLE>(o.x + row * n, i, n, packed);
            row_stats<T, KIND>(o.stats, row, mean[k], scale[k]);
        }
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            if (r + k * step >= end) break;
            W x[N], dy[N];
            in_dy[k].get(dy);
            if (KIND != CUDA_SUM_plain) in_x[k].get(x);
#pragma unroll
            for (int j = 0; j < N; j++) {
                sum[0][j] += KIND == CUDA_SUM_plain ? dy[j] : dy[j] * ((x[j] - mean[k]) * scale[k]);
                if (SUMS > 1) sum[SUMS - 1][j] += dy[j];
            }
        }
    }
}

/* part (chunks, sums, n) */
template <class T, int KIND>
static __global__ void __launch_bounds__(BLOCK, sizeof(T) == 2 ? 4 : 1)
    column_kernel(sum_operands<T> o, int64_t rows, int64_t n, int64_t rows_each, bool packed,
                  wide_of<T> *part)
{
    enum { N = pack<T>::N, SUMS = sums_of<KIND>::SUMS };
    using W = wide_of<T>;
    __shared__ W room[BLOCK * N];
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    int64_t begin = (int64_t)blockIdx.y * rows_each, end = min(rows, begin + rows_each);
    W sum[SUMS][N];
#pragma unroll
    for (int s = 0; s < SUMS; s++)
#pragma unroll
        for (int j = 0; j < N; j++) sum[s][j] = 0;
    if (packed)
        add_rows<T, KIND, true>(o, i, begin, end, n, true, sum);
    else
        add_rows<T, KIND, false>(o, i, begin, end, n, false, sum);
    int at = (int)(threadIdx.y * blockDim.x + threadIdx.x), across = (int)(blockDim.x * N);
#pragma unroll
    for (int s = 0; s < SUMS; s++) {
        /* a thread's N sums lie blockDim.x apart: neighbours write neighbouring words */
        W *mine = room + threadIdx.y * across + threadIdx.x;
#pragma unroll
        for (int j = 0; j < N; j++) mine[j * blockDim.x] = sum[s][j];
        __syncthreads();
        for (int rest = (int)blockDim.y / 2; rest; rest /= 2) {
            for (int k = at; k < rest * across; k += BLOCK) room[k] += room[k + rest * across];
            __syncthreads();
        }
        if (threadIdx.y == 0) {
#pragma unroll
            for (int j = 0; j < N; j++)
                if (i + j < n)
                    part[((int64_t)blockIdx.y * SUMS + s) * n + i + j] = mine[j * blockDim.x];
        }
        __syncthreads();
    }
}

/* out[s][i] = or += Σ over chunks of part (chunks, sums, n). A block has blockDim.x columns of all sums; its blockDim.y rows take
 * turns at the chunks. */
template <class T>
static __global__ void __launch_bounds__(WARP *WARP)
    join_kernel(const wide_of<T> *part, int64_t chunks, int sums, int64_t n, void *out0, void *out1,
                bool out_wide, bool add)
{
    using W = wide_of<T>;
    __shared__ W room[WARP * WARP];
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    int s = (int)(i >= n), at = (int)(threadIdx.y * blockDim.x + threadIdx.x);
    W sum = 0;
    if (i < sums * n) {
#pragma unroll 4
        for (int64_t c = threadIdx.y; c < chunks; c += blockDim.y) sum += part[c * sums * n + i];
    }
    room[at] = sum;
    __syncthreads();
    for (int rest = (int)blockDim.y / 2; rest; rest /= 2) {
        if ((int)threadIdx.y < rest) room[at] += room[at + rest * blockDim.x];
        __syncthreads();
    }
    if (threadIdx.y == 0 && i < sums * n)
        put_either<T>(s ? out1 : out0, out_wide, i - s * n, room[at], add);
}

template <class T>
static cudaError_t join(const struct cuda_sum *s, const wide_of<T> *part, int64_t chunks, int64_t n,
                        cudaStream_t stream)
{
    int sums = s->kind == CUDA_SUM_centred ? 2 : 1;
    unsigned y = 1;
    while (y < chunks && y < WARP) y *= 2;
    return LAUNCH((join_kernel<T>), dim3((unsigned)over(sums * n, WARP)), dim3(WARP, y), 0, stream,
                  part, chunks, sums, n, s->out[0], s->out[1], s->out_wide, s->add);
}

static size_t wide_bytes(enum cuda_dtype dtype) { return dtype == CUDA_fp64 ? 8 : 4; }
static size_t cuda_dtype_bytes(enum cuda_dtype dtype)
{
    return dtype == CUDA_fp64 ? 8 : dtype == CUDA_fp32 ? 4 : 2;
}

extern "C" size_t cuda_column_sums_scratch(enum cuda_dtype dtype, int64_t rows, int64_t n)
{
    if (n <= 0) return 0;
    column_plan p = plan_columns((int64_t)(16 / cuda_dtype_bytes(dtype)), rows, n);
    return 2 * (size_t)(p.chunks * n) * wide_bytes(dtype);
}

template <class T>
static cudaError_t launch_columns(const struct cuda_sum *s, int64_t rows, int64_t n, void *scratch,
                                  cudaStream_t stream)
{
    column_plan p = plan_columns(pack<T>::N, rows, n);
    sum_operands<T> o = {(const T *)s->x, (const T *)s->dy, {s->stats, s->stats_wide}};
    bool packed = lies_packed(o.x, o.dy) && n % pack<T>::N == 0;
    dim3 grid((unsigned)p.tiles, (unsigned)p.chunks);
    wide_of<T> *part = (wide_of<T> *)scratch;
    cudaError_t e = cudaErrorInvalidValue;
    if (s->kind == CUDA_SUM_plain)
        e = LAUNCH((column_kernel<T, CUDA_SUM_plain>), grid, p.block, 0, stream, o, rows, n,
                   p.rows_each, packed, part);
    if (s->kind == CUDA_SUM_scaled)
        e = LAUNCH((column_kernel<T, CUDA_SUM_scaled>), grid, p.block, 0, stream, o, rows, n,
                   p.rows_each, packed, part);
    if (s->kind == CUDA_SUM_centred)
        e = LAUNCH((column_kernel<T, CUDA_SUM_centred>), grid, p.block, 0, stream, o, rows, n,
                   p.rows_each, packed, part);
    return e ? e : join<T>(s, part, p.chunks, n, stream);
}

/* Of no rows the sums are 0, and so one chunk of none is summed. */
extern "C" cudaError_t cuda_column_sums(const struct cuda_sum *s, int64_t rows, int64_t n,
                                        void *scratch, cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    if (n <= 0) return cudaSuccess;
    CUDA_WITH_DTYPE(s->dtype, T, e = launch_columns<T>(s, rows, n, scratch, stream));
    return e;
}

/* --- channels --- */

static int64_t channel_chunks(int64_t outer, int64_t middle)
{
    return most(1, least(least(outer, CHUNKS), over(BLOCKS, most(1, middle))));
}

/* part (chunks, sums, middle); blockIdx.x the channel, blockIdx.y the stretch of images. `across` threads, a power of
 * two, go over an image's plane; the block has so many images at once. */
template <class T, int KIND>
static __global__ void __launch_bounds__(BLOCK)
    channel_kernel(sum_operands<T> o, int64_t outer, int64_t middle, int64_t inner, int64_t per,
                   int across, bool packed, wide_of<T> *part)
{
    enum { N = pack<T>::N, SUMS = KIND == CUDA_SUM_centred ? 2 : 1 };
    using W = wide_of<T>;
    __shared__ W room[WARP];
    int64_t m = blockIdx.x, each = (outer + gridDim.y - 1) / gridDim.y;
    int64_t begin = blockIdx.y * each, end = min(outer, begin + each);
    int images = BLOCK / across, lane = (int)threadIdx.x % across;
    W sum[2] = {0, 0};
    for (int64_t image = begin + threadIdx.x / across; image < end; image += images) {
        int64_t plane = image * middle + m;
        W mean, scale;
        row_stats<T, KIND>(o.stats, plane / per, mean, scale);
#pragma unroll 2
        for (int64_t i = (int64_t)lane * N; i < inner; i += (int64_t)across * N) {
            W x[N], dy[N];
            elements<T, N> in_x, in_dy;
            in_dy.load(o.dy + plane * inner, i, inner, packed);
            if (KIND != CUDA_SUM_plain) in_x.load(o.x + plane * inner, i, inner, packed);
            in_dy.get(dy);
            if (KIND != CUDA_SUM_plain) in_x.get(x);
#pragma unroll
            for (int j = 0; j < N; j++) { /* behind the end dy is 0 */
                sum[0] += KIND == CUDA_SUM_plain ? dy[j] : dy[j] * ((x[j] - mean) * scale);
                sum[1] += dy[j];
            }
        }
    }
#pragma unroll
    for (int s = 0; s < SUMS; s++) {
        W all = sum_block(sum[s], room);
        if (threadIdx.x == 0) part[((int64_t)blockIdx.y * SUMS + s) * middle + m] = all;
    }
}

extern "C" size_t cuda_channel_sums_scratch(enum cuda_dtype dtype, int64_t outer, int64_t middle)
{
    return 2 * (size_t)(channel_chunks(outer, middle) * middle) * wide_bytes(dtype);
}

template <class T>
static cudaError_t launch_channels(const struct cuda_sum *s, int64_t outer, int64_t middle,
                                   int64_t inner, int64_t per, void *scratch, cudaStream_t stream)
{
    int64_t chunks = channel_chunks(outer, middle);
    sum_operands<T> o = {(const T *)s->x, (const T *)s->dy, {s->stats, s->stats_wide}};
    bool packed = lies_packed(o.x, o.dy) && inner % pack<T>::N == 0;
    dim3 grid((unsigned)middle, (unsigned)chunks);
    int across = 1;
    while (across * pack<T>::N < inner && across < BLOCK) across *= 2;
    wide_of<T> *part = (wide_of<T> *)scratch;
    cudaError_t e = s->kind == CUDA_SUM_plain
                        ? LAUNCH((channel_kernel<T, CUDA_SUM_plain>), grid, BLOCK, 0, stream, o,
                                 outer, middle, inner, per, across, packed, part)
                        : LAUNCH((channel_kernel<T, CUDA_SUM_centred>), grid, BLOCK, 0, stream, o,
                                 outer, middle, inner, per, across, packed, part);
    return e ? e : join<T>(s, part, chunks, middle, stream);
}

extern "C" cudaError_t cuda_channel_sums(const struct cuda_sum *s, int64_t outer, int64_t middle,
                                         int64_t inner, int64_t per, void *scratch,
                                         cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    if (middle <= 0) return cudaSuccess;
    CUDA_WITH_DTYPE(s->dtype, T,
                     e = launch_channels<T>(s, outer, middle, inner, per, scratch, stream));
    return e;
}

/* --- everything --- */

enum { SQUARES_BLOCKS = 1024, SQUARES_PACKS = 4 };

static int64_t squares_blocks(int64_t n)
{
    return most(1, least(SQUARES_BLOCKS, over(n, BLOCK * SQUARES_PACKS * 8)));
}

/* Squares of a pack are added in the type that is computed in, everything else in fp64, which costs one addition a pack. */
template <class T>
static __global__ void __launch_bounds__(BLOCK)
    squares_kernel(const T *x, int64_t n, bool packed, double *part)
{
    enum { N = pack<T>::N };
    using W = wide_of<T>;
    __shared__ double room[WARP];
    double sum = 0;
    int64_t stride = (int64_t)gridDim.x * BLOCK * N;
    for (int64_t i = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) * N; i < n;
         i += SQUARES_PACKS * stride) {
        elements<T, N> in[SQUARES_PACKS];
#pragma unroll
        for (int k = 0; k < SQUARES_PACKS; k++) in[k].load(x, i + k * stride, n, packed);
#pragma unroll
        for (int k = 0; k < SQUARES_PACKS; k++) {
            W v[N], s = 0;
            in[k].get(v);
#pragma unroll
            for (int j = 0; j < N; j++) s += v[j] * v[j];
            sum += (double)s;
        }
    }
    sum = sum_block(sum, room);
    if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

static __global__ void squares_join_kernel(const double *part, int64_t n, bool add, double *out)
{
    __shared__ double room[WARP];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += BLOCK) sum += part[i];
    sum = sum_block(sum, room);
    if (threadIdx.x == 0) *out = add ? *out + sum : sum;
}

extern "C" size_t cuda_squares_scratch(int64_t n)
{
    return (size_t)squares_blocks(n) * sizeof(double);
}

extern "C" cudaError_t cuda_squares(enum cuda_dtype dtype, const void *x, int64_t n, bool add,
                                    double *out, void *scratch, cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    int64_t blocks = squares_blocks(n);
    double *part = (double *)scratch;
    CUDA_WITH_DTYPE(dtype, T,
                     e = LAUNCH((squares_kernel<T>), dim3((unsigned)blocks), BLOCK, 0, stream,
                                (const T *)x, n, lies_packed(x), part));
    if (e) return e;
    return LAUNCH(squares_join_kernel, 1, BLOCK, 0, stream, (const double *)part, blocks, add, out);
}
