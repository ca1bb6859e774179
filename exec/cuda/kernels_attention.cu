/* exec/cuda/kernels_attention.cu - attention's forward pass on tensor cores.
 *
 * A block has ROWS queries of one head and iterates over the keys that any of them sees, KEYS at a time: scores,
 * online softmax (a running maximum and sum; the accumulator is rescaled when the maximum changes), values (Dao 2023,
 * FlashAttention-2, algorithm 1). A warp has whole rows, 16 ROW_TILES of them, so warps exchange nothing, and
 * probabilities go from one product's result to the next one's left operand in registers.
 *
 * Bounds: a right operand of 256 bytes comes from shared memory (128 bytes per cycle and SM) for each m16n8k16, which
 * takes about 1.6 cycles of an H200's SM. With ROW_TILES = 2 it serves two products, so tensor cores are the limit;
 * heads of 128 lack registers for that (64 of results per row tile) and use 8 warps, which read at 80 % of the cores'
 * rate. Keys and values come by cp.async during the previous tile: one barrier per tile. Exponentials have base 2;
 * the scale is part of one multiply-add. Blocks of a causal head begin with the last rows, which have the most work.
 * Only edge tiles are masked; a warp skips tiles that none of its rows sees, a quarter of the last 128 keys of a
 * causal block.
 */
#include "exec/cuda/attention_tiles.cuh"

template <int W> struct forward_sizes {
    enum { WARPS = W == 64 ? 4 : 8, ROW_TILES = W == 64 ? 2 : 1, KEYS = 64 };
    enum { THREADS = WARPS * 32, ROWS = WARPS * ROW_TILES * 16 };
    enum { SHARED_BYTES = (ROWS + 4 * KEYS) * W * 2 };
};

/* Scores of a tile, in units of log2; invisible ones become -∞. */
template <int COLUMNS>
static __device__ __forceinline__ void mask(const attention_call &a, float s[COLUMNS][4], int row,
                                            int key)
{
#pragma unroll
    for (int n = 0; n < COLUMNS; n++)
#pragma unroll
        for (int r = 0; r < 4; r++)
            if (!sees(a, row + r / 2 * 8, key + n * 8 + r % 2)) s[n][r] = -INFINITY;
}

/* Softmax of one row tile: s becomes 2^(s·scale - maximum); the accumulator is rescaled to the new maximum. */
template <int COLUMNS, int OUT>
static __device__ __forceinline__ void soften(float s[COLUMNS][4], float o[OUT][4],
                                              float maximum[2], float sum[2], float scale)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float m = maximum[h];
#pragma unroll
        for (int n = 0; n < COLUMNS; n++) m = fmaxf(m, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
        m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
        float from = m == -INFINITY ? 0 : m * scale; /* no visible key so far */
        float shrink = power_of_2(maximum[h] * scale - from), added = 0;
#pragma unroll
        for (int n = 0; n < COLUMNS; n++)
#pragma unroll
            for (int r = 2 * h; r < 2 * h + 2; r++) {
                s[n][r] = power_of_2(s[n][r] * scale - from);
                added += s[n][r];
            }
        maximum[h] = m;
        sum[h] = sum[h] * shrink + added;
#pragma unroll
        for (int n = 0; n < OUT; n++) o[n][2 * h] *= shrink, o[n][2 * h + 1] *= shrink;
    }
}

