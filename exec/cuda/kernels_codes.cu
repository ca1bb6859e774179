/* exec/cuda/kernels_codes.cu - compressed messages: a thread block encodes or decodes a block of elements.
 *
 * Elements with their feedback are computed again in every pass over a block, which is in the cache then, because no registers hold
 * it. TOP_K finds its threshold byte by byte from the highest (radix selection), with counts of integers in shared memory: four
 * passes of fp32, eight of fp64; elements at the threshold are taken in order. Sums of values are trees of fixed shape. Long blocks
 * leave small gradients to few multiprocessors; they are small.
 */
#include "exec/cuda/kernels_codes.h"

#include "exec/cuda/launch.h"
#include "exec/cuda/pack.cuh"
#include "exec/cuda/philox.cuh"

enum { WARPS = BLOCK / WARP };

template <class W> struct bits_of_value;
template <> struct bits_of_value<float> {
    using type = uint32_t;
    enum { FRACTION = 23, BIAS = 127 };
};
template <> struct bits_of_value<double> {
    using type = uint64_t;
    enum { FRACTION = 52, BIAS = 1023 };
};

/* Of a magnitude: they have its order, and a NaN is above infinity. */
template <class W> static __device__ __forceinline__ uint64_t magnitude_bits(W x)
{
    typename bits_of_value<W>::type bits;
    memcpy(&bits, &x, sizeof x);
    return bits & (UINT64_MAX >> (65 - 8 * sizeof x));
}
template <class W> static __device__ __forceinline__ W value_of_bits(uint64_t magnitude)
{
    typename bits_of_value<W>::type bits = (typename bits_of_value<W>::type)magnitude;
    W x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Values in words: those of fp64 may lie at any of them. */
template <class W> static __device__ __forceinline__ void put_value(uint32_t *words, W v)
{
    uint32_t part[sizeof(W) / 4];
    memcpy(part, &v, sizeof v);
#pragma unroll
    for (int i = 0; i < (int)(sizeof(W) / 4); i++) words[i] = part[i];
}
template <class W> static __device__ __forceinline__ W get_value(const uint32_t *words)
{
    uint32_t part[sizeof(W) / 4];
    W v;
#pragma unroll
    for (int i = 0; i < (int)(sizeof(W) / 4); i++) part[i] = words[i];
    memcpy(&v, part, sizeof v);
    return v;
}

/* Rounded before anything is added to it, as on every other device that decodes the same code. */
static __device__ __forceinline__ float product(float a, float b) { return __fmul_rn(a, b); }
static __device__ __forceinline__ double product(double a, double b) { return __dmul_rn(a, b); }

/* 2^e of a normal number. */
template <class W> static __device__ __forceinline__ W power_of_two(int e)
{
    return value_of_bits<W>((uint64_t)(e + bits_of_value<W>::BIAS) << bits_of_value<W>::FRACTION);
}

/* The block of this thread block. */
template <class T> struct coded {
    using W = wide_of<T>;
    const T *g;
    W *state; /* NULL: no feedback */
    uint32_t *words;
    int64_t at, m, kept; /* first element, elements, k */
    int feedback;

    __device__ __forceinline__ W x(int64_t i) const
    {
        W v = dtype_traits<T>::get(g[i]);
        if (!state) return v;
        return feedback == FEEDBACK_EF ? v + state[i] : v - state[i];
    }
    /* y: decoded. */
    __device__ __forceinline__ void keep(int64_t i, W y) const
    {
        if (!state) return;
        state[i] = feedback == FEEDBACK_EF ? x(i) - y : state[i] + y;
    }
};

static __device__ __forceinline__ int64_t kept_in(const struct cuda_code &c, int64_t block)
{
    return block == c.blocks - 1 ? c.last_kept : c.code.kept;
}

template <class T>
static __device__ __forceinline__ coded<T> block_of(const struct cuda_code &c, const T *g, wide_of<T> *state,
                                                    uint32_t *words)
{
    int64_t block = blockIdx.x, at = block * c.code.block, rest = c.n - at;
    coded<T> b = {g + at, state ? state + at : nullptr, words + block * c.block_words, at,
                  rest < c.code.block ? rest : c.code.block, kept_in(c, block), (int)c.code.feedback};
    return b;
}

static __device__ __forceinline__ uint32_t random_word(const struct cuda_code &c, int64_t element)
{
    return word(philox((uint64_t)element >> 2, c.sequence, c.key), (int)(element & 3));
}

/* --- encode --- */

static __device__ __forceinline__ uint64_t largest_in_block(uint64_t v, uint64_t *room)
{
    room[threadIdx.x] = v;
    for (int by = BLOCK / 2; by; by /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < by && room[threadIdx.x + by] > room[threadIdx.x])
            room[threadIdx.x] = room[threadIdx.x + by];
    }
    __syncthreads();
    return room[0];
}

