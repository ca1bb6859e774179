/* exec/cuda/kernels_attention_grad.cu - attention's gradients on tensor cores.
 *
 * Probabilities are recomputed as exp(score - lse); with delta = Σ o·do of a row the gradient of a score is p·(do·v -
 * delta) (Dao et al. 2022, FlashAttention, appendix B.4). Two kernels with separate results, so no result has two
 * writers and every sum has one order:
 *   queries  a block has 64 queries and iterates over keys:    dq  = Σ ds·k          (3 products)
 *   keys     a block has 64 keys and iterates over queries of all heads that share them: dv = Σ pᵀ·do, dk = Σ dsᵀ·q  (4)
 * One pass that also accumulates dq would need 5 products, and either atomics or T/64 partial sums of dq in fp32,
 * written, read and summed, which at T = 1024 cost as much as the two additional products.
 *
 * The keys kernel uses transposed scores, k·qᵀ: pᵀ and dsᵀ then have keys as rows, the layout of the next product's
 * left operand, in registers. Scores are computed and consumed 32 columns at a time, except those that no row of the
 * warp sees; results (dk and dv: 64 registers for heads of 64, 128 for 128) fill the registers. A warp's own rows are
 * left operands throughout: for heads of 64 they stay in registers (32), for wider heads they are read again for each
 * 32 columns. Each right operand serves one product, so shared memory allows 80 % of the cores' rate at most, and 60
 * % if left operands are read too; 2 or more blocks of 4 warps per SM hide the barriers. The per-query values of a
 * tile are loaded before the products and stored to shared memory after them, so their latency is hidden.
 */
#include "exec/cuda/attention_tiles.cuh"

template <int W> struct grad_sizes {
    enum { WARPS = 4, THREADS = WARPS * 32, ROWS = WARPS * 16, BLOCKS = W == 64 ? 3 : 2 };
    enum { OTHERS = W == 64 ? 64 : 32, AT_ONCE = 32 }; /* of the other side, in a tile and in registers */
    enum { TILES_BYTES = (2 * ROWS + 4 * OTHERS) * W * 2 };
    enum { QUERIES_BYTES = TILES_BYTES, KEYS_BYTES = TILES_BYTES + 4 * OTHERS * 4 };
};

/* A warp's 16 rows of a tile as left operands of all that it multiplies. */
template <class T, int W> struct left_rows {
    enum { HELD = W == 64, N = HELD ? W / 16 : 1 };
    const T *tile;
    int row;
    uint32_t held[N][4];

    /* Once the tile is there. */
    __device__ __forceinline__ void open(const T *tile_, int row_, int lane)
    {
        tile = tile_, row = row_;
        if constexpr (HELD) {
#pragma unroll
            for (int d = 0; d < N; d++) load_a<T, W>(held[d], tile, row, 2 * d, lane);
        }
    }
    /* Columns 16 d … 16 d + 15. */
    __device__ __forceinline__ void get(uint32_t (&l)[4], int d, int lane) const
    {
        if constexpr (HELD) {
#pragma unroll
            for (int i = 0; i < 4; i++) l[i] = held[d][i];
        } else {
            load_a<T, W>(l, tile, row, 2 * d, lane);
        }
    }
};

/* s (16, COLUMNS) = the products of a warp's rows with COLUMNS rows of `right`. */
template <class T, int W, int COLUMNS>
static __device__ __forceinline__ void scores(float s[COLUMNS / 8][4], const left_rows<T, W> &left,
                                              const T *right, int column, int lane)
{
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int d = 0; d < W / 16; d++) {
        uint32_t l[4];
        left.get(l, d, lane);
#pragma unroll
        for (int n = 0; n < COLUMNS / 16; n++) {
            uint32_t r[4];
            load_b<T, W>(r, right, column + n * 16, 2 * d, lane);
            multiply_add<T>(s[2 * n], l, r[0], r[1]);
            multiply_add<T>(s[2 * n + 1], l, r[2], r[3]);
        }
    }
}

/* Probabilities of invisible pairs become 0. query, key: of a lane's first element; KEYS_DOWN: rows are keys. */
template <int COLUMNS, bool KEYS_DOWN>
static __device__ __forceinline__ void mask(const attention_call &a, float p[COLUMNS / 8][4], int query,
                                            int key)
{
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
        for (int r = 0; r < 4; r++) {
            int down = r / 2 * 8, across = n * 8 + r % 2;
            if (!sees(a, query + (KEYS_DOWN ? across : down), key + (KEYS_DOWN ? down : across)))
                p[n][r] = 0;
        }
}

