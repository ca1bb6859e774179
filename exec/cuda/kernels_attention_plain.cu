/* exec/cuda/kernels_attention_plain.cu - attention and its gradients by multiply-adds: any dtype, head size and
 * address.
 *
 * The structure is that of the tensor-core kernels (kernels_attention.cu, kernels_attention_grad.cu): tiles of scores
 * in shared memory, online softmax, results in registers, no result with two writers. A block computes TILE columns
 * of a head's results and recomputes the scores for them, so that shared memory and registers do not depend on the
 * head's size: no overhead up to TILE columns, half as much work again for two tiles of columns. Bounded by
 * multiply-adds and shared memory; used for fp32 and fp64, which need accuracy rather than speed.
 */
#include "exec/cuda/attention.cuh"
#include "exec/cuda/plain_tile.cuh"

/* One head of one sequence. */
template <class T> struct plain_head {
    const T *q, *k, *v, *o, *dout;
    T *out, *dq, *dk, *dv;
    int64_t q_position, kv_position, o_position, rows; /* rows: the first of lse and delta */
};

template <class T>
static __device__ __forceinline__ plain_head<T> plain_head_of(const attention_call &a,
                                                              int64_t sequence, int head)
{
    int64_t q = sequence * a.q_at.sequence + (int64_t)head * a.head_dim;
    int64_t kv = sequence * a.kv_at.sequence + (int64_t)(head / (a.heads / a.kv_heads)) * a.head_dim;
    int64_t o = (sequence * a.queries * a.heads + head) * a.head_dim;
    plain_head<T> h = {};
    h.q = static_cast<const T *>(a.q) + q;
    h.k = static_cast<const T *>(a.k) + kv, h.v = static_cast<const T *>(a.v) + kv;
    h.out = static_cast<T *>(a.o) + o;
    if (a.dq) {
        h.dout = static_cast<const T *>(a.dout) + o;
        h.dq = static_cast<T *>(a.dq) + q;
        h.dk = static_cast<T *>(a.dk) + kv, h.dv = static_cast<T *>(a.dv) + kv;
    }
    h.q_position = a.q_at.position, h.kv_position = a.kv_at.position;
    h.o_position = (int64_t)a.heads * a.head_dim;
    h.rows = (sequence * a.heads + head) * a.queries;
    return h;
}

template <class T> struct plain_block { /* in shared memory */
    typename dtype_traits<T>::wide p[plain_size<T>::TILE][plain_size<T>::TILE + 1];
    plain_room<T> room;
};

/* sum = left · rightᵀ over the head's columns: rows from `row` on of left (n_left of them), rows from `column` on of right. */
template <class T>
static __device__ __forceinline__ void
plain_scores(typename dtype_traits<T>::wide sum[4][4], plain_room<T> *room, int head_dim, const T *left,
             int64_t left_position, int row, int n_left, const T *right, int64_t right_position,
             int column, int n_right)
{
    using wide = typename dtype_traits<T>::wide;
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) sum[r][c] = 0;
    plain_product<T, false, false>(
        sum, room, head_dim,
        [=](int i, int64_t d) {
            return row + i < n_left ? dtype_traits<T>::get(left[(row + i) * left_position + d]) : wide(0);
        },
        [=](int64_t d, int j) {
            return column + j < n_right ? dtype_traits<T>::get(right[(column + j) * right_position + d])
                                        : wide(0);
        });
}

/* sum += p · right, or pᵀ · right: TILE rows of right from `row` on, its columns from `column` on. */
template <class T, bool TURNED>
static __device__ __forceinline__ void
plain_values(typename dtype_traits<T>::wide sum[4][4], plain_block<T> *block, const T *right,
             int64_t right_position, int row, int n_right, int column, int head_dim)
{
    using wide = typename dtype_traits<T>::wide;
    plain_product<T, TURNED, true>(
        sum, &block->room, plain_size<T>::TILE,
        [=](int i, int64_t k) { return TURNED ? block->p[k][i] : block->p[i][k]; },
        [=](int64_t k, int j) {
            return row + k < n_right && column + j < head_dim
                       ? dtype_traits<T>::get(right[(row + k) * right_position + column + j])
                       : wide(0);
        });
}

