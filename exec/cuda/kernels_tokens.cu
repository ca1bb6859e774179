/* exec/cuda/kernels_tokens.cu - rows by token ids, and turns by position.
 *
 * The gradient of an embedding adds rows of dy that have the same id. Float atomics would do it in any order; here the order is
 * that of positions, and no thread waits for a common word:
 *   1. count   how often each row occurs (integer atomics: a count has no order); an id keeps which of them it was, any order
 *   2. tiles, scan   where each row's positions begin in one list of all: sums of tiles of counts, then of counts in a tile
 *   3. fill    positions go to their row's stretch of the list, in any order within it
 *   4. sort    each finds its place in its stretch by counting the smaller ones: work Σ L², L the length of a stretch
 *   5. windows 32 entries of the list each, so that a frequent id is many blocks' work: rows of dy are added as long as the id is
 *              the same. A stretch inside of a window goes to dtable at once, parts of a longer one to scratch
 *   6. join    parts of a stretch, in order, are added to dtable
 * Cost: dy is read once, dtable's touched rows once and written once, parts are 1/16 of dy in fp32; then six launches, some 2 us
 * each, beside which a stretch of all 8,192 positions (the worst text) adds 67 million comparisons, about 30 us. Radix sort of
 * (id, position) was discarded: more passes, and longer code.
 * Rotary: cosines and sines come from a table of this call, made in fp64 (an angle of 10^4 radians in fp32 is off by 10^-3) by one
 * thread an entry; it stays in the caches while all heads and sequences read it.
 */
#include "exec/cuda/kernels_tokens.h"

#include "exec/cuda/launch.h"
#include "exec/cuda/pack.cuh"

enum { WINDOW = 32, TILE = 4096, SCAN_BLOCK = 1024, AT_ONCE = 4, ROWS = 2 };

/* Elements i … of the rows that are this thread's, ROWS of them at once: an id has to be there before its row is asked for. */
template <class T, class TABLE>
static __device__ __forceinline__ void copy_rows(const int32_t *ids, int64_t n, int64_t start,
                                                 int64_t entries, const TABLE *table, int64_t d,
                                                 int64_t i, bool packed, T *y)
{
    enum { N = pack<T>::N };
    int64_t step = (int64_t)gridDim.y * blockDim.y;
    for (int64_t r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; r < n; r += ROWS * step) {
        elements<TABLE, N> in[ROWS];
        int64_t row[ROWS];
#pragma unroll
        for (int k = 0; k < ROWS; k++) row[k] = r + k * step < n ? ids[r + k * step] - start : -1;
#pragma unroll
        for (int k = 0; k < ROWS; k++) { /* of no row: nothing is read, zeros come back */
            bool here = row[k] >= 0 && row[k] < entries;
            in[k].load(table + (here ? row[k] * d : 0), i, here ? d : 0, packed);
        }
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            wide_of<T> v[N];
            in[k].get(v);
            if (r + k * step < n) write<T, N>(y + (r + k * step) * d, i, d, packed, v);
        }
    }
}

template <class T>
static __global__ void __launch_bounds__(BLOCK)
    embedding_kernel(const int32_t *ids, int64_t n, int64_t start, int64_t entries, either table,
                     int64_t d, bool packed, T *y)
{
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * pack<T>::N;
    if (i >= d) return;
    if (table.wide)
        copy_rows<T>(ids, n, start, entries, static_cast<const wide_of<T> *>(table.p), d, i, packed, y);
    else
        copy_rows<T>(ids, n, start, entries, static_cast<const T *>(table.p), d, i, packed, y);
}

