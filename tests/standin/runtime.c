#include "tests/standin/standin_launch.h"

cudaError_t standin_launch_kernel(const struct standin_kernel *k, void (*drop)(void *arguments),
                                  cudaStream_t stream)
{
    (void)stream;
    uint64_t blocks = (uint64_t)k->grid.x * k->grid.y * k->grid.z,
             threads = (uint64_t)k->block.x * k->block.y * k->block.z;
    cudaError_t e = cudaErrorInvalidConfiguration;
    if (blocks && threads && threads <= STANDIN_BLOCK_MAX)
        e = standin_run(k) ? cudaErrorLaunchFailure : cudaSuccess;
    drop(k->arguments);
    return e;
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
#define X(name, number, text)                                                                      \
    case name: return text;
        STANDIN_ERRORS(X)
#undef X
    }
    return "unrecognized error code";
}