/* Largest, or sum, over the SIDE threads that have one row. */
template <class T>
static __device__ __forceinline__ typename dtype_traits<T>::wide row_largest(typename dtype_traits<T>::wide v)
{
#pragma unroll
    for (int step = plain_size<T>::SIDE / 2; step; step /= 2) {
        typename dtype_traits<T>::wide other = __shfl_xor_sync(0xffffffffu, v, step);
        v = other > v ? other : v;
    }
    return v;
}
template <class T>
static __device__ __forceinline__ typename dtype_traits<T>::wide row_sum(typename dtype_traits<T>::wide v)
{
#pragma unroll
    for (int step = plain_size<T>::SIDE / 2; step; step /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

template <class T>
static __device__ __forceinline__ typename dtype_traits<T>::wide plain_capped(const attention_call &a,
                                                                             typename dtype_traits<T>::wide s)
{
    using wide = typename dtype_traits<T>::wide;
    return a.softcap > 0 ? (wide)a.softcap * tanh(s / (wide)a.softcap) : s;
}

/* grid: query tiles, heads, sequences x tiles of columns */
template <class T>
static __global__ void __launch_bounds__(plain_size<T>::THREADS)
    plain_forward(attention_call a, int column_tiles)
{
    using wide = typename dtype_traits<T>::wide;
    constexpr int TILE = plain_size<T>::TILE, SIDE = plain_size<T>::SIDE;
    __shared__ plain_block<T> block;
    plain_head<T> h = plain_head_of<T>(a, blockIdx.z / column_tiles, blockIdx.y);
    int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE, column = blockIdx.z % column_tiles * TILE;
    int first = blockIdx.x * TILE, last = min(first + TILE, a.queries) - 1;
    int begin = first_key(a, first) / TILE * TILE, end = min(end_key(a, last), a.keys);
    wide out[4][4] = {}, maximum[4], sum[4] = {}, scale = 1 / sqrt((wide)a.head_dim);
    for (int r = 0; r < 4; r++) maximum[r] = -INFINITY;
    for (int key = begin; key < end; key += TILE) {
        wide s[4][4];
        plain_scores<T>(s, &block.room, a.head_dim, h.q, h.q_position, first, a.queries, h.k,
                        h.kv_position, key, a.keys);
#pragma unroll
        for (int r = 0; r < 4; r++) {
            wide m = maximum[r], added = 0;
#pragma unroll
            for (int c = 0; c < 4; c++) {
                bool seen = sees(a, first + y + r * SIDE, key + x + c * SIDE);
                s[r][c] = seen ? plain_capped<T>(a, s[r][c] * scale) : -INFINITY;
                m = s[r][c] > m ? s[r][c] : m;
            }
            m = row_largest<T>(m);
            wide from = m == -INFINITY ? 0 : m, shrink = exp(maximum[r] - from);
#pragma unroll
            for (int c = 0; c < 4; c++) {
                wide p = exp(s[r][c] - from);
                block.p[y + r * SIDE][x + c * SIDE] = p;
                added += p;
                out[r][c] *= shrink;
            }
            sum[r] = sum[r] * shrink + row_sum<T>(added);
            maximum[r] = m;
        }
        plain_values<T, false>(out, &block, h.v, h.kv_position, key, a.keys, column, a.head_dim);
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 4; r++) {
        int row = first + y + r * SIDE;
        if (row >= a.queries) continue;
        if (x == 0 && column == 0) write_lse<T>(a, h.rows + row, maximum[r] + log(sum[r]));
#pragma unroll
        for (int c = 0; c < 4; c++)
            if (column + x + c * SIDE < a.head_dim)
                h.out[row * h.o_position + column + x + c * SIDE] =
                    dtype_traits<T>::put(out[r][c] / sum[r]);
    }
}

/* Scores of a tile become probabilities p and, in ds, the gradient of the scores but for the scale. */
template <class T>
static __device__ __forceinline__ void
plain_probabilities(const attention_call &a, const plain_head<T> &h, plain_room<T> *room, int query,
                    int key, typename dtype_traits<T>::wide p[4][4], typename dtype_traits<T>::wide ds[4][4])
{
    using wide = typename dtype_traits<T>::wide;
    constexpr int SIDE = plain_size<T>::SIDE;
    int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    wide scale = 1 / sqrt((wide)a.head_dim);
    plain_scores<T>(p, room, a.head_dim, h.q, h.q_position, query, a.queries, h.k, h.kv_position,
                    key, a.keys);
    plain_scores<T>(ds, room, a.head_dim, h.dout, h.o_position, query, a.queries, h.v,
                    h.kv_position, key, a.keys);
#pragma unroll
    for (int r = 0; r < 4; r++) {
        int row = query + y + r * SIDE;
        bool there = row < a.queries;
        wide lse = there ? read_lse<T>(a, h.rows + row) : wide(0);
        wide delta = there ? static_cast<const wide *>(a.delta)[h.rows + row] : wide(0);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            bool seen = there && sees(a, row, key + x + c * SIDE);
            wide s = plain_capped<T>(a, p[r][c] * scale), share = a.softcap > 0 ? s / (wide)a.softcap : wide(0);
            p[r][c] = seen ? exp(s - lse) : wide(0);
            ds[r][c] = p[r][c] * (ds[r][c] - delta) * (1 - share * share);
        }
    }
}

template <class T>
static __device__ __forceinline__ void plain_keep(plain_block<T> *block,
                                                  const typename dtype_traits<T>::wide p[4][4])
{
    constexpr int SIDE = plain_size<T>::SIDE;
    __syncthreads();
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++)
            block->p[threadIdx.x / SIDE + r * SIDE][threadIdx.x % SIDE + c * SIDE] = p[r][c];
}