extern "C" cudaError_t cuda_embedding(enum cuda_dtype dtype, const int32_t *ids, int64_t n,
                                      int64_t start, int64_t entries, const void *table,
                                      bool table_wide, int64_t d, void *y, cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    if (n <= 0 || d <= 0) return cudaSuccess;
    either rows = {table, table_wide};
    CUDA_WITH_DTYPE(dtype, T, {
        int64_t packs = over(d, pack<T>::N);
        bool packed = lies_packed(table, y) && d % pack<T>::N == 0;
        dim3 block = block_for_row(packs);
        dim3 grid((unsigned)over(packs, block.x),
                  (unsigned)least(over(n, ROWS * (int64_t)block.y), GRID_YZ_MAX));
        e = LAUNCH((embedding_kernel<T>), grid, block, 0, stream, ids, n, start, entries, rows, d,
                   packed, (T *)y);
    });
    return e;
}

/* --- the gradient: lists of positions, a row's one behind the other --- */

struct id_lists {
    const int32_t *ids;
    int64_t n, start, entries;
    int32_t *count; /* (entries) */
    int32_t
        *begin; /* (entries + 1) of each row in the list; the last is how many there are in all */
    int32_t *tile;   /* sums of TILE counts */
    int32_t *slot;   /* (n) which of its row an id is, in any order; then the list in order */
    int32_t *filled; /* (n) the list, unordered within rows */
    void *edge;      /* (windows, 2, d) of the type that is computed in */
};

static __device__ __forceinline__ int64_t row_of(const id_lists &l, int64_t i)
{
    int64_t row = l.ids[i] - l.start;
    return row >= 0 && row < l.entries ? row : -1;
}

static __global__ void count_kernel(id_lists l)
{
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    int64_t row = i < l.n ? row_of(l, i) : -1;
    if (row >= 0) l.slot[i] = atomicAdd(&l.count[row], 1);
}

/* A thread's TILE / SCAN_BLOCK counts of tile blockIdx.x; what is behind the last row is 0. */
static __device__ __forceinline__ void counts_of(const id_lists &l, int32_t (&v)[TILE / SCAN_BLOCK])
{
    int64_t at = (int64_t)blockIdx.x * TILE + threadIdx.x * (TILE / SCAN_BLOCK);
#pragma unroll
    for (int k = 0; k < TILE / SCAN_BLOCK; k++) v[k] = at + k < l.entries ? l.count[at + k] : 0;
}

static __global__ void __launch_bounds__(SCAN_BLOCK) tile_kernel(id_lists l)
{
    __shared__ int32_t room[WARP];
    int32_t v[TILE / SCAN_BLOCK], sum = 0;
    counts_of(l, v);
#pragma unroll
    for (int k = 0; k < TILE / SCAN_BLOCK; k++) sum += v[k];
    sum = sum_block(sum, room);
    if (threadIdx.x == 0) l.tile[blockIdx.x] = sum;
}

/* The sum of v over the threads in front of this one. room: (WARP), shared */
static __device__ __forceinline__ int32_t sum_before(int32_t v, int32_t *room)
{
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int32_t upto = v;
    for (int by = 1; by < WARP; by *= 2) {
        int32_t left = __shfl_up_sync(0xffffffffu, upto, by);
        if (lane >= by) upto += left;
    }
    if (lane == WARP - 1) room[warp] = upto;
    __syncthreads();
    int32_t warps = 0;
    for (int k = 0; k < warp; k++) warps += room[k];
    __syncthreads();
    return warps + upto - v;
}

static __global__ void __launch_bounds__(SCAN_BLOCK) scan_kernel(id_lists l)
{
    __shared__ int32_t room[WARP];
    int32_t v[TILE / SCAN_BLOCK], sum = 0, tiles = 0;
    for (int64_t k = threadIdx.x; k < blockIdx.x; k += SCAN_BLOCK) tiles += l.tile[k];
    tiles = sum_block(tiles, room);
    counts_of(l, v);
#pragma unroll
    for (int k = 0; k < TILE / SCAN_BLOCK; k++) sum += v[k];
    int32_t before = tiles + sum_before(sum, room);
    int64_t at = (int64_t)blockIdx.x * TILE + threadIdx.x * (TILE / SCAN_BLOCK);
#pragma unroll
    for (int k = 0; k < TILE / SCAN_BLOCK; k++) {
        if (at + k <= l.entries) l.begin[at + k] = before;
        before += v[k];
    }
}