/* out (16, W) += s (16, COLUMNS), rounded, times COLUMNS rows of a tile. */
template <class T, int W, int COLUMNS>
static __device__ __forceinline__ void add_product(float out[W / 8][4], const float s[COLUMNS / 8][4],
                                                   const T *right, int row, int lane)
{
#pragma unroll
    for (int n = 0; n < COLUMNS / 16; n++) {
        uint32_t l[4];
        pack_a<T>(l, s[2 * n], s[2 * n + 1]);
#pragma unroll
        for (int d = 0; d < W / 16; d++) {
            uint32_t r[4];
            load_b_turned<T, W>(r, right, row + n * 16, 2 * d, lane);
            multiply_add<T>(out[2 * d], l, r[0], r[1]);
            multiply_add<T>(out[2 * d + 1], l, r[2], r[3]);
        }
    }
}

struct head_at { /* elements from the beginning of each operand to a head */
    int64_t q, kv, o, row;
};

static __device__ __forceinline__ head_at head_of(const attention_call &a, int64_t sequence, int head)
{
    int kv_head = head / (a.heads / a.kv_heads);
    return head_at{sequence * a.q_at.sequence + (int64_t)head * a.head_dim,
                   sequence * a.kv_at.sequence + (int64_t)kv_head * a.head_dim,
                   (sequence * a.queries * a.heads + head) * a.head_dim,
                   (sequence * a.heads + head) * a.queries};
}

template <class T, int W>
static __global__ void __launch_bounds__(grad_sizes<W>::THREADS, grad_sizes<W>::BLOCKS) grad_queries(attention_call a)
{
    using size = grad_sizes<W>;
    constexpr int THREADS = size::THREADS, ROWS = size::ROWS, KEYS = size::OTHERS,
                  AT_ONCE = size::AT_ONCE;
    DYNAMIC_SHARED(T, room);
    T *q_tile = room, *do_tile = room + ROWS * W, *k_tile = do_tile + ROWS * W,
      *v_tile = k_tile + 2 * KEYS * W;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y;
    int block = a.bidirectional ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
    int first = block * ROWS, last = min(first + ROWS, a.queries) - 1, mine = first + warp * 16;
    head_at at = head_of(a, blockIdx.z, head);
    int64_t o_position = (int64_t)a.heads * a.head_dim;
    const T *k = static_cast<const T *>(a.k) + at.kv, *v = static_cast<const T *>(a.v) + at.kv;
    int begin = first_key(a, first) / KEYS * KEYS, end = min(end_key(a, last), a.keys);

    copy_tile<T, W, ROWS, THREADS>(q_tile, static_cast<const T *>(a.q) + at.q, a.q_at.position,
                                   first, a.queries, a.head_dim);
    copy_tile<T, W, ROWS, THREADS>(do_tile, static_cast<const T *>(a.dout) + at.o, o_position,
                                   first, a.queries, a.head_dim);
    copy_tile<T, W, KEYS, THREADS>(k_tile, k, a.kv_at.position, begin, end, a.head_dim);
    copy_tile<T, W, KEYS, THREADS>(v_tile, v, a.kv_at.position, begin, end, a.head_dim);
    copies_done();

    float dq[W / 8][4] = {}, lse[2], delta[2], scale = rsqrtf((float)a.head_dim);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = mine + lane / 4 + h * 8;
        bool there = row < a.queries;
        lse[h] = there ? read_lse<T>(a, at.row + row) * LOG2_E : INFINITY;
        delta[h] = there ? static_cast<const float *>(a.delta)[at.row + row] : 0;
    }
    left_rows<T, W> q, dout;
    copies_wait();
    __syncthreads();
    q.open(q_tile, warp * 16, lane), dout.open(do_tile, warp * 16, lane);
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
        const T *keys = k_tile + stage * KEYS * W, *values = v_tile + stage * KEYS * W;
