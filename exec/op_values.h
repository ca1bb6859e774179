/* exec/op_values.h - constants that all backends must share: random keys, rotary frequencies. */
#ifndef EXEC_OP_VALUES_H
#define EXEC_OP_VALUES_H

#include "exec/backend.h"

/* Key of the random bits of dropout and encode; distinct per seed of the run and per stream. */
uint64_t op_values_random_key(const struct op_call *c);
/* Encode: number in place of dropout's sequence; distinct per step and device, outside of updates per microbatch. */
uint64_t op_values_random_sequence(const struct op_call *c);
/* Orthonormal: of a column at most; each but the first one of random numbers. */
enum { ORTHONORMAL_DRAWS = 8 };
/* Radians per position of the i-th pair of a head, with the scaling that `rope` specifies. */
double op_values_rotary_frequency(const struct op_attrs *attrs, int32_t pair);

#endif
