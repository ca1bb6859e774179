/* exec/cuda/tensor_core.cuh - one warp's tensor-core products, and loads of their tiles; for .cu files.
 *
 * The code uses the PTX instructions mma.sync, ldmatrix and cp.async, not nvcuda::wmma, because the position of each
 * element in a fragment is then known: one product's result becomes the next one's operand in registers, and a row's
 * maximum needs two shuffles. All operands are in registers and shared-memory tiles.
 *
 * A fragment of m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"), lane = 4 g + t:
 *     a (16,16): a[0] row g, columns 2t 2t+1; a[1] row g+8; a[2] row g, columns 2t+8 2t+9; a[3] row g+8 of those
 *     b (16,8):  b[0] rows 2t 2t+1 of column g; b[1] rows 2t+8 2t+9
 *     c (16,8):  c[0] c[1] row g, columns 2t 2t+1; c[2] c[3] row g+8
 * so two adjacent c, rounded and packed, are an a with the same columns (pack_a).
 *
 * A tile has rows of W elements, W a multiple of 64, in chunks of 16 bytes; chunk c of row r is stored at index c ^
 * (r mod 8). ldmatrix reads eight rows of one chunk at a time, and rows are multiples of 128 bytes: the exclusive or
 * spreads them over eight different groups of four banks, without padding; cp.async writes a row's chunks, in another
 * order, also without conflict.
 *
 * sm_75 has neither cp.async nor m16n8k16 nor bf16: copies are ordinary there, and the product is two of k = 8, fp16
 * only. Older GPUs lack ldmatrix: launchers must check TENSOR_CORES_FROM. In the stand-in the lanes deposit their
 * registers and one of them executes the instruction.
 */
#ifndef EXEC_CUDA_TENSOR_CORE_CUH
#define EXEC_CUDA_TENSOR_CORE_CUH

#include "exec/cuda/dtypes.cuh"
#include "exec/cuda/launch.h"

#include <stdint.h>
#include <string.h>

enum { TENSOR_CORES_FROM = 75, TENSOR_CORES_BF16_FROM = 80 }; /* 10 major + minor */

/* --- two half-precision numbers in 32 bits, the first in the lower half --- */

template <class T> static __device__ __forceinline__ uint32_t pack(float low, float high);

#ifdef STANDIN
template <class T> static inline uint32_t pack(float low, float high)
{
    T both[2] = {dtype_traits<T>::put(low), dtype_traits<T>::put(high)};
    uint32_t bits;
    memcpy(&bits, both, sizeof bits);
    return bits;
}
#else
template <> __device__ __forceinline__ uint32_t pack<__nv_bfloat16>(float low, float high)
{
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&both);
}
template <> __device__ __forceinline__ uint32_t pack<__half>(float low, float high)
{
    __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&both);
}
#endif

/* Columns 16 i … 16 i + 15 of a product c (16, 8 n), rounded, as the left operand of the next product. */
template <class T>
static __device__ __forceinline__ void pack_a(uint32_t a[4], const float low[4],
                                              const float high[4])
{
    a[0] = pack<T>(low[0], low[1]);
    a[1] = pack<T>(low[2], low[3]);
    a[2] = pack<T>(high[0], high[1]);
    a[3] = pack<T>(high[2], high[3]);
}

/* --- tiles in shared memory --- */

enum { CHUNK = 8 }; /* half-precision elements in 16 bytes */

/* Element of a tile with rows of W elements at which chunk c of row r begins. */
template <int W> static __device__ __forceinline__ int at_chunk(int row, int chunk)
{
    return row * W + (chunk ^ (row & 7)) * CHUNK;
}

#ifdef STANDIN

/* 16 bytes, or zeros. */
static inline void copy_chunk(void *shared, const void *device, bool there)
{
    standin_copy_later(shared, there ? device : nullptr, 16);
}
static inline void copies_done() { standin_copies_commit(); }
template <int PENDING = 0> static inline void copies_wait() { standin_copies_wait(PENDING); }

struct fragments_of_lane {
    uint32_t *r;
    const void *row;
};

static inline void exchange_matrices(void **lane, bool trans)
{
    uint16_t row[32][8];
    for (int i = 0; i < 32; i++)
        memcpy(row[i], static_cast<fragments_of_lane *>(lane[i])->row, sizeof row[i]);
    for (int i = 0; i < 32; i++)
        for (int j = 0; j < 4; j++) {
            int g = i / 4, t = i % 4 * 2;
            uint32_t low = trans ? row[8 * j + t][g] : row[8 * j + g][t];
            uint32_t high = trans ? row[8 * j + t + 1][g] : row[8 * j + g][t + 1];
            static_cast<fragments_of_lane *>(lane[i])->r[j] = low | high << 16;
        }
}
static inline void exchange_straight(void **lane, unsigned) { exchange_matrices(lane, false); }
static inline void exchange_turned(void **lane, unsigned) { exchange_matrices(lane, true); }

static inline void load_matrices(uint32_t r[4], const void *row)
{
    fragments_of_lane mine = {r, row};
    standin_warp("ldmatrix", 0xffffffffu, exchange_straight, &mine, __LINE__);
}
static inline void load_matrices_turned(uint32_t r[4], const void *row)
{
    fragments_of_lane mine = {r, row};
    standin_warp("ldmatrix.trans", 0xffffffffu, exchange_turned, &mine, __LINE__);
}

struct product_of_lane {
    float *c;
    const uint32_t *a;
    uint32_t b[2];
};

