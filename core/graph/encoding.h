/* core/graph/encoding.h - compressed messages: the code that an encode operator makes of a gradient or an activation, in words of 32 bits.
 *
 * The elements are divided into blocks of `block` elements, the last of which may be shorter; each block of m elements has a code
 * of its own. A value is a number of the gradient's type, of value_words words. Codes of a block, in this order:
 *   INT8      scale (a value), then m bytes: element = scale · byte, scale = max|x| / 127; rounded to nearest, or stochastically
 *             (Alistarh et al. 2017, QSGD): up with the probability of the fraction, so that the expectation is x
 *   FP8       scale (a value), then m bytes: element = scale · 8-bit float, scale = max|x| / the type's maximum (Micikevicius et al. 2022;
 *             E4M3: 448, E5M2: 57,344; numbers only); rounded to nearest, ties to even, or stochastically between its two neighbours
 *   BF16, FP16  m numbers of 16 bits, to nearest, ties to even; no scale; fp16 overflows above 65,504
 *   SIGN      scale (a value), then m bits, 1 for a negative element: element = ± scale, scale = mean|x| (Seide et al. 2014,
 *             1-bit SGD)
 *   TOP_K     k numbers of elements, ascending, then their k values: the k largest by magnitude, of equal ones the first (Stich et
 *             al. 2018)
 *   RANDOM_K  the number of the first element, then the values of k consecutive ones, behind the last of which comes the first
 *             (random block, Vogels et al. 2019, section 4.1)
 * k = ceil(kept · m / block). A NaN or an infinity in a block leaves one in the decoded block. Every code contracts: E|C(x) - x|² <=
 * (1 - d) |x|² with d = k/m, for SIGN (mean|x|)² / mean x² >= 1/m, for INT8 1 - m / (4 · 127²) to nearest; INT8 with stochastic
 * rounding has an error of at most m / (4 · 127²) |x|² and no bias. FP8 has an error of at most 2^-(f + 1) |x| in an element, f = 3 or 2 bits of
 * fraction, or half of the smallest step, scale · 2^-9 or 2^-16; twice that with stochastic rounding, without bias.
 * Random numbers are Philox4x32-10 of (seed, stream, step, device, element), in pipelines of (seed, stream, first sequence, element), so a
 * resumed run draws the same.
 *
 * Feedback. x is what is encoded, D its decoded code, the members' decoded codes are added by ascending chunk on each of them:
 *   NONE  x = g, g' = Σ D
 *   EF    x = g + e, e' = x - D, g' = Σ D       (Karimireddy et al. 2019): e is each device's own
 *   EF21  x = g - h, h' = h + D, H' = H + Σ D, g' = H'   (Richtárik et al. 2021): h is each device's own, H = Σ h is all's
 */
#ifndef CORE_GRAPH_ENCODING_H
#define CORE_GRAPH_ENCODING_H

#include <stdbool.h>
#include <stdint.h>

enum encoding_kind {
    ENCODING_NONE,
    ENCODING_INT8,
    ENCODING_FP8_E4M3,
    ENCODING_FP8_E5M2,
    ENCODING_BF16,
    ENCODING_FP16,
    ENCODING_SIGN,
    ENCODING_TOP_K,
    ENCODING_RANDOM_K
};
enum encoding_feedback { FEEDBACK_NONE, FEEDBACK_EF, FEEDBACK_EF21 };
enum { ENCODING_BLOCK_MAX = 1 << 20, ENCODING_STATES_MAX = 2 };

struct encoding {
    enum encoding_kind kind;
    enum encoding_feedback feedback;
    bool stochastic;     /* INT8, FP8 */
    int32_t block;       /* elements, 1 … ENCODING_BLOCK_MAX */
    int32_t kept;        /* TOP_K, RANDOM_K: k of a whole block, 1 … block */
    int32_t value_words; /* 1 or 2 */
};

static inline bool encoding_is_fp8(enum encoding_kind k) { return k == ENCODING_FP8_E4M3 || k == ENCODING_FP8_E5M2; }
static inline bool encoding_is_half(enum encoding_kind k) { return k == ENCODING_BF16 || k == ENCODING_FP16; }
static inline bool encoding_is_sparse(enum encoding_kind k) { return k == ENCODING_TOP_K || k == ENCODING_RANDOM_K; }

/* An 8-bit float: 1 sign, fraction bits, the others exponent. Codes of magnitudes: subnormals have no exponent, then exponent and
 * fraction continue, so code(2^e (1 + j / 2^fraction)) = (e - least + 1) 2^fraction + j. */
struct encoding_float {
    int32_t fraction, least; /* bits; exponent of the smallest normal number */
    float most;              /* the largest number */
};
static inline struct encoding_float encoding_float_of(enum encoding_kind k)
{
    struct encoding_float e4m3 = {3, -6, 448}, e5m2 = {2, -14, 57344};
    return k == ENCODING_FP8_E4M3 ? e4m3 : e5m2;
}

/* TOP_K, RANDOM_K: k of a block of m elements; else 0. */
int64_t encoding_kept(const struct encoding *c, int64_t m);
int64_t encoding_block_words(const struct encoding *c, int64_t m);
int64_t encoding_words(const struct encoding *c, int64_t n); /* of n elements */
/* Tensors of a device's feedback: EF e, EF21 h and H. */
static inline int32_t encoding_states(const struct encoding *c) { return (int32_t)c->feedback; }

#endif