static __global__ void fill_kernel(id_lists l)
{
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    int64_t row = i < l.n ? row_of(l, i) : -1;
    if (row >= 0) l.filled[l.begin[row] + l.slot[i]] = (int32_t)i;
}

/* Equal ids read the same stretch, so warps that have them read it once. */
static __global__ void sort_kernel(id_lists l)
{
    int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    int64_t row = i < l.n ? row_of(l, i) : -1;
    if (row < 0) return;
    int32_t place = l.begin[row], end = l.begin[row + 1];
#pragma unroll 8
    for (int32_t k = l.begin[row]; k < end; k++) place += l.filled[k] < (int32_t)i;
    l.slot[place] = (int32_t)i;
}

/* blockIdx.x the window, blockIdx.y · blockDim.x + threadIdx.x the pack of columns. */
template <class T>
static __global__ void __launch_bounds__(BLOCK)
    window_kernel(id_lists l, const T *dy, int64_t d, bool packed, void *dtable, bool wide)
{
    enum { N = pack<T>::N };
    using W = wide_of<T>;
    __shared__ int32_t position[WINDOW];
    __shared__ int64_t row[WINDOW + 2]; /* one in front and one behind; -1 for none */
    int64_t all = l.begin[l.entries], first = (int64_t)blockIdx.x * WINDOW;
    if (first >= all) return;
    int n = (int)min(all - first, (int64_t)WINDOW);
    for (int k = (int)threadIdx.x; k < WINDOW + 2; k += (int)blockDim.x) {
        int64_t at = first + k - 1;
        row[k] = at >= 0 && at < all ? row_of(l, l.slot[at]) : -1;
        if (k >= 1 && k <= n) position[k - 1] = l.slot[at];
    }
    __syncthreads();
    int64_t i = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
    if (i >= d) return;
    W *edge = static_cast<W *>(l.edge) + (int64_t)blockIdx.x * 2 * d;
    W sum[N];
    int begun = 0; /* entry at which the present run began */
    for (int k = 0; k < n; k += AT_ONCE) {
        elements<T, N> in[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (k + u < n) in[u].load(dy + (int64_t)position[k + u] * d, i, d, packed);
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            int e = k + u;
            if (e >= n) break;
            W v[N];
            in[u].get(v);
            bool begins = e == 0 || row[e] != row[e + 1], ends = row[e + 1] != row[e + 2];
            if (begins) begun = e;
#pragma unroll
            for (int j = 0; j < N; j++) sum[j] = begins ? v[j] : sum[j] + v[j];
            if (!ends && e + 1 < n) continue;
            bool from_before = begun == 0 && row[0] == row[1];
            if (from_before || !ends)
                write<W, N>(edge + (from_before ? 0 : d), i, d, packed, sum);
            else
                put_either<T, N>(dtable, wide, row[e + 1] * d + i, (row[e + 1] + 1) * d, packed,
                                 sum, true);
        }
    }
}

/* A run that begins in window blockIdx.x and goes on behind it. */
template <class T>
static __global__ void __launch_bounds__(BLOCK)
    edge_kernel(id_lists l, int64_t d, void *dtable, bool wide)
{
    using W = wide_of<T>;
    int64_t all = l.begin[l.entries], last = ((int64_t)blockIdx.x + 1) * WINDOW - 1;
    if (last >= all) return;
    int64_t row = row_of(l, l.slot[last]), begin = l.begin[row], end = l.begin[row + 1];
    if (end <= last + 1 || begin < (int64_t)blockIdx.x * WINDOW) return;
    int64_t windows = (end - 1) / WINDOW;
    const W *edge = static_cast<const W *>(l.edge);
    for (int64_t i = threadIdx.x; i < d; i += BLOCK) {
        W sum = edge[((int64_t)blockIdx.x * 2 + 1) * d + i];
#pragma unroll 8
        for (int64_t w = (int64_t)blockIdx.x + 1; w <= windows; w++) sum += edge[w * 2 * d + i];
        put_either<T>(dtable, wide, row * d + i, sum, true);
    }
}