/* Up where the fraction is above a random number, or at least a half. What is no number becomes -127. */
template <class W>
static __device__ __forceinline__ int quantised(const struct cuda_code &c, W u, int64_t element)
{
    u = u >= 127 ? 127 : u > -127 ? u : -127;
    W down = floor(u), part = u - down;
    bool up = c.code.stochastic ? part > (W)(random_word(c, element) >> 8) * (W)0x1p-24 : part >= (W)0.5;
    return (int)down + up;
}

/* The code of an 8-bit float's magnitude and sign, and the number; see encoding_float. */
template <class W>
static __device__ __forceinline__ int float_quantised(const struct cuda_code &c, W u, int64_t element, W *number)
{
    W most = (W)c.number.most;
    u = u >= most ? most : u > -most ? u : -most;
    W size = u < 0 ? -u : u;
    int e = (int)(magnitude_bits(size) >> bits_of_value<W>::FRACTION) - bits_of_value<W>::BIAS;
    e = e < c.number.least ? c.number.least : e;
    W steps = size * power_of_two<W>(c.number.fraction - e);
    int down = (int)steps;
    W part = steps - (W)down;
    bool up = c.code.stochastic ? part > (W)(random_word(c, element) >> 8) * (W)0x1p-24
                                : part > (W)0.5 || (part == (W)0.5 && down % 2);
    W v = (W)(down + up) * power_of_two<W>(e - c.number.fraction);
    *number = u < 0 ? -v : v;
    return ((e - c.number.least) * (1 << c.number.fraction) + down + up) | (u < 0) << 7;
}
template <class W> static __device__ __forceinline__ W float_of_code(const struct cuda_code &c, int code)
{
    int e = (code & 127) >> c.number.fraction, one = 1 << c.number.fraction;
    W v = (W)((code & (one - 1)) + (e ? one : 0)) * power_of_two<W>((e ? e - 1 : 0) + c.number.least - c.number.fraction);
    return code & 128 ? -v : v;
}

/* A thread makes whole words of four bytes. */
template <class T>
static __global__ void __launch_bounds__(BLOCK)
    bytes_kernel(struct cuda_code c, const T *g, wide_of<T> *state, uint32_t *words)
{
    using W = wide_of<T>;
    __shared__ uint64_t room[BLOCK];
    coded<T> b = block_of(c, g, state, words);
    uint64_t most = 0;
    for (int64_t i = threadIdx.x; i < b.m; i += BLOCK) {
        uint64_t bits = magnitude_bits(b.x(i));
        most = bits > most ? bits : most;
    }
    bool int8 = c.code.kind == ENCODING_INT8;
    W scale = value_of_bits<W>(largest_in_block(most, room)) / (int8 ? (W)127 : (W)c.number.most);
    if (threadIdx.x == 0) put_value(b.words, scale);
    for (int64_t i = threadIdx.x; 4 * i < b.m; i += BLOCK) {
        uint32_t four = 0;
        for (int64_t j = 4 * i; j < 4 * i + 4 && j < b.m; j++) {
            int q = 0;
            W number = 0;
            if (scale != 0 && int8) number = (W)(q = quantised(c, b.x(j) / scale, b.at + j));
            if (scale != 0 && !int8) q = float_quantised(c, b.x(j) / scale, b.at + j, &number);
            four |= (uint32_t)(q & 255) << 8 * (j & 3);
            b.keep(j, product(scale, number));
        }
        b.words[c.code.value_words + i] = four;
    }
}

/* bf16 and fp16 numbers, of type H, and their bits. */
template <class H> static __device__ __forceinline__ uint32_t half_bits(float v)
{
    H h = dtype_traits<H>::put(v);
    uint16_t bits;
    memcpy(&bits, &h, sizeof bits);
    return bits;
}
template <class H> static __device__ __forceinline__ float half_of_bits(uint32_t bits)
{
    uint16_t low = (uint16_t)bits;
    H h;
    memcpy(&h, &low, sizeof h);
    return dtype_traits<H>::get(h);
}
static __device__ __forceinline__ uint32_t half_code(const struct cuda_code &c, float v)
{
    return c.code.kind == ENCODING_BF16 ? half_bits<__nv_bfloat16>(v) : half_bits<__half>(v);
}
static __device__ __forceinline__ float half_value(const struct cuda_code &c, uint32_t bits)
{
    return c.code.kind == ENCODING_BF16 ? half_of_bits<__nv_bfloat16>(bits) : half_of_bits<__half>(bits);
}