#pragma unroll 1
        for (int c = 0; c < KEYS; c += AT_ONCE) {
            float s[AT_ONCE / 8][4], ds[AT_ONCE / 8][4];
            bool none = key + c >= min(end_key(a, mine + 15), a.keys) ||
                        key + c + AT_ONCE <= first_key(a, mine);
            if (none) continue;
            scores<T, W, AT_ONCE>(s, q, keys, c, lane);
            scores<T, W, AT_ONCE>(ds, dout, values, c, lane);
            bool whole = key + c + AT_ONCE <= end_key(a, mine) && key + c + AT_ONCE <= a.keys &&
                         key + c >= first_key(a, mine + 15);
#pragma unroll
            for (int n = 0; n < AT_ONCE / 8; n++)
#pragma unroll
                for (int r = 0; r < 4; r++)
                    s[n][r] = power_of_2(s[n][r] * (scale * LOG2_E) - lse[r / 2]);
            if (!whole)
                mask<AT_ONCE, false>(a, s, mine + lane / 4, key + c + lane % 4 * 2);
#pragma unroll
            for (int n = 0; n < AT_ONCE / 8; n++)
#pragma unroll
                for (int r = 0; r < 4; r++) ds[n][r] = s[n][r] * (ds[n][r] - delta[r / 2]);
            add_product<T, W, AT_ONCE>(dq, ds, keys, c, lane);
        }
    }
    write_rows<T, W>(dq, scale, scale, q_tile + warp * 16 * W, static_cast<T *>(a.dq) + at.q,
                     a.q_at.position, mine, a.queries, a.head_dim, lane);
}

/* Begins the copy of a tile of queries of one head. */
template <class T, int W, int QUERIES, int THREADS>
static __device__ __forceinline__ void copy_queries(const attention_call &a, head_at at, int first,
                                                    int end, T *q_tile, T *do_tile)
{
    copy_tile<T, W, QUERIES, THREADS>(q_tile, static_cast<const T *>(a.q) + at.q, a.q_at.position,
                                      first, end, a.head_dim);
    copy_tile<T, W, QUERIES, THREADS>(do_tile, static_cast<const T *>(a.dout) + at.o,
                                      (int64_t)a.heads * a.head_dim, first, end, a.head_dim);
}

/* Per-query values besides the rows; for absent queries the probabilities are 0. */
struct beside_query {
    float lse, delta;
};

template <class T>
static __device__ __forceinline__ beside_query read_beside(const attention_call &a, head_at at,
                                                           int query, int end)
{
    beside_query b = {INFINITY, 0};
    if (query < end) {
        b.lse = read_lse<T>(a, at.row + query);
        b.delta = static_cast<const float *>(a.delta)[at.row + query];
    }
    return b;
}