static size_t wide_bytes(enum cuda_dtype dtype) { return dtype == CUDA_fp64 ? 8 : 4; }
static size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }

extern "C" size_t cuda_embedding_grad_scratch(enum cuda_dtype dtype, int64_t n, int64_t entries,
                                              int64_t d)
{
    return rounded((size_t)(2 * entries + 1) * 4) + rounded((size_t)over(entries + 1, TILE) * 4) +
           rounded(2 * (size_t)n * 4) + 2 * (size_t)(over(n, WINDOW) * d) * wide_bytes(dtype);
}

static id_lists lists_in(void *scratch, const int32_t *ids, int64_t n, int64_t start,
                         int64_t entries)
{
    char *at = (char *)scratch;
    id_lists l = {ids,  n,    start, entries, (int32_t *)at, (int32_t *)at + entries,
                  NULL, NULL, NULL,  NULL};
    l.tile = (int32_t *)(at += rounded((size_t)(2 * entries + 1) * 4));
    l.slot = (int32_t *)(at += rounded((size_t)over(entries + 1, TILE) * 4));
    l.filled = l.slot + n;
    l.edge = at + rounded(2 * (size_t)n * 4);
    return l;
}

/* Steps 1 to 4. */
static cudaError_t sort_ids(const id_lists &l, cudaStream_t stream)
{
    dim3 each((unsigned)over(l.n, BLOCK)), tiles((unsigned)over(l.entries + 1, TILE));
    cudaError_t e = cudaMemsetAsync(l.count, 0, (size_t)l.entries * 4, stream);
    if (!e) e = LAUNCH(count_kernel, each, BLOCK, 0, stream, l);
    if (!e) e = LAUNCH(tile_kernel, tiles, SCAN_BLOCK, 0, stream, l);
    if (!e) e = LAUNCH(scan_kernel, tiles, SCAN_BLOCK, 0, stream, l);
    if (!e) e = LAUNCH(fill_kernel, each, BLOCK, 0, stream, l);
    if (!e) e = LAUNCH(sort_kernel, each, BLOCK, 0, stream, l);
    return e;
}

template <class T>
static cudaError_t add_rows(const id_lists &l, const void *dy, int64_t d, void *dtable, bool wide,
                            cudaStream_t stream)
{
    int64_t packs = over(d, pack<T>::N), threads = least(BLOCK, over(packs, WARP) * WARP);
    dim3 grid((unsigned)over(l.n, WINDOW), (unsigned)over(packs, threads));
    bool packed = lies_packed(dy, dtable) && d % pack<T>::N == 0;
    cudaError_t e = LAUNCH((window_kernel<T>), grid, dim3((unsigned)threads), 0, stream, l,
                           (const T *)dy, d, packed, dtable, wide);
    return e ? e : LAUNCH((edge_kernel<T>), dim3(grid.x), BLOCK, 0, stream, l, d, dtable, wide);
}

extern "C" cudaError_t cuda_embedding_grad(enum cuda_dtype dtype, const int32_t *ids, int64_t n,
                                           int64_t start, int64_t entries, const void *dy,
                                           int64_t d, void *dtable, bool dtable_wide, bool add,
                                           void *scratch, cudaStream_t stream)
{
    cudaError_t e = cudaSuccess;
    size_t bytes = dtype == CUDA_fp64 ? 8 : dtype == CUDA_fp32 || dtable_wide ? 4 : 2;
    if (entries <= 0 || d <= 0) return cudaSuccess;
    if (!add) e = cudaMemsetAsync(dtable, 0, (size_t)(entries * d) * bytes, stream);
    if (e || n <= 0) return e;
    id_lists l = lists_in(scratch, ids, n, start, entries);
    e = sort_ids(l, stream);
    if (e) return e;
    e = cudaErrorInvalidValue;
    CUDA_WITH_DTYPE(dtype, T, e = add_rows<T>(l, dy, d, dtable, dtable_wide, stream));
    return e;
}