template <class T>
static __global__ void __launch_bounds__(BLOCK)
    half_kernel(struct cuda_code c, const T *g, wide_of<T> *state, uint32_t *words)
{
    using W = wide_of<T>;
    coded<T> b = block_of(c, g, state, words);
    for (int64_t i = threadIdx.x; 2 * i < b.m; i += BLOCK) {
        uint32_t two = 0;
        for (int64_t j = 2 * i; j < 2 * i + 2 && j < b.m; j++) {
            uint32_t bits = half_code(c, (float)b.x(j));
            two |= bits << 16 * (j & 1);
            b.keep(j, (W)half_value(c, bits));
        }
        b.words[i] = two;
    }
}

/* A warp makes a word of its 32 lanes' elements. */
template <class T>
static __global__ void __launch_bounds__(BLOCK)
    sign_kernel(struct cuda_code c, const T *g, wide_of<T> *state, uint32_t *words)
{
    using W = wide_of<T>;
    __shared__ W room[WARP];
    coded<T> b = block_of(c, g, state, words);
    W sum = 0;
    for (int64_t i = threadIdx.x; i < b.m; i += BLOCK) sum += b.x(i) < 0 ? -b.x(i) : b.x(i);
    W scale = sum_block(sum, room) / (W)b.m;
    int lane = (int)threadIdx.x % WARP;
    if (threadIdx.x == 0) put_value(b.words, scale);
    for (int64_t at = (int64_t)(threadIdx.x / WARP) * WARP; at < b.m; at += BLOCK) {
        bool negative = at + lane < b.m && b.x(at + lane) < 0;
        unsigned bits = __ballot_sync(0xffffffffu, negative);
        if (at + lane < b.m) b.keep(at + lane, negative ? -scale : scale);
        if (lane == 0) b.words[c.code.value_words + at / WARP] = bits;
    }
}

