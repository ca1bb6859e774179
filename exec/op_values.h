/* exec/op_values.h - constants that all backends must share: dropout's random key, rotary frequencies. */
#ifndef EXEC_OP_VALUES_H
#define EXEC_OP_VALUES_H

#include "exec/backend.h"

/* Key of a dropout operator's random bits; distinct per seed of the run and per dropout stream. */
uint64_t op_values_dropout_key(const struct op_call *c);
/* Radians per position of the i-th pair of a head, with Llama 3.1's scaling if `rope` specifies it. */
double op_values_rotary_frequency(const struct op_attrs *attrs, int32_t pair);

#endif
