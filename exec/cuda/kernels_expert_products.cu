/* exec/cuda/kernels_expert_products.cu - grouped matrix products over the filled slots of experts.
 *
 * Two shapes of one tiled product: rows of an expert times its weights, and, for the weights' gradient, the sum over
 * all sequences of rowsᵀ · rows. Both stop at the last filled slot; blocks without filled slots write zeros and exit.
 * One block computes all of its result, so no order depends on timing.
 *
 * On tensor cores a block has 128 x 128 results, 8 warps of 64 x 32, and three stages of 64 along k that cp.async
 * fills two ahead of use: 96 KiB, two blocks per SM of an H200. A warp reads 3 KiB from shared memory for 16 products
 * of m16n8k16, 192 bytes each: 1.5 cycles against 1.6 of the cores. Transposed operands are turned by ldmatrix, so
 * all three layouts read 16 bytes per thread from device memory. Everything else uses multiply-adds in tiles
 * (plain_tile.cuh).
 */
#include "exec/cuda/kernels_expert_products.h"

#include "exec/cuda/plain_tile.cuh"
#include "exec/cuda/tensor_core.cuh"

template <class T>
static __device__ __forceinline__ void put_result(const expert_product &p, int64_t at,
                                                  typename dtype_traits<T>::wide v)
{
    using wide = typename dtype_traits<T>::wide;
    if (p.wide_out) {
        wide *out = static_cast<wide *>(p.out) + at;
        *out = p.accumulate ? *out + v : v;
    } else {
        T *out = static_cast<T *>(p.out) + at;
        *out = dtype_traits<T>::put(p.accumulate ? dtype_traits<T>::get(*out) + v : v);
    }
}

/* --- tensor cores --- */

enum { SIDE = 128, DEPTH = 64, STAGES = 3, WARPS = 8, THREADS = WARPS * 32 };
enum { TILE_ELEMENTS = SIDE * DEPTH, SHARED_BYTES = STAGES * 2 * TILE_ELEMENTS * 2 };

/* Begins the copy of a tile of ROWS rows and W columns from (row, column) on of a matrix whose rows have `columns`
 * elements; rows from n_rows on and columns from `columns` on are zeros. */
template <class T, int W>
static __device__ __forceinline__ void copy_part(T *tile, const T *matrix, int row, int n_rows,
                                                 int column, int columns)
{
    enum { CHUNKS = W / CHUNK, EACH = TILE_ELEMENTS / CHUNK / THREADS, APART = THREADS / CHUNKS };
    int r = threadIdx.x / CHUNKS, c = threadIdx.x % CHUNKS; /* a thread's chunks stand in one column */
    bool beside = column + c * CHUNK < columns;
    const T *from = matrix + (int64_t)(row + r) * columns + column + c * CHUNK;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        bool there = beside && row + r + i * APART < n_rows;
        copy_chunk(tile + at_chunk<W>(r + i * APART, c), there ? from : matrix, there);
        from += (int64_t)APART * columns;
    }
}

struct warp_sum { /* 64 x 32 */
    float c[4][4][4];
};

/* LEFT_TURNED: the left tile has k as rows; RIGHT_TURNED: the right one has columns of the result as rows. */
template <class T, bool LEFT_TURNED, bool RIGHT_TURNED>
static __device__ __forceinline__ void add_tiles(warp_sum &sum, const T *left, const T *right,
                                                 int row, int column, int lane)
{
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k++) {
        uint32_t a[4][4], b[2][4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (LEFT_TURNED)
                load_a_turned<T, SIDE>(a[i], left, k * 16, (row + i * 16) / CHUNK, lane);
            else
                load_a<T, DEPTH>(a[i], left, row + i * 16, 2 * k, lane);
#pragma unroll
        for (int j = 0; j < 2; j++)
            if (RIGHT_TURNED)
                load_b<T, DEPTH>(b[j], right, column + j * 16, 2 * k, lane);
            else
                load_b_turned<T, SIDE>(b[j], right, k * 16, (column + j * 16) / CHUNK, lane);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 2; j++) {
                multiply_add<T>(sum.c[i][2 * j], a[i], b[j][0], b[j][1]);
                multiply_add<T>(sum.c[i][2 * j + 1], a[i], b[j][2], b[j][3]);
            }
    }
}