/* The k-th largest magnitude; *equal: how many of that magnitude are among the k. */
template <class T>
static __device__ __forceinline__ uint64_t threshold(const coded<T> &b, int64_t *equal)
{
    __shared__ int count[256];
    __shared__ uint64_t found;
    __shared__ int64_t k;
    if (threadIdx.x == 0) found = 0, k = b.kept;
    for (int shift = 8 * (int)sizeof(wide_of<T>) - 8; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += BLOCK) count[i] = 0;
        __syncthreads();
        for (int64_t i = threadIdx.x; i < b.m; i += BLOCK) {
            uint64_t bits = magnitude_bits(b.x(i)) >> shift;
            if (bits >> 8 == found) atomicAdd(&count[bits & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int digit = 255;
            for (; count[digit] < k; digit--) k -= count[digit];
            found = found << 8 | (uint64_t)digit;
        }
        __syncthreads();
    }
    *equal = k;
    return found;
}

/* How many threads before this one have the flag; *all: how many in the thread block. */
static __device__ __forceinline__ int flags_before(bool flag, int *of_warp, int *all)
{
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, before = 0;
    unsigned bits = __ballot_sync(0xffffffffu, flag);
    __syncthreads();
    if (lane == 0) of_warp[warp] = __popc(bits);
    __syncthreads();
    *all = 0;
    for (int i = 0; i < WARPS; i++) {
        if (i == warp) before = *all;
        *all += of_warp[i];
    }
    return before + __popc(bits & ((1u << lane) - 1));
}

template <class T>
static __global__ void __launch_bounds__(BLOCK)
    top_k_kernel(struct cuda_code c, const T *g, wide_of<T> *state, uint32_t *words)
{
    using W = wide_of<T>;
    __shared__ int of_warp[WARPS];
    coded<T> b = block_of(c, g, state, words);
    int64_t left, at = 0;
    uint64_t least = threshold(b, &left);
    for (int64_t first = 0; first < b.m; first += BLOCK) {
        int64_t i = first + threadIdx.x;
        bool in = i < b.m;
        W x = in ? b.x(i) : W(0);
        uint64_t bits = magnitude_bits(x);
        int equals, taken;
        bool equal = in && bits == least;
        int before = flags_before(equal, of_warp, &equals);
        bool take = in && (bits > least || (equal && before < left));
        int64_t to = at + flags_before(take, of_warp, &taken);
        if (take) b.words[to] = (uint32_t)i, put_value(b.words + b.kept + c.code.value_words * to, x);
        if (in) b.keep(i, take ? x : W(0));
        left -= equals < left ? equals : left, at += taken;
    }
}

template <class T>
static __global__ void __launch_bounds__(BLOCK)
    random_k_kernel(struct cuda_code c, const T *g, wide_of<T> *state, uint32_t *words)
{
    using W = wide_of<T>;
    coded<T> b = block_of(c, g, state, words);
    int64_t begin = (int64_t)((uint64_t)random_word(c, b.at) * (uint64_t)b.m >> 32);
    if (threadIdx.x == 0) b.words[0] = (uint32_t)begin;
    for (int64_t i = threadIdx.x; i < b.m; i += BLOCK) {
        int64_t j = i - begin + (i < begin ? b.m : 0);
        W x = b.x(i);
        if (j < b.kept) put_value(b.words + 1 + c.code.value_words * j, x);
        b.keep(i, j < b.kept ? x : W(0));
    }
}

template <class T>
static cudaError_t encode(const struct cuda_code *c, const T *g, wide_of<T> *state, uint32_t *words,
                          cudaStream_t stream)
{
    dim3 grid((unsigned)c->blocks);
    switch (c->code.kind) {
    case ENCODING_INT8:
    case ENCODING_FP8_E4M3:
    case ENCODING_FP8_E5M2:
        return LAUNCH(bytes_kernel<T>, grid, BLOCK, 0, stream, *c, g, state, words);
    case ENCODING_BF16:
    case ENCODING_FP16:
        return LAUNCH(half_kernel<T>, grid, BLOCK, 0, stream, *c, g, state, words);
    case ENCODING_SIGN:
        return LAUNCH(sign_kernel<T>, grid, BLOCK, 0, stream, *c, g, state, words);
    case ENCODING_TOP_K:
        return LAUNCH(top_k_kernel<T>, grid, BLOCK, 0, stream, *c, g, state, words);
    case ENCODING_RANDOM_K:
        return LAUNCH(random_k_kernel<T>, grid, BLOCK, 0, stream, *c, g, state, words);
    default:
        return cudaErrorInvalidValue;
    }
}

extern "C" cudaError_t cuda_encode(enum cuda_dtype dtype, const struct cuda_code *c, const void *g,
                                   void *state, uint32_t *words, cudaStream_t stream)
{
    cudaError_t failed = cudaErrorInvalidValue;
    if (c->n <= 0) return cudaSuccess;
    if (c->blocks > INT32_MAX) return failed;
    CUDA_WITH_DTYPE(dtype, T, failed = encode(c, (const T *)g, (wide_of<T> *)state, words, stream));
    return failed;
}

/* --- PowerSGD: one thread block, because a column needs all before --- */

template <class W>
static __device__ __forceinline__ W dot(const W *p, int64_t n, int64_t r, int64_t a, int64_t b, W *room)
{
    W sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += BLOCK) sum += p[i * r + a] * p[i * r + b];
    return sum_block(sum, room);
}

/* Elements of a column belong to one thread throughout. Returns the length of what is left. */
template <class W>
static __device__ __forceinline__ W remove_parts(W *p, int64_t n, int64_t r, int64_t c, W *room)
{
    for (int64_t b = 0; b < c; b++) {
        W part = dot(p, n, r, b, c, room);
        for (int64_t i = threadIdx.x; i < n; i += BLOCK) p[i * r + c] -= part * p[i * r + b];
    }
    return sqrt(dot(p, n, r, c, c, room));
}

template <class W>
static __global__ void __launch_bounds__(BLOCK)
    orthonormal_kernel(W *p, int64_t n, int64_t r, int64_t draws, uint64_t key, uint64_t step)
{
    __shared__ W room[WARP];
    W rounding = sizeof(W) == 4 ? (W)0x1p-20 : (W)0x1p-49;
    for (int64_t k = 0; k < r; k++)
        for (int64_t draw = 0; draw < draws; draw++) {
            W whole = sqrt(dot(p, n, r, k, k, room));
            remove_parts(p, n, r, k, room);
            W left = remove_parts(p, n, r, k, room);
            if (left <= rounding * whole) {
                uint64_t sequence = (uint64_t)(draw * r + k) << 40 | step;
                for (int64_t i = threadIdx.x; i < n; i += BLOCK)
                    p[i * r + k] = (W)(int32_t)word(philox((uint64_t)i >> 2, sequence, key), (int)(i & 3)) / (W)2147483648.0;
                continue;
            }
            for (int64_t i = threadIdx.x; i < n; i += BLOCK) p[i * r + k] /= left;
            break;
        }
}

