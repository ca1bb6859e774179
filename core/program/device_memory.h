/* core/program/device_memory.h - what running a program takes of a device with memory of its own beside its slots.
 *
 * One place for all who ask: lowering counts it into a lane's reserve, `musher memory` tells it part by part, the executor asks
 * its device for it once, before the first step, and the plugin refuses an operator that wants more. So a plan that fits fits on
 * the GPU, and nothing grows in a step.
 *   workspace  of products: one of fixed size, where any operator multiplies
 *   scratch    of operators: the most that one of them needs, since they follow one another on one stream
 *   messages   packed operands, zeros of silent members, the first word of communicators; as if devices carried all that they can
 *   rounding   a GPU gives memory in pieces of DEVICE_GRANULE
 *   libraries  what only they know: the context with its kernels, and what the collectives' library keeps for each communicator. Stated
 *              by the catalogue (profiles/catalogue.h), never counted here
 * Discarded: asking the plugin, since plans are made on machines that have none.
 */
#ifndef CORE_PROGRAM_DEVICE_MEMORY_H
#define CORE_PROGRAM_DEVICE_MEMORY_H

#include "core/program/program.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

enum {
    DEVICE_WORKSPACE = 32 << 20, /* bytes; what cuBLAS advises for compute capability 9.0 */
    DEVICE_GRANULE = 2 << 20, /* bytes; least granularity that CUDA names for memory of a device */
    DEVICE_WORD_BYTES = 8 /* that a member of a communicator says to the others before the first step */
};

struct device_memory {
    int64_t workspace, scratch, messages, rounding;
    const char *largest; /* operator that needs most scratch; NULL: none */
    int32_t communicators;     /* that devices would make for this one's messages and gradient all-reduces; at least as many as they do */
};

/* out: (n_devices); zeros for the host's. O(operators + channels + members of groups). */
void device_memory_of(struct arena *a, const struct program *p, struct device_memory *out);
/* All of it, libraries' left out. Saturates. */
int64_t device_memory_known(const struct device_memory *m);

/* Bytes that a member's part in a group needs, beside its stage's staging, where devices carry it: packed operands (of a sum: first
 * all that goes over the wire, then what of one segment is packed and not yet cast) … */
int64_t device_memory_group_scratch(const struct program *p, const struct collective *g, int32_t member);
int64_t device_memory_group_wire(const struct program *p, const struct collective *g, int32_t member);
/* … and zeros that it gives where it is silent. */
int64_t device_memory_group_zeros(const struct program *p, const struct collective *g, int32_t member);

#endif
