/* exec/op_values.h - numbers that every backend must take alike: what dropout drops, how fast rotary turns. */
#ifndef EXEC_OP_VALUES_H
#define EXEC_OP_VALUES_H

#include "exec/backend.h"

/* Of the random bits of a dropout operator: another one for every run's seed and every stream. */
uint64_t op_values_dropout_key(const struct op_call *c);
/* Radians per position of the i-th pair of a head, scaled as Llama 3.1 does where rope says so. */
double op_values_rotary_frequency(const struct op_attrs *attrs, int32_t pair);

#endif