extern "C" cudaError_t cuda_orthonormal(enum cuda_dtype dtype, void *p, int64_t n, int64_t r, int64_t draws,
                                        uint64_t key, uint64_t step, cudaStream_t stream)
{
    if (n <= 0 || r <= 0) return cudaSuccess;
    if (dtype == CUDA_fp64)
        return LAUNCH(orthonormal_kernel<double>, 1, BLOCK, 0, stream, (double *)p, n, r, draws, key, step);
    if (dtype != CUDA_fp32) return cudaErrorInvalidValue;
    return LAUNCH(orthonormal_kernel<float>, 1, BLOCK, 0, stream, (float *)p, n, r, draws, key, step);
}

/* --- decode --- */

/* Element i of a code with all elements. */
template <class W> static __device__ __forceinline__ W decoded(const struct cuda_code &c, const uint32_t *code, int64_t i)
{
    const uint32_t *rest = code + c.code.value_words;
    if (c.code.kind == ENCODING_BF16 || c.code.kind == ENCODING_FP16) return (W)half_value(c, code[i / 2] >> 16 * (i & 1) & 0xffff);
    W scale = get_value<W>(code);
    if (c.code.kind == ENCODING_SIGN) return rest[i / 32] >> (i & 31) & 1 ? -scale : scale;
    uint8_t byte = (uint8_t)(rest[i / 4] >> 8 * (i & 3));
    return product(scale, c.code.kind == ENCODING_INT8 ? (W)(int8_t)byte : float_of_code<W>(c, byte));
}

/* Codes of every element, added in a register. */
template <class T>
static __device__ __forceinline__ void decode_dense(const struct cuda_code &c, const uint32_t *words,
                                                    int64_t codes, int64_t each, int64_t m, T *y)
{
    using W = wide_of<T>;
    for (int64_t i = threadIdx.x; i < m; i += BLOCK) {
        W sum = dtype_traits<T>::get(y[i]);
        for (int64_t k = 0; k < codes; k++) sum += decoded<W>(c, words + k * each, i);
        y[i] = dtype_traits<T>::put(sum);
    }
}

/* Codes of some elements, one code after the other. */
template <class T>
static __device__ __forceinline__ void decode_sparse(const struct cuda_code &c, const uint32_t *words,
                                                     int64_t codes, int64_t each, int64_t m,
                                                     int64_t kept, T *y)
{
    using W = wide_of<T>;
    bool top = c.code.kind == ENCODING_TOP_K;
    for (int64_t k = 0; k < codes; k++, words += each) {
        __syncthreads();
        const uint32_t *values = words + (top ? kept : 1);
        for (int64_t j = threadIdx.x; j < kept; j += BLOCK) {
            int64_t i = top ? words[j] : ((int64_t)words[0] + j) % m;
            if (i < m) y[i] = dtype_traits<T>::put(dtype_traits<T>::get(y[i]) + get_value<W>(values + c.code.value_words * j));
        }
    }
}

template <class T>
static __global__ void __launch_bounds__(BLOCK)
    decode_kernel(struct cuda_code c, const uint32_t *words, int64_t codes, int64_t each, T *g, T *sum)
{
    int64_t block = blockIdx.x, at = block * c.code.block, rest = c.n - at;
    int64_t m = rest < c.code.block ? rest : c.code.block;
    T *y = (sum ? sum : g) + at;
    words += block * c.block_words;
    for (int64_t i = threadIdx.x; !sum && i < m; i += BLOCK) y[i] = dtype_traits<T>::put(0);
    if (c.code.kind == ENCODING_TOP_K || c.code.kind == ENCODING_RANDOM_K)
        decode_sparse(c, words, codes, each, m, kept_in(c, block), y);
    else
        decode_dense(c, words, codes, each, m, y);
    __syncthreads();
    for (int64_t i = threadIdx.x; sum && i < m; i += BLOCK) g[at + i] = y[i];
}

extern "C" cudaError_t cuda_decode(enum cuda_dtype dtype, const struct cuda_code *c,
                                   const uint32_t *words, int64_t codes, int64_t each, void *g,
                                   void *sum, cudaStream_t stream)
{
    cudaError_t failed = cudaErrorInvalidValue;
    if (c->n <= 0) return cudaSuccess;
    if (c->blocks > INT32_MAX) return failed;
    dim3 grid((unsigned)c->blocks);
    CUDA_WITH_DTYPE(dtype, T, failed = LAUNCH(decode_kernel<T>, grid, BLOCK, 0, stream, *c, words, codes, each, (T *)g, (T *)sum));
    return failed;
}