/* --- rotary --- */

struct frequencies {
    double f[CUDA_ROTARY_PAIRS];
};

/* side: pairs of a head. table (2, positions, side): cosines, then sines; of pairs first … first + pairs - 1. */
template <class W>
static __global__ void turn_kernel(frequencies f, int32_t first, int32_t pairs, int32_t side,
                                   int64_t positions, int64_t start, W *table)
{
    int64_t item = (int64_t)blockIdx.x * BLOCK + threadIdx.x, at = item / pairs;
    int32_t i = (int32_t)(item % pairs);
    if (at >= positions) return;
    double angle = (double)(start + at) * f.f[i], sine, cosine;
    sincos(angle, &sine, &cosine);
    table[at * side + first + i] = (W)cosine;
    table[(positions + at) * side + first + i] = (W)sine;
}

/* A thread has a pack of the first halves of a head and the same of the second halves. across: packs of a half. */
template <class T>
static __global__ void __launch_bounds__(BLOCK)
    rotary_kernel(const T *x, T *y, int64_t rows, int64_t positions, int32_t heads, int32_t side,
                  divider across, bool inverse, const wide_of<T> *table, bool packed)
{
    enum { N = pack<T>::N };
    using W = wide_of<T>;
    uint32_t item = blockIdx.x * blockDim.x + threadIdx.x, head = item / across;
    int64_t i = (int64_t)(item - head * across.d) * N;
    if (head >= (uint32_t)heads) return;
    for (int64_t r = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; r < rows;
         r += (int64_t)gridDim.y * blockDim.y) {
        int64_t at = (r * heads + head) * 2 * side, turn = r % positions * side;
        W a[N], b[N], cosine[N], sine[N], u[N], v[N];
        elements<T, N> in_a, in_b;
        in_a.load(x + at, i, side, packed);
        in_b.load(x + at + side, i, side, packed);
        read<W, N>(table + turn, i, side, packed, cosine);
        read<W, N>(table + positions * side + turn, i, side, packed, sine);
        in_a.get(a);
        in_b.get(b);
#pragma unroll
        for (int j = 0; j < N; j++) {
            W s = inverse ? -sine[j] : sine[j];
            u[j] = a[j] * cosine[j] - b[j] * s;
            v[j] = b[j] * cosine[j] + a[j] * s;
        }
        write<T, N>(y + at, i, side, packed, u);
        write<T, N>(y + at + side, i, side, packed, v);
    }
}

/* Interleaved pairs, and heads of which only 2·side features rotate: a thread has the features (2i, 2i + 1) of a head, or a pair and
 * features behind the pairs. columns: pairs of features of a head. */
template <class T>
static __global__ void __launch_bounds__(BLOCK)
    rotary_part_kernel(const T *x, T *y, int64_t items, int64_t positions, int32_t heads, int32_t side,
                       int32_t columns, bool interleaved, bool inverse, const wide_of<T> *table)
{
    using W = wide_of<T>;
    for (int64_t item = (int64_t)blockIdx.x * BLOCK + threadIdx.x; item < items; item += (int64_t)gridDim.x * BLOCK) {
        int64_t head = item / columns, r = head / heads, at = head * 2 * columns;
        int32_t i = (int32_t)(item - head * columns);
        int32_t first = i < side && !interleaved ? i : 2 * i, second = i < side && !interleaved ? i + side : 2 * i + 1;
        if (i >= side) {
            y[at + first] = x[at + first], y[at + second] = x[at + second];
            continue;
        }
        int64_t turn = r % positions * side + i;
        W cosine = table[turn], sine = table[positions * side + turn];
        W a = dtype_traits<T>::get(x[at + first]), b = dtype_traits<T>::get(x[at + second]);
        if (inverse) sine = -sine;
        y[at + first] = dtype_traits<T>::put(a * cosine - b * sine);
        y[at + second] = dtype_traits<T>::put(b * cosine + a * sine);
    }
}

