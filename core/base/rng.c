#include "core/base/rng.h"

#include "core/base/error.h"

#include <math.h>
#include <string.h>

void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)RNG_PHILOX_MULTIPLIER_0 * c[0],
                 p1 = (uint64_t)RNG_PHILOX_MULTIPLIER_1 * c[2];
        uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ c[1] ^ k0, (uint32_t)p1,
                            (uint32_t)(p0 >> 32) ^ c[3] ^ k1, (uint32_t)p0};
        memcpy(c, next, sizeof c);
        k0 += RNG_PHILOX_WEYL_0;
        k1 += RNG_PHILOX_WEYL_1;
    }
    memcpy(out, c, sizeof c);
}

/* Two 64-bit words of the block (seed; stream, index). */
static void draw(uint64_t seed, uint64_t stream, uint64_t index, uint64_t word[2])
{
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                                 (uint32_t)(stream >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    rng_philox(counter, key, out);
    word[0] = out[0] | (uint64_t)out[1] << 32;
    word[1] = out[2] | (uint64_t)out[3] << 32;
}

uint64_t rng_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint64_t word[2];
    draw(seed, stream, index, word);
    return word[0];
}

static double unit_interval(uint64_t word) { return (double)(word >> 11) * 0x1p-53; }

double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return unit_interval(rng_u64(seed, stream, index));
}

double rng_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    const double two_pi = 6.283185307179586;
    uint64_t word[2];
    draw(seed, stream, index, word);
    double radius = sqrt(-2.0 * log(1.0 - unit_interval(word[0]))); /* 1 - u is never 0 */
    return radius * cos(two_pi * unit_interval(word[1]));
}

uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n)
{
    if (!n) BUG("rng_below: n must not be 0");
    /* The high half of word * n. A value's chance is off by at most n / 2^64, which no run of this
     * program can see; rejection would cost the promise of one draw per index. */
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)rng_u64(seed, stream, index) * n >> 64);
}

#define PRIME UINT64_C(0x100000001B3)
#define PRIME_2 (PRIME * PRIME)
#define PRIME_4 (PRIME_2 * PRIME_2)

static uint64_t word_of(const unsigned char *b)
{
    return (uint64_t)b[0] | (uint64_t)b[1] << 8 | (uint64_t)b[2] << 16 | (uint64_t)b[3] << 24 |
           (uint64_t)b[4] << 32 | (uint64_t)b[5] << 40 | (uint64_t)b[6] << 48 | (uint64_t)b[7] << 56;
}

/* Eight bytes: the zeros at the end of a small number only multiply, once for all. */
static uint64_t add_word(uint64_t h, uint64_t x)
{
    static const uint64_t rest[] = {PRIME_4 * PRIME_4,       PRIME_4 * PRIME_2 * PRIME,
                                    PRIME_4 * PRIME_2,       PRIME_4 * PRIME,
                                    PRIME_4,                 PRIME_2 * PRIME,
                                    PRIME_2,                 PRIME,
                                    1};
    int k = 0;
    for (; x; x >>= 8, k++) h = (h ^ (x & 0xFF)) * PRIME;
    return h * rest[k];
}

/* FNV-1a's offset and prime (Fowler, Noll, Vo); the avalanche is splitmix64's finaliser (Steele,
 * Lea, Flood, OOPSLA'14), without which similar names get similar high bits. */
uint64_t rng_hash_bytes(uint64_t start, const void *p, size_t n)
{
    const unsigned char *byte = p;
    uint64_t h = start ^ 0xCBF29CE484222325u;
    for (; n >= 8; byte += 8, n -= 8) h = add_word(h, word_of(byte));
    for (size_t i = 0; i < n; i++) h = (h ^ byte[i]) * PRIME;
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9u;
    h = (h ^ h >> 27) * 0x94D049BB133111EBu;
    return h ^ h >> 31;
}

uint64_t rng_hash_text(uint64_t start, const char *s)
{
    return rng_hash_bytes(start, s, strlen(s));
}