/* Two results beside one another, in one access: at is even, and so are rows of the result, which lies packed. */
template <class T>
static __device__ __forceinline__ void put_two(const expert_product &p, int64_t at, float low,
                                               float high)
{
    if (p.wide_out) {
        float2 *out = reinterpret_cast<float2 *>(static_cast<float *>(p.out) + at);
        float2 old = p.accumulate ? *out : make_float2(0, 0);
        *out = make_float2(old.x + low, old.y + high);
        return;
    }
    uint32_t *out = reinterpret_cast<uint32_t *>(static_cast<T *>(p.out) + at);
    if (p.accumulate) {
        uint32_t bits = *out;
        T old[2];
        memcpy(old, &bits, sizeof old);
        low += dtype_traits<T>::get(old[0]), high += dtype_traits<T>::get(old[1]);
    }
    *out = pack<T>(low, high);
}

/* first: element of the result where row 0, column 0 stands; rows from n_rows on are nobody's. */
template <class T>
static __device__ __forceinline__ void put_sum(const expert_product &p, const warp_sum &sum,
                                               int64_t first, int row, int column, int n_rows)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int y = row + i * 16 + lane / 4 + h * 8, x = column + j * 8 + lane % 4 * 2;
                if (y < n_rows && x < p.n_right)
                    put_two<T>(p, first + (int64_t)y * p.n_right + x, sum.c[i][j][2 * h],
                               sum.c[i][j][2 * h + 1]);
            }
}

/* What comes next along k. Rows: steps of DEPTH elements of one row. Weights: of filled slots, sequence after sequence. */
struct position {
    int64_t sequence;
    int k, end;
};

static __device__ __forceinline__ void find_filled(const expert_product &p, int expert, position &at)
{
    while (at.sequence < p.b && at.k >= at.end) {
        at.sequence++, at.k = 0;
        at.end = at.sequence < p.b ? p.filled[at.sequence * p.experts + expert] : 0;
    }
}

/* grid: tiles of columns, of slots, sequences x experts */
template <class T, bool TURNED>
static __global__ void __launch_bounds__(THREADS, 2) rows_fast(expert_product p)
{
    DYNAMIC_SHARED(T, room);
    int64_t expert = blockIdx.z % p.experts, slots = blockIdx.z * (int64_t)p.capacity;
    int filled = p.filled[blockIdx.z], lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row = blockIdx.y * SIDE, column = blockIdx.x * SIDE;
    const T *left = static_cast<const T *>(p.left) + slots * p.n_left;
    const T *right = static_cast<const T *>(p.right) + expert * p.n_left * p.n_right;
    int steps = row < filled ? (p.n_left + DEPTH - 1) / DEPTH : 0;
    auto copy = [&](int step) {
        if (step < steps) {
            T *a = room + step % STAGES * 2 * TILE_ELEMENTS, *b = a + TILE_ELEMENTS;
            int k = step * DEPTH;
            copy_part<T, DEPTH>(a, left, row, filled, k, p.n_left);
            if (TURNED)
                copy_part<T, DEPTH>(b, right, column, p.n_right, k, p.n_left);
            else
                copy_part<T, SIDE>(b, right, k, p.n_left, column, p.n_right);
        }
        copies_done();
    };
    warp_sum sum = {};
    for (int i = 0; i < STAGES - 1; i++) copy(i);
    for (int i = 0; i < steps; i++) {
        copies_wait<STAGES - 2>();
        __syncthreads();
        copy(i + STAGES - 1);
        const T *a = room + i % STAGES * 2 * TILE_ELEMENTS;
        add_tiles<T, false, TURNED>(sum, a, a + TILE_ELEMENTS, warp / 4 * 64, warp % 4 * 32, lane);
    }
    put_sum<T>(p, sum, slots * p.n_right, row + warp / 4 * 64, column + warp % 4 * 32, p.capacity);
}

