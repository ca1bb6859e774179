/* core/graph/half.h - bf16 and fp16 on the host: bits in a uint16_t.
 *
 * fp16 is IEEE 754 binary16; bf16 is the upper half of a float. Rounding is to nearest, ties to even; values too large
 * become infinite, NaN stays NaN (quiet). Conversions are exact for values that both types have. O(n).
 */
#ifndef CORE_GRAPH_HALF_H
#define CORE_GRAPH_HALF_H

#include "core/graph/op.h"

#include <stdint.h>

uint16_t half_of(enum dtype t, float x); /* t: bf16 or fp16 */
float half_value(enum dtype t, uint16_t bits);
void half_narrow(enum dtype t, const float *from, uint16_t *to, int64_t n);
void half_widen(enum dtype t, const uint16_t *from, float *to, int64_t n);
/* to += from, each sum taken in fp32 and rounded. */
void half_add(enum dtype t, uint16_t *to, const uint16_t *from, int64_t n);

#endif