template <class T, int W>
static __global__ void __launch_bounds__(grad_sizes<W>::THREADS, grad_sizes<W>::BLOCKS) grad_keys(attention_call a)
{
    using size = grad_sizes<W>;
    constexpr int THREADS = size::THREADS, ROWS = size::ROWS, QUERIES = size::OTHERS,
                  AT_ONCE = size::AT_ONCE;
    DYNAMIC_SHARED(T, room);
    T *k_tile = room, *v_tile = room + ROWS * W, *q_tile = v_tile + ROWS * W,
      *do_tile = q_tile + 2 * QUERIES * W;
    float *lse = reinterpret_cast<float *>(do_tile + 2 * QUERIES * W), *delta = lse + 2 * QUERIES;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = a.heads / a.kv_heads;
    int first = blockIdx.x * ROWS, last = min(first + ROWS, a.keys) - 1, mine = first + warp * 16;
    int64_t sequence = blockIdx.z;
    int head = blockIdx.y * group;
    head_at at = head_of(a, sequence, head);
    int begin = first_query(a, first) / QUERIES * QUERIES, end = end_query(a, last);
    int per_head = end > begin ? (end - begin + QUERIES - 1) / QUERIES : 0;

    copy_tile<T, W, ROWS, THREADS>(k_tile, static_cast<const T *>(a.k) + at.kv, a.kv_at.position,
                                   first, a.keys, a.head_dim);
    copy_tile<T, W, ROWS, THREADS>(v_tile, static_cast<const T *>(a.v) + at.kv, a.kv_at.position,
                                   first, a.keys, a.head_dim);
    if (per_head) copy_queries<T, W, QUERIES, THREADS>(a, at, begin, end, q_tile, do_tile);
    copies_done();
    static_assert(QUERIES <= THREADS, "a thread has a query's numbers");
    int own = threadIdx.x;
    if (per_head && own < QUERIES) {
        beside_query b = read_beside<T>(a, at, begin + own, end);
        lse[own] = b.lse * LOG2_E, delta[own] = b.delta;
    }

    left_rows<T, W> k, v;
    copies_wait();
    __syncthreads();
    k.open(k_tile, warp * 16, lane), v.open(v_tile, warp * 16, lane);
    float dk[W / 8][4] = {}, dv[W / 8][4] = {}, scale = rsqrtf((float)a.head_dim);
    for (int i = 0, query = begin, stage = 0; i < per_head * group; i++, stage ^= 1) {
        copies_wait();
        __syncthreads();
        int next = query + QUERIES < end ? query + QUERIES : begin, other = stage ^ 1;
        bool more = i + 1 < per_head * group;
        beside_query beside = {INFINITY, 0};
        if (more) {
            head_at then = next == begin ? head_of(a, sequence, ++head) : head_of(a, sequence, head);
            copy_queries<T, W, QUERIES, THREADS>(a, then, next, end, q_tile + other * QUERIES * W,
                                                 do_tile + other * QUERIES * W);
            if (own < QUERIES) beside = read_beside<T>(a, then, next + own, end);
        }
        copies_done();
        const T *queries = q_tile + stage * QUERIES * W, *douts = do_tile + stage * QUERIES * W;
#pragma unroll 1
        for (int c = 0; c < QUERIES; c += AT_ONCE) {
            float p[AT_ONCE / 8][4], ds[AT_ONCE / 8][4];
            bool none = query + c >= end || mine >= end_key(a, query + c + AT_ONCE - 1) ||
                        mine + 16 <= first_key(a, query + c);
            if (none) continue;
            scores<T, W, AT_ONCE>(p, k, queries, c, lane);
            scores<T, W, AT_ONCE>(ds, v, douts, c, lane);
            bool whole = mine + 16 <= end_key(a, query + c) &&
                         mine >= first_key(a, query + c + AT_ONCE - 1);
#pragma unroll
            for (int n = 0; n < AT_ONCE / 8; n++) {
                int column = c + n * 8 + lane % 4 * 2;
                float2 l = *reinterpret_cast<const float2 *>(lse + stage * QUERIES + column);
#pragma unroll
                for (int r = 0; r < 4; r++)
                    p[n][r] = power_of_2(p[n][r] * (scale * LOG2_E) - (r % 2 ? l.y : l.x));
            }
            if (!whole)
                mask<AT_ONCE, true>(a, p, query + c + lane % 4 * 2, mine + lane / 4);
#pragma unroll
            for (int n = 0; n < AT_ONCE / 8; n++) {
                int column = c + n * 8 + lane % 4 * 2;
                float2 d = *reinterpret_cast<const float2 *>(delta + stage * QUERIES + column);
#pragma unroll
                for (int r = 0; r < 4; r++) ds[n][r] = p[n][r] * (ds[n][r] - (r % 2 ? d.y : d.x));
            }
            add_product<T, W, AT_ONCE>(dv, p, douts, c, lane);
            add_product<T, W, AT_ONCE>(dk, ds, queries, c, lane);
        }
        if (more && own < QUERIES) {
            lse[other * QUERIES + own] = beside.lse * LOG2_E;
            delta[other * QUERIES + own] = beside.delta;
        }
        query = next;
    }
    write_rows<T, W>(dk, scale, scale, k_tile + warp * 16 * W, static_cast<T *>(a.dk) + at.kv,
                     a.kv_at.position, mine, a.keys, a.head_dim, lane);
    write_rows<T, W>(dv, 1, 1, v_tile + warp * 16 * W, static_cast<T *>(a.dv) + at.kv,
                     a.kv_at.position, mine, a.keys, a.head_dim, lane);
}

template <class T, int W>
static cudaError_t launch_grad(const attention_call *a, cudaStream_t stream)
{
    using size = grad_sizes<W>;
    cudaError_t e = cudaFuncSetAttribute(
        grad_queries<T, W>, cudaFuncAttributeMaxDynamicSharedMemorySize, size::QUERIES_BYTES);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute(grad_keys<T, W>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 size::KEYS_BYTES);
    if (e != cudaSuccess) return e;
    dim3 queries((a->queries + size::ROWS - 1) / size::ROWS, a->heads, a->b),
        keys((a->keys + size::ROWS - 1) / size::ROWS, a->kv_heads, a->b);
    if (a->queries)
        e = LAUNCH((grad_queries<T, W>), queries, dim3(size::THREADS), size::QUERIES_BYTES, stream, *a);
    if (e != cudaSuccess) return e;
    return LAUNCH((grad_keys<T, W>), keys, dim3(size::THREADS), size::KEYS_BYTES, stream, *a);
}

extern "C" cudaError_t cuda_attention_grad_fast(const struct attention_call *a, cudaStream_t stream)
{
    if (!a->b || !a->heads || !a->keys) return cudaSuccess;
    bool narrow_head = a->head_dim <= 64;
    if (a->dtype == CUDA_bf16)
        return narrow_head ? launch_grad<__nv_bfloat16, 64>(a, stream)
                           : launch_grad<__nv_bfloat16, 128>(a, stream);
    return narrow_head ? launch_grad<__half, 64>(a, stream) : launch_grad<__half, 128>(a, stream);
}