template <class T>
static __device__ __forceinline__ void plain_write(const typename dtype_traits<T>::wide sum[4][4],
                                                   typename dtype_traits<T>::wide scale, T *out,
                                                   int64_t position, int first, int end, int column,
                                                   int head_dim)
{
    constexpr int SIDE = plain_size<T>::SIDE;
    int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++)
            if (first + y + r * SIDE < end && column + x + c * SIDE < head_dim)
                out[(first + y + r * SIDE) * position + column + x + c * SIDE] =
                    dtype_traits<T>::put(sum[r][c] * scale);
}

template <class T>
static __global__ void __launch_bounds__(plain_size<T>::THREADS)
    plain_grad_queries(attention_call a, int column_tiles)
{
    using wide = typename dtype_traits<T>::wide;
    constexpr int TILE = plain_size<T>::TILE;
    __shared__ plain_block<T> block;
    plain_head<T> h = plain_head_of<T>(a, blockIdx.z / column_tiles, blockIdx.y);
    int column = blockIdx.z % column_tiles * TILE, first = blockIdx.x * TILE;
    int last = min(first + TILE, a.queries) - 1;
    int begin = first_key(a, first) / TILE * TILE, end = min(end_key(a, last), a.keys);
    wide dq[4][4] = {};
    for (int key = begin; key < end; key += TILE) {
        wide p[4][4], ds[4][4];
        plain_probabilities<T>(a, h, &block.room, first, key, p, ds);
        plain_keep<T>(&block, ds);
        plain_values<T, false>(dq, &block, h.k, h.kv_position, key, a.keys, column, a.head_dim);
    }
    plain_write<T>(dq, 1 / sqrt((wide)a.head_dim), h.dq, h.q_position, first, a.queries, column,
                   a.head_dim);
}