template <class T, int W>
static __global__ void __launch_bounds__(forward_sizes<W>::THREADS)
    forward(attention_call a)
{
    using size = forward_sizes<W>;
    constexpr int ROW_TILES = size::ROW_TILES, KEYS = size::KEYS, THREADS = size::THREADS;
    DYNAMIC_SHARED(T, room);
    T *q_tile = room, *k_tile = room + size::ROWS * W, *v_tile = k_tile + 2 * KEYS * W;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int head = blockIdx.y, kv_head = head / (a.heads / a.kv_heads);
    int64_t sequence = blockIdx.z;
    int block = a.bidirectional ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
    int first = block * size::ROWS, last = min(first + size::ROWS, a.queries) - 1;
    int mine = first + warp * ROW_TILES * 16;
    const T *q = static_cast<const T *>(a.q) + sequence * a.q_at.sequence + (int64_t)head * a.head_dim;
    int64_t kv = sequence * a.kv_at.sequence + (int64_t)kv_head * a.head_dim;
    const T *k = static_cast<const T *>(a.k) + kv, *v = static_cast<const T *>(a.v) + kv;
    int begin = first_key(a, first) / KEYS * KEYS, end = min(end_key(a, last), a.keys);

    copy_tile<T, W, size::ROWS, THREADS>(q_tile, q, a.q_at.position, first, a.queries, a.head_dim);
    copy_tile<T, W, KEYS, THREADS>(k_tile, k, a.kv_at.position, begin, end, a.head_dim);
    copy_tile<T, W, KEYS, THREADS>(v_tile, v, a.kv_at.position, begin, end, a.head_dim);
    copies_done();

    float o[ROW_TILES][W / 8][4] = {}, maximum[ROW_TILES][2], sum[ROW_TILES][2] = {};
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++) maximum[i][0] = maximum[i][1] = -INFINITY;
    float scale = LOG2_E * rsqrtf((float)a.head_dim);

    for (int key = begin, stage = 0; key < end; key += KEYS, stage ^= 1) {
        copies_wait();
        __syncthreads();
        if (key + KEYS < end) {
            int other = (stage ^ 1) * KEYS * W;
            copy_tile<T, W, KEYS, THREADS>(k_tile + other, k, a.kv_at.position, key + KEYS, end,
                                           a.head_dim);
            copy_tile<T, W, KEYS, THREADS>(v_tile + other, v, a.kv_at.position, key + KEYS, end,
                                           a.head_dim);
        }
        copies_done();
        int mine_last = mine + ROW_TILES * 16 - 1;
        bool none = mine >= a.queries || key >= end_key(a, mine_last) || key + KEYS <= first_key(a, mine);
        if (none) continue;
        const T *keys = k_tile + stage * KEYS * W, *values = v_tile + stage * KEYS * W;

        float s[ROW_TILES][KEYS / 8][4] = {};
#pragma unroll
        for (int d = 0; d < W / 16; d++) {
            uint32_t left[ROW_TILES][4];
#pragma unroll
            for (int i = 0; i < ROW_TILES; i++)
                load_a<T, W>(left[i], q_tile, (warp * ROW_TILES + i) * 16, 2 * d, lane);
#pragma unroll
            for (int n = 0; n < KEYS / 16; n++) {
                uint32_t right[4];
                load_b<T, W>(right, keys, n * 16, 2 * d, lane);
#pragma unroll
                for (int i = 0; i < ROW_TILES; i++) {
                    multiply_add<T>(s[i][2 * n], left[i], right[0], right[1]);
                    multiply_add<T>(s[i][2 * n + 1], left[i], right[2], right[3]);
                }
            }
        }
        /* the first row sees up to its end, the last one from its beginning */
        bool whole = key + KEYS <= end_key(a, mine) && key + KEYS <= a.keys &&
                     key >= first_key(a, mine_last);
#pragma unroll
        for (int i = 0; i < ROW_TILES; i++) {
            if (!whole)
                mask<KEYS / 8>(a, s[i], mine + i * 16 + lane / 4, key + lane % 4 * 2);
            soften<KEYS / 8, W / 8>(s[i], o[i], maximum[i], sum[i], scale);
        }
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
            uint32_t left[ROW_TILES][4];
#pragma unroll
            for (int i = 0; i < ROW_TILES; i++) pack_a<T>(left[i], s[i][2 * n], s[i][2 * n + 1]);
#pragma unroll
            for (int d = 0; d < W / 16; d++) {
                uint32_t right[4];
                load_b_turned<T, W>(right, values, n * 16, 2 * d, lane);
#pragma unroll
                for (int i = 0; i < ROW_TILES; i++) {
                    multiply_add<T>(o[i][2 * d], left[i], right[0], right[1]);
                    multiply_add<T>(o[i][2 * d + 1], left[i], right[2], right[3]);
                }
            }
        }
    }

    copies_wait();
    int64_t rows = (sequence * a.heads + head) * a.queries;
    T *out = static_cast<T *>(a.o) + (sequence * a.queries * a.heads + head) * a.head_dim;
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++) {
        int row = mine + i * 16;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            sum[i][h] += __shfl_xor_sync(0xffffffffu, sum[i][h], 1);
            sum[i][h] += __shfl_xor_sync(0xffffffffu, sum[i][h], 2);
            int at = row + lane / 4 + h * 8;
            if (lane % 4 == 0 && at < a.queries)
                write_lse<T>(a, rows + at, (maximum[i][h] * scale + log2f(sum[i][h])) * LN_2);
        }
        /* the warp's own rows of q, no longer needed */
        write_rows<T, W>(o[i], 1 / sum[i][0], 1 / sum[i][1], q_tile + (warp * ROW_TILES + i) * 16 * W,
                         out, (int64_t)a.heads * a.head_dim, row, a.queries, a.head_dim, lane);
    }
}

template <class T, int W>
static cudaError_t launch_forward(const attention_call *a, cudaStream_t stream)
{
    using size = forward_sizes<W>;
    cudaError_t e = cudaFuncSetAttribute(forward<T, W>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         size::SHARED_BYTES);
    if (e != cudaSuccess) return e;
    dim3 grid((a->queries + size::ROWS - 1) / size::ROWS, a->heads, a->b);
    return LAUNCH((forward<T, W>), grid, dim3(size::THREADS), size::SHARED_BYTES, stream, *a);
}

extern "C" cudaError_t cuda_attention_forward_fast(const struct attention_call *a, cudaStream_t stream)
{
    if (!a->b || !a->heads || !a->queries) return cudaSuccess;
    bool narrow_head = a->head_dim <= 64;
    if (a->dtype == CUDA_bf16)
        return narrow_head ? launch_forward<__nv_bfloat16, 64>(a, stream)
                           : launch_forward<__nv_bfloat16, 128>(a, stream);
    return narrow_head ? launch_forward<__half, 64>(a, stream)
                       : launch_forward<__half, 128>(a, stream);
}
