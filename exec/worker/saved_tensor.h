/* exec/worker/saved_tensor.h - which tensors a checkpoint has of a parameter: their names, their slots, whose they are.
 *
 * Of a parameter: itself (its fp32 master where it has one, so that either precision goes on from the other) under its own name, the
 * optimizer's state under "name#m" and "name#v". */
#ifndef EXEC_WORKER_SAVED_TENSOR_H
#define EXEC_WORKER_SAVED_TENSOR_H

#include "core/program/program.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct chunk;
struct rank;

enum { SAVED_TENSORS = 3 }; /* of a parameter; `which` below: itself, m, v */

/* ERR_INPUT: too long a name. */
MUST_CHECK enum status saved_tensor_name(char *out, size_t n, const struct program_parameter *p,
                                         int which, struct error *err);
int32_t saved_tensor_slot(const struct program_parameter *p, int which); /* -1: none */
/* The stage's parameter of that name; NULL: none. */
const struct program_parameter *saved_tensor_parameter(const struct program_stage *s,
                                                       const char *name);
/* Whether the parameter is this stage's to save: the first of replica 0 that has it. */
bool saved_tensor_owned(const struct program *p, const struct program_stage *owner,
                        const char *name);
bool saved_tensor_finite(const void *values, enum dtype t, int64_t n);
/* fp32 values to elements [at, at + n) of a slot in half precision. */
MUST_CHECK enum status saved_tensor_narrow(struct rank *r, struct arena *a, const struct chunk *k,
                                           int32_t slot, int64_t at, const void *values, int64_t n,
                                           struct error *err);

#endif
