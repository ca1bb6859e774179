/* tests/standin/standin_launch.h - launches a kernel on a stream. */
#ifndef TESTS_STANDIN_STANDIN_LAUNCH_H
#define TESTS_STANDIN_STANDIN_LAUNCH_H

#include "cuda_runtime_api.h"
#include "emulator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Checks the launch like the real runtime and queues it; `drop` frees k->arguments in any case. */
cudaError_t standin_launch_kernel(const struct standin_kernel *k, void (*drop)(void *arguments),
                                  cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