/* grid: key tiles, key-value heads, sequences x tiles of columns */
template <class T>
static __global__ void __launch_bounds__(plain_size<T>::THREADS)
    plain_grad_keys(attention_call a, int column_tiles)
{
    using wide = typename dtype_traits<T>::wide;
    constexpr int TILE = plain_size<T>::TILE;
    __shared__ plain_block<T> block;
    int64_t sequence = blockIdx.z / column_tiles;
    int column = blockIdx.z % column_tiles * TILE, first = blockIdx.x * TILE;
    int last = min(first + TILE, a.keys) - 1, group = a.heads / a.kv_heads;
    int begin = first_query(a, first) / TILE * TILE, end = end_query(a, last);
    wide dk[4][4] = {}, dv[4][4] = {};
    plain_head<T> h = plain_head_of<T>(a, sequence, blockIdx.y * group);
    for (int i = 0; i < group; i++) {
        h = plain_head_of<T>(a, sequence, blockIdx.y * group + i);
        for (int query = begin; query < end; query += TILE) {
            wide p[4][4], ds[4][4];
            plain_probabilities<T>(a, h, &block.room, query, first, p, ds);
            plain_keep<T>(&block, p);
            plain_values<T, true>(dv, &block, h.dout, h.o_position, query, a.queries, column,
                                  a.head_dim);
            plain_keep<T>(&block, ds);
            plain_values<T, true>(dk, &block, h.q, h.q_position, query, a.queries, column,
                                  a.head_dim);
        }
    }
    plain_write<T>(dk, 1 / sqrt((wide)a.head_dim), h.dk, h.kv_position, first, a.keys, column,
                   a.head_dim);
    plain_write<T>(dv, 1, h.dv, h.kv_position, first, a.keys, column, a.head_dim);
}

/* Blocks for `positions` of each of `heads`. */
template <class T>
static dim3 plain_grid(const attention_call *a, int positions, int heads, int *column_tiles)
{
    int tile = plain_size<T>::TILE;
    *column_tiles = (a->head_dim + tile - 1) / tile;
    return dim3((positions + tile - 1) / tile, heads, a->b * *column_tiles);
}

template <class T> static cudaError_t forward(const attention_call *a, cudaStream_t stream)
{
    int column_tiles;
    dim3 grid = plain_grid<T>(a, a->queries, a->heads, &column_tiles);
    return LAUNCH((plain_forward<T>), grid, dim3(plain_size<T>::THREADS), 0, stream, *a,
                  column_tiles);
}

template <class T> static cudaError_t grad(const attention_call *a, cudaStream_t stream)
{
    int column_tiles;
    cudaError_t e = cudaSuccess;
    dim3 grid = plain_grid<T>(a, a->queries, a->heads, &column_tiles);
    if (a->queries)
        e = LAUNCH((plain_grad_queries<T>), grid, dim3(plain_size<T>::THREADS), 0, stream, *a,
                   column_tiles);
    if (e != cudaSuccess) return e;
    grid = plain_grid<T>(a, a->keys, a->kv_heads, &column_tiles);
    return LAUNCH((plain_grad_keys<T>), grid, dim3(plain_size<T>::THREADS), 0, stream, *a,
                  column_tiles);
}

extern "C" cudaError_t cuda_attention_forward_plain(const struct attention_call *a, cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;
    if (!a->b || !a->heads || !a->queries) return e;
    CUDA_WITH_DTYPE(a->dtype, T, e = forward<T>(a, stream));
    return e;
}

extern "C" cudaError_t cuda_attention_grad_plain(const struct attention_call *a, cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;
    if (!a->b || !a->heads || !a->keys) return e;
    CUDA_WITH_DTYPE(a->dtype, T, e = grad<T>(a, stream));
    return e;
}

/* Shared memory: heads of up to 64 ask for 49 KiB, of up to 128 for 96 KiB, of which sm_75 has 64, sm_86 99. */
extern "C" bool cuda_attention_is_fast(const struct attention_call *a, int capability)
{
    bool bf16 = a->dtype == CUDA_bf16, narrow = bf16 || a->dtype == CUDA_fp16;
    const void *address[] = {a->q, a->k, a->v, a->o, a->dout, a->dq, a->dk, a->dv};
    int64_t strides[] = {a->q_at.sequence, a->q_at.position, a->kv_at.sequence, a->kv_at.position,
                       a->head_dim};
    if (!narrow || a->softcap > 0 || a->head_dim > 128 || capability < (bf16 || a->head_dim > 64 ? 80 : 75)) return false;
    for (const void *p : address)
        if ((uintptr_t)p % 16) return false;
    for (int64_t elements : strides)
        if (elements % 8) return false;
    return true;
}
