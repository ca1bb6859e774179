/* core/program/device_memory.h - memory of a discrete device in addition to the program's slots.
 *
 * One module for all users: lowering adds it to a lane's reserve, `musher memory` lists its parts, the executor allocates
 * it once before the first step, and the plugin rejects an operator that needs more. A plan that fits therefore fits on
 * the GPU, and no allocation grows during a step.
 *   workspace  of matrix products: one of fixed size, if any operator multiplies
 *   scratch    of operators: the largest need of one, because they run one after the other on one stream
 *   messages   packed operands, zeros of members that contribute nothing, the first word of communicators; an upper bound, as if all transport were
 *              between devices
 *   rounding   GPU memory is allocated in units of DEVICE_GRANULE
 *   libraries  cannot be computed: the context with its kernels, and the collective library's memory for each communicator. Stated
 *              by the catalogue (profiles/catalogue.h), never counted here
 * Rejected: a query to the plugin, because plans are made on machines without one.
 */
#ifndef CORE_PROGRAM_DEVICE_MEMORY_H
#define CORE_PROGRAM_DEVICE_MEMORY_H

#include "core/program/program.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

enum {
    DEVICE_WORKSPACE = 32 << 20, /* bytes; cuBLAS's recommendation for compute capability 9.0 */
    DEVICE_GRANULE = 2 << 20, /* bytes; CUDA's minimum allocation granularity */
    DEVICE_WORD_BYTES = 8 /* exchanged by the members of a communicator before the first step */
};

struct device_memory {
    int64_t workspace, scratch, messages, rounding;
    const char *largest; /* operator with the largest scratch; NULL: none */
    int32_t communicators;     /* upper bound of the communicators for messages and gradient all-reduces */
};

/* out: (n_devices); 0 for the host's devices. O(operators + channels + members of groups). */
void device_memory_of(struct arena *a, const struct program *p, struct device_memory *out);
/* Sum without libraries. Saturates. */
int64_t device_memory_known(const struct device_memory *m);

/* Bytes that a member of a group needs in addition to its stage's staging for device transport: packed operands (of an all-reduce: first
 * the message, then a packed segment before its cast) … */
int64_t device_memory_group_scratch(const struct program *p, const struct collective *g, int32_t member);
int64_t device_memory_group_wire(const struct program *p, const struct collective *g, int32_t member);
/* … and zeros, if the member contributes zero. */
int64_t device_memory_group_zeros(const struct program *p, const struct collective *g, int32_t member);

#endif
