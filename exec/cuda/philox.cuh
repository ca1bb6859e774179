/* exec/cuda/philox.cuh - random bits of Philox4x32-10, those of rng_philox (core/base/rng.h); included by .cu files. */
#ifndef EXEC_CUDA_PHILOX_CUH
#define EXEC_CUDA_PHILOX_CUH

#include <stdint.h>

/* Salmon, Moraes, Dror, Shaw, SC'11, table 2 and section 4.3; the numbers of core/base/rng.h, whose header is not for devices. */
#define PHILOX_MULTIPLIER_0 0xD2511F53u
#define PHILOX_MULTIPLIER_1 0xCD9E8D57u
#define PHILOX_WEYL_0 0x9E3779B9u
#define PHILOX_WEYL_1 0xBB67AE85u

struct philox_words {
    uint32_t w[4];
};

static __device__ __forceinline__ philox_words philox(uint64_t block, uint64_t sequence,
                                                      uint64_t key)
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32);
    uint32_t c2 = (uint32_t)sequence, c3 = (uint32_t)(sequence >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)PHILOX_MULTIPLIER_0 * c0, p1 = (uint64_t)PHILOX_MULTIPLIER_1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1, c3 = (uint32_t)p0;
        k0 += PHILOX_WEYL_0, k1 += PHILOX_WEYL_1;
    }
    philox_words out = {{c0, c1, c2, c3}};
    return out;
}

/* Word `odd` of a block, without an array that is indexed at run time. */
static __device__ __forceinline__ uint32_t word(const philox_words &p, int odd)
{
    uint32_t low = odd & 1 ? p.w[1] : p.w[0], high = odd & 1 ? p.w[3] : p.w[2];
    return odd & 2 ? high : low;
}

#endif
