/* core/graph/encoding.h - compressed messages: the code that an encode operator makes of a gradient, in words of 32 bits.
 *
 * The elements are divided into blocks of `block` elements, the last of which may be shorter; each block of m elements has a code
 * of its own. A value is a number of the gradient's type, of value_words words. Codes of a block, in this order:
 *   INT8      scale (a value), then m bytes: element = scale · byte, scale = max|x| / 127; rounded to nearest, or stochastically
 *             (Alistarh et al. 2017, QSGD): up with the probability of the fraction, so that the expectation is x
 *   SIGN      scale (a value), then m bits, 1 for a negative element: element = ± scale, scale = mean|x| (Seide et al. 2014,
 *             1-bit SGD)
 *   TOP_K     k numbers of elements, ascending, then their k values: the k largest by magnitude, of equal ones the first (Stich et
 *             al. 2018)
 *   RANDOM_K  the number of the first element, then the values of k consecutive ones, behind the last of which comes the first
 *             (random block, Vogels et al. 2019, section 4.1)
 * k = ceil(kept · m / block). A NaN or an infinity in a block leaves one in the decoded block. Every code contracts: E|C(x) - x|² <=
 * (1 - d) |x|² with d = k/m, for SIGN (mean|x|)² / mean x² >= 1/m, for INT8 1 - m / (4 · 127²) to nearest; INT8 with stochastic
 * rounding has an error of at most m / (4 · 127²) |x|² and no bias.
 * Random numbers are Philox4x32-10 of (seed, stream, step, device, element), so a resumed run draws the same.
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

enum encoding_kind { ENCODING_NONE, ENCODING_INT8, ENCODING_SIGN, ENCODING_TOP_K, ENCODING_RANDOM_K };
enum encoding_feedback { FEEDBACK_NONE, FEEDBACK_EF, FEEDBACK_EF21 };
enum { ENCODING_BLOCK_MAX = 1 << 20, ENCODING_STATES_MAX = 2 };

struct encoding {
    enum encoding_kind kind;
    enum encoding_feedback feedback;
    bool stochastic;     /* INT8 */
    int32_t block;       /* elements, 1 … ENCODING_BLOCK_MAX */
    int32_t kept;        /* TOP_K, RANDOM_K: k of a whole block, 1 … block */
    int32_t value_words; /* 1 or 2 */
};

/* TOP_K, RANDOM_K: k of a block of m elements; else 0. */
int64_t encoding_kept(const struct encoding *c, int64_t m);
int64_t encoding_block_words(const struct encoding *c, int64_t m);
int64_t encoding_words(const struct encoding *c, int64_t n); /* of n elements */
/* Tensors of a device's feedback: EF e, EF21 h and H. */
static inline int32_t encoding_states(const struct encoding *c) { return (int32_t)c->feedback; }

#endif