/* grid: tiles of columns, of rows, experts */
template <class T>
static __global__ void __launch_bounds__(THREADS, 2) weights_fast(expert_product p)
{
    DYNAMIC_SHARED(T, room);
    int expert = blockIdx.z, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row = blockIdx.y * SIDE, column = blockIdx.x * SIDE;
    position next = {-1, 0, 0};
    find_filled(p, expert, next);
    int copied = 0;
    auto copy = [&]() {
        if (next.sequence < p.b) {
            T *a = room + copied++ % STAGES * 2 * TILE_ELEMENTS, *b = a + TILE_ELEMENTS;
            int64_t slots = (next.sequence * p.experts + expert) * p.capacity;
            copy_part<T, SIDE>(a, static_cast<const T *>(p.left) + slots * p.n_left, next.k, next.end,
                               row, p.n_left);
            copy_part<T, SIDE>(b, static_cast<const T *>(p.right) + slots * p.n_right, next.k,
                               next.end, column, p.n_right);
            next.k += DEPTH;
            find_filled(p, expert, next);
        }
        copies_done();
    };
    warp_sum sum = {};
    for (int i = 0; i < STAGES - 1; i++) copy();
    for (int i = 0; i < copied; i++) {
        copies_wait<STAGES - 2>();
        __syncthreads();
        copy();
        const T *a = room + i % STAGES * 2 * TILE_ELEMENTS;
        add_tiles<T, true, false>(sum, a, a + TILE_ELEMENTS, warp / 4 * 64, warp % 4 * 32, lane);
    }
    put_sum<T>(p, sum, (int64_t)expert * p.n_left * p.n_right, row + warp / 4 * 64,
               column + warp % 4 * 32, p.n_left);
}

/* --- plain --- */

template <class T>
static __device__ __forceinline__ void put_plain(const expert_product &p,
                                                 const typename dtype_traits<T>::wide sum[4][4],
                                                 int64_t first, int row, int column, int n_rows)
{
    constexpr int SIDE = plain_size<T>::SIDE;
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) {
            int y = row + threadIdx.x / SIDE + r * SIDE, x = column + threadIdx.x % SIDE + c * SIDE;
            if (y < n_rows && x < p.n_right)
                put_result<T>(p, first + (int64_t)y * p.n_right + x, sum[r][c]);
        }
}

/* Element (row, column) of a matrix whose rows have `columns`, 0 outside. */
template <class T>
static __device__ __forceinline__ typename dtype_traits<T>::wide
element(const T *matrix, int64_t row, int64_t n_rows, int64_t column, int64_t columns)
{
    return row < n_rows && column < columns ? dtype_traits<T>::get(matrix[row * columns + column])
                                            : typename dtype_traits<T>::wide(0);
}

template <class T, bool TURNED>
static __global__ void __launch_bounds__(plain_size<T>::THREADS) rows_plain(expert_product p)
{
    constexpr int TILE = plain_size<T>::TILE;
    __shared__ plain_room<T> room;
    int64_t expert = blockIdx.z % p.experts, slots = blockIdx.z * (int64_t)p.capacity;
    int filled = p.filled[blockIdx.z], row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    const T *left = static_cast<const T *>(p.left) + slots * p.n_left;
    const T *right = static_cast<const T *>(p.right) + expert * p.n_left * p.n_right;
    typename dtype_traits<T>::wide sum[4][4] = {};
    plain_product<T, false, !TURNED>(
        sum, &room, row < filled ? p.n_left : 0,
        [=](int i, int64_t k) { return element(left, row + i, filled, k, p.n_left); },
        [=](int64_t k, int j) {
            return TURNED ? element(right, column + j, p.n_right, k, p.n_left)
                          : element(right, k, p.n_left, column + j, p.n_right);
        });
    put_plain<T>(p, sum, slots * p.n_right, row, column, p.capacity);
}

