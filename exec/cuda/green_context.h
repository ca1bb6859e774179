/* exec/cuda/green_context.h - green contexts: a subset of a GPU's multiprocessors, and streams on it.
 *
 * A stream of a green context runs its kernels on the context's multiprocessors only; memory, events and everything
 * else belong to the primary context, so only stream creation depends on it. Requires driver CUDA 12.4, streams 12.5,
 * and toolkit 13 for the structs that describe the division. Driver functions are looked up by name at run time, so
 * that the plugin links no driver. Without support, a subset is an error by name: a slowdown without
 * `multiprocessors` emulates on the virtual clock alone. Processes that share a GPU are time-sliced unless NVIDIA's
 * MPS runs, so two subsets of one GPU need not be disjoint: each process uses the first `multiprocessors` of the GPU.
 */
#ifndef EXEC_CUDA_GREEN_CONTEXT_H
#define EXEC_CUDA_GREEN_CONTEXT_H

#include "core/base/error.h"

#include <cuda_runtime_api.h>
#include <stdint.h>

struct arena;
struct cuda_green_context; /* NULL: the whole GPU */

/* multiprocessors of the current device, whose primary context exists. 0 or all: *out is NULL. ERR_INPUT with the
 * nearest valid numbers if the GPU cannot be divided at this number; ERR_NO_DEVICE if driver or toolkit lack green
 * contexts. */
MUST_CHECK enum status cuda_green_context_make(struct arena *a, int32_t device,
                                               int32_t multiprocessors,
                                               struct cuda_green_context **out, struct error *err);
/* After its streams are destroyed. NULL is allowed. */
void cuda_green_context_close(struct cuda_green_context *g);
/* As cudaStreamCreateWithPriority, non-blocking. */
MUST_CHECK enum status cuda_green_context_stream(struct cuda_green_context *g, int priority,
                                                 cudaStream_t *out, struct error *err);
/* "132 multiprocessors, in parts that are multiples of 8, from 8 on", or the reason why not. May create the device's
 * context. */
void cuda_green_context_offer(int32_t device, char *out, int32_t bytes);

#endif
