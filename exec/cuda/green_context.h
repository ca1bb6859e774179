/* exec/cuda/green_context.h - a part of a GPU's multiprocessors: a green context, and streams of it.
 *
 * A stream of a green context runs its kernels on the context's multiprocessors alone; memory, events and everything else are the
 * primary context's, so nothing but the making of streams knows of it. The driver offers that from CUDA 12.4 on, and streams of it
 * from 12.5, how multiprocessors part toolkits from 13 on; its functions are asked for by name at run time, so that the plugin is linked with no driver. Where they are not to be
 * had a part of a GPU is refused by name: a slowdown without `multiprocessors` emulates on the virtual clock alone.
 * Processes that share a GPU take turns on it unless NVIDIA's multi-process service runs, so two parts of one GPU need not be separate:
 * each process has the first so many of the multiprocessors.
 */
#ifndef EXEC_CUDA_GREEN_CONTEXT_H
#define EXEC_CUDA_GREEN_CONTEXT_H

#include "core/base/error.h"

#include <cuda_runtime_api.h>
#include <stdint.h>

struct arena;
struct cuda_green_context; /* NULL: all of the GPU */

/* multiprocessors of the device, which is the current one and has its primary context. 0, or all there are: *out is NULL. ERR_INPUT,
 * with the numbers next to it, where the GPU does not part so; ERR_NO_DEVICE where the driver or the toolkit has none. */
MUST_CHECK enum status cuda_green_context_make(struct arena *a, int32_t device,
                                               int32_t multiprocessors,
                                               struct cuda_green_context **out, struct error *err);
/* After its streams. NULL is fine. */
void cuda_green_context_close(struct cuda_green_context *g);
/* As cudaStreamCreateWithPriority, non-blocking. */
MUST_CHECK enum status cuda_green_context_stream(struct cuda_green_context *g, int priority,
                                                 cudaStream_t *out, struct error *err);
/* "132 multiprocessors, in parts that are multiples of 8, from 8 on", or why not. Of the device, whose context this may make. */
void cuda_green_context_offer(int32_t device, char *out, int32_t bytes);

#endif
