/* core/lower/offload.h - activations of the current stage that wait for the backward in host memory (`offload: activations`).
 *
 * Offloaded are forward tensors that the backward reads as F made them, except those that are sent, received or loaded, and parameters that
 * were gathered. They are copied in parts, one for each transformer block (core/program/offload.h), if the backward is one call, takes
 * microbatches in ascending order and recomputes nothing, and if the operators of each block stand together in both passes. A part then
 * has the tensors that one block makes and only its own gradient operators read; inputs of blocks, and tensors outside of blocks, stay on
 * the device. Otherwise all tensors are one part.
 */
#ifndef CORE_LOWER_OFFLOAD_H
#define CORE_LOWER_OFFLOAD_H

#include "core/lower/stage_scratch.h"

struct writer;

/* Before the forward's slots: finds the parts. O(operators). */
void lower_offload_begin(struct stage_scratch *h);
/* Gives an offloaded tensor a slot in F and one in the backward, at the same offset of the two rings. false: the tensor stays on the device. */
bool lower_offload(struct stage_scratch *h, int32_t tensor);
/* After them: the halves of the rings. */
void lower_offload_end(struct stage_scratch *h);
/* The OFFLOAD behind forward operator `op`, the FETCH in front of gradient operator `op`, if there is one; op -1: at the end of F, at the
 * start of a backward. */
void lower_offload_out(struct writer *w, int32_t op);
void lower_offload_fetch(struct writer *w, int32_t op);

#endif