template <class T> static inline float half_of(uint32_t bits, int which)
{
    uint16_t word = (uint16_t)(bits >> 16 * which);
    T v;
    memcpy(&v, &word, sizeof v);
    return dtype_traits<T>::get(v);
}

template <class T> static inline void exchange_product(void **lane, unsigned)
{
    float a[16][16], b[16][8];
    for (int i = 0; i < 32; i++) {
        const product_of_lane *p = static_cast<product_of_lane *>(lane[i]);
        int g = i / 4, t = i % 4 * 2;
        for (int h = 0; h < 2; h++) {
            for (int r = 0; r < 4; r++) a[g + r % 2 * 8][t + r / 2 * 8 + h] = half_of<T>(p->a[r], h);
            for (int r = 0; r < 2; r++) b[t + r * 8 + h][g] = half_of<T>(p->b[r], h);
        }
    }
    for (int i = 0; i < 32; i++)
        for (int r = 0; r < 4; r++) {
            int row = i / 4 + r / 2 * 8, column = i % 4 * 2 + r % 2;
            float sum = 0;
            for (int k = 0; k < 16; k++) sum += a[row][k] * b[k][column];
            static_cast<product_of_lane *>(lane[i])->c[r] += sum;
        }
}

/* c += a·b */
template <class T>
static inline void multiply_add(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    product_of_lane mine = {c, a, {b0, b1}};
    standin_warp("mma", 0xffffffffu, exchange_product<T>, &mine, __LINE__);
}

#else

static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* 16 bytes, or zeros. */
static __device__ __forceinline__ void copy_chunk(void *shared, const void *device, bool there)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(shared)),
                 "l"(device), "r"(there ? 16 : 0)
                 : "memory");
#else
    uint4 zero = {0, 0, 0, 0};
    *reinterpret_cast<uint4 *>(shared) = there ? *reinterpret_cast<const uint4 *>(device) : zero;
#endif
}

/* Ends a group of copies. */
static __device__ __forceinline__ void copies_done()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}

/* Waits for all groups of this thread except the last `PENDING`. */
template <int PENDING = 0> static __device__ __forceinline__ void copies_wait()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING) : "memory");
#endif
}

/* Four matrices of 8 x 8; lane 8 j + r has the address of row r of matrix j. */
static __device__ __forceinline__ void load_matrices(uint32_t r[4], const void *row)
{
#if __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
#endif
}
static __device__ __forceinline__ void load_matrices_turned(uint32_t r[4], const void *row)
{
#if __CUDA_ARCH__ >= 750
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(row))
                 : "memory");
#endif
}

/* c += a·b */
template <class T>
static __device__ __forceinline__ void multiply_add(float c[4], const uint32_t a[4], uint32_t b0,
                                                    uint32_t b1);

#define MMA(shape, type)                                                                           \
    "mma.sync.aligned." shape ".row.col.f32." type "." type ".f32 {%0,%1,%2,%3}, "

template <>
__device__ __forceinline__ void multiply_add<__nv_bfloat16>(float c[4], const uint32_t a[4],
                                                            uint32_t b0, uint32_t b1)
{
#if __CUDA_ARCH__ >= 800
    asm(MMA("m16n8k16", "bf16") "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

template <>
__device__ __forceinline__ void multiply_add<__half>(float c[4], const uint32_t a[4], uint32_t b0,
                                                     uint32_t b1)
{
#if __CUDA_ARCH__ >= 800
    asm(MMA("m16n8k16", "f16") "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif __CUDA_ARCH__ >= 750
    asm(MMA("m16n8k8", "f16") "{%4,%5}, {%6}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm(MMA("m16n8k8", "f16") "{%4,%5}, {%6}, {%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}
#undef MMA

#endif

/* --- fragments that a warp loads from tiles --- */

/* Left operand (16 rows from `row`, 16 columns from 8·chunk) of a tile in row-major order. */
template <class T, int W>
static __device__ __forceinline__ void load_a(uint32_t a[4], const T *tile, int row, int chunk,
                                              int lane)
{
    load_matrices(a, tile + at_chunk<W>(row + (lane & 15), chunk + (lane >> 4)));
}

/* The same from a tile that is transposed: its rows are columns of a. row: first of 16 rows of the tile. */
template <class T, int W>
static __device__ __forceinline__ void load_a_turned(uint32_t a[4], const T *tile, int row,
                                                     int chunk, int lane)
{
    load_matrices_turned(
        a, tile + at_chunk<W>(row + (lane & 7) + (lane >> 4) * 8, chunk + (lane >> 3 & 1)));
}

/* Right operands of two products, columns 0 … 7 and 8 … 15 of b (16,16): b[0] b[1], b[2] b[3]. The tile is
 * transposed: its rows from `row` on are 16 columns of b, its columns from 8·chunk on are rows of b. */
template <class T, int W>
static __device__ __forceinline__ void load_b(uint32_t b[4], const T *tile, int row, int chunk,
                                              int lane)
{
    load_matrices(b,
                  tile + at_chunk<W>(row + (lane & 7) + (lane >> 4) * 8, chunk + (lane >> 3 & 1)));
}

/* The same from a tile in the order of b: rows from `row` on, columns from 8·chunk on. */
template <class T, int W>
static __device__ __forceinline__ void load_b_turned(uint32_t b[4], const T *tile, int row,
                                                     int chunk, int lane)
{
    load_matrices_turned(b, tile + at_chunk<W>(row + (lane & 15), chunk + (lane >> 4)));
}

#endif
