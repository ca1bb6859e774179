/* core/base/rng.h - random numbers as pure functions of (seed, stream, index).
 *
 * Counter-based (Philox4x32-10, Salmon et al., SC'11): any element of any stream can be computed independently,
 * so every rank draws the same weights and batches, and a resumed run needs no generator state.
 */
#ifndef CORE_BASE_RNG_H
#define CORE_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* Philox4x32-10: multipliers and Weyl increments of Salmon, Moraes, Dror, Shaw, "Parallel random
 * numbers: as easy as 1, 2, 3", SC'11, table 2 and section 4.3. */
#define RNG_PHILOX_MULTIPLIER_0 0xD2511F53u
#define RNG_PHILOX_MULTIPLIER_1 0xCD9E8D57u
#define RNG_PHILOX_WEYL_0 0x9E3779B9u /* golden ratio */
#define RNG_PHILOX_WEYL_1 0xBB67AE85u /* sqrt(3) - 1 */
/* The ten rounds: 128 random bits from a counter and a key. */
void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index);
double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index); /* [0, 1) with 53 bits */
double rng_normal(uint64_t seed, uint64_t stream,
                  uint64_t index); /* mean 0, variance 1 (Box-Muller) */
uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n); /* 0 … n-1, n > 0 */

/* 64-bit FNV-1a with a final avalanche: names to streams, structures to keys. Not cryptographic. */
uint64_t rng_hash_bytes(uint64_t start, const void *p, size_t n);
uint64_t rng_hash_text(uint64_t start, const char *s);

#endif