extern "C" size_t cuda_rotary_table_bytes(enum cuda_dtype dtype, int64_t positions, int32_t side)
{
    return 2 * (size_t)(positions * side) * wide_bytes(dtype);
}

extern "C" cudaError_t cuda_rotary_table(enum cuda_dtype dtype, const double *frequency,
                                         int32_t first, int32_t pairs, int32_t side,
                                         int64_t positions, int64_t start, void *table,
                                         cudaStream_t stream)
{
    frequencies f = {{0}};
    if (positions <= 0 || pairs <= 0) return cudaSuccess;
    if (pairs > CUDA_ROTARY_PAIRS) return cudaErrorInvalidValue;
    for (int32_t i = 0; i < pairs; i++) f.f[i] = frequency[i];
    dim3 grid((unsigned)over(positions * pairs, BLOCK));
    return dtype == CUDA_fp64 ? LAUNCH((turn_kernel<double>), grid, BLOCK, 0, stream, f, first,
                                        pairs, side, positions, start, (double *)table)
                               : LAUNCH((turn_kernel<float>), grid, BLOCK, 0, stream, f, first,
                                        pairs, side, positions, start, (float *)table);
}

template <class T>
static cudaError_t turn(const void *x, void *y, int64_t rows, int64_t positions, int32_t heads,
                        int32_t side, bool inverse, const void *table, cudaStream_t stream)
{
    int64_t across = over(side, pack<T>::N), packs = across * heads;
    bool packed = lies_packed(x, y, table) && side % pack<T>::N == 0;
    dim3 block = block_for_row(packs);
    dim3 grid((unsigned)over(packs, block.x), (unsigned)least(over(rows, block.y), GRID_YZ_MAX));
    return LAUNCH((rotary_kernel<T>), grid, block, 0, stream, (const T *)x, (T *)y, rows, positions,
                  heads, side, divider_of(across), inverse, (const wide_of<T> *)table, packed);
}

template <class T>
static cudaError_t turn_part(const void *x, void *y, int64_t rows, int64_t positions, int32_t heads,
                             int32_t head_dim, int32_t side, bool interleaved, bool inverse,
                             const void *table, cudaStream_t stream)
{
    int32_t columns = head_dim / 2;
    int64_t items = rows * heads * columns;
    dim3 grid((unsigned)least(over(items, BLOCK), INT32_MAX));
    return LAUNCH((rotary_part_kernel<T>), grid, BLOCK, 0, stream, (const T *)x, (T *)y, items,
                  positions, heads, side, columns, interleaved, inverse, (const wide_of<T> *)table);
}

extern "C" cudaError_t cuda_rotary(enum cuda_dtype dtype, const void *x, void *y, int64_t rows,
                                   int64_t positions, int32_t heads, int32_t head_dim, int32_t side,
                                   bool interleaved, bool inverse, const void *table,
                                   cudaStream_t stream)
{
    cudaError_t e = cudaErrorInvalidValue;
    if (rows <= 0 || heads <= 0 || head_dim <= 0) return cudaSuccess;
    if (2 * side == head_dim && !interleaved)
        CUDA_WITH_DTYPE(dtype, T,
                         e = turn<T>(x, y, rows, positions, heads, side, inverse, table, stream));
    else
        CUDA_WITH_DTYPE(dtype, T,
                         e = turn_part<T>(x, y, rows, positions, heads, head_dim, side, interleaved,
                                          inverse, table, stream));
    return e;
}