template <class T>
static __global__ void __launch_bounds__(plain_size<T>::THREADS) weights_plain(expert_product p)
{
    constexpr int TILE = plain_size<T>::TILE;
    __shared__ plain_room<T> room;
    int expert = blockIdx.z, row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    typename dtype_traits<T>::wide sum[4][4] = {};
    for (int64_t s = 0; s < p.b; s++) {
        int64_t slots = (s * p.experts + expert) * p.capacity, filled = p.filled[s * p.experts + expert];
        const T *left = static_cast<const T *>(p.left) + slots * p.n_left,
                *right = static_cast<const T *>(p.right) + slots * p.n_right;
        plain_product<T, true, true>(
            sum, &room, filled,
            [=](int i, int64_t k) { return element(left, k, filled, row + i, p.n_left); },
            [=](int64_t k, int j) { return element(right, k, filled, column + j, p.n_right); });
    }
    put_plain<T>(p, sum, (int64_t)expert * p.n_left * p.n_right, row, column, p.n_left);
}

/* --- launchers --- */

extern "C" bool expert_product_is_fast(const struct expert_product *p, int capability)
{
    bool narrow = p->dtype == CUDA_bf16 || p->dtype == CUDA_fp16;
    return narrow && capability >= 80 && p->n_left % 8 == 0 && p->n_right % 8 == 0 &&
           (((uintptr_t)p->left | (uintptr_t)p->right | (uintptr_t)p->out) & 15) == 0;
}

static dim3 grid_of(const expert_product *p, int rows, int64_t z, int tile)
{
    return dim3((p->n_right + tile - 1) / tile, (rows + tile - 1) / tile, z);
}

template <class T>
static cudaError_t launch_fast(const expert_product *p, void (*kernel)(expert_product), dim3 grid,
                               cudaStream_t stream)
{
    cudaError_t e =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    return e == cudaSuccess ? LAUNCH(kernel, grid, dim3(THREADS), SHARED_BYTES, stream, *p) : e;
}

extern "C" cudaError_t cuda_expert_rows(const struct expert_product *p, bool fast, cudaStream_t stream)
{
    int64_t z = p->b * p->experts;
    cudaError_t e = cudaSuccess;
    if (!z || !p->capacity || !p->n_right) return e;
    dim3 grid = grid_of(p, p->capacity, z, SIDE);
    if (fast && p->dtype == CUDA_bf16)
        return launch_fast<__nv_bfloat16>(
            p, p->turned ? rows_fast<__nv_bfloat16, true> : rows_fast<__nv_bfloat16, false>, grid,
            stream);
    if (fast)
        return launch_fast<__half>(p, p->turned ? rows_fast<__half, true> : rows_fast<__half, false>,
                                   grid, stream);
    CUDA_WITH_DTYPE(p->dtype, T, grid = grid_of(p, p->capacity, z, plain_size<T>::TILE);
                     dim3 block(plain_size<T>::THREADS);
                     e = p->turned ? LAUNCH((rows_plain<T, true>), grid, block, 0, stream, *p)
                                   : LAUNCH((rows_plain<T, false>), grid, block, 0, stream, *p));
    return e;
}

extern "C" cudaError_t cuda_expert_weights(const struct expert_product *p, bool fast, cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;
    if (!p->experts || !p->n_left || !p->n_right) return e;
    dim3 grid = grid_of(p, p->n_left, p->experts, SIDE);
    if (fast && p->dtype == CUDA_bf16)
        return launch_fast<__nv_bfloat16>(p, weights_fast<__nv_bfloat16>, grid, stream);
    if (fast) return launch_fast<__half>(p, weights_fast<__half>, grid, stream);
    CUDA_WITH_DTYPE(p->dtype, T, grid = grid_of(p, p->n_left, p->experts, plain_size<T>::TILE);
                     e = LAUNCH((weights_plain<T>), grid, dim3(plain_size<T>::THREADS), 0, stream, *p));
    return e;
}
