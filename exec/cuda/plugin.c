/* exec/cuda/plugin.c - the function that the plugin exports. */
#include "exec/plugin.h"

#include "exec/cuda/device.h"
#include "exec/cuda/nccl.h"

#include <stdlib.h>

static void cuda_backend(struct backend *out)
{
    *out = (struct backend){.abi = BACKEND_ABI,
                            .name = "cuda",
                            .discrete_memory = true,
                            .profiler = "cupti",
                            .count = cuda_count,
                            .describe = cuda_describe};
    cuda_device_table(out);
    cuda_streams_table(out);
}

__attribute__((visibility("default"))) plugin_entry musher_plugin;

const struct plugin *musher_plugin(void)
{
    static const struct plugin table = {PLUGIN_NUMBERS, .kind = "cuda", .backend = cuda_backend,
                                        .joined = cuda_joined, .comm = cuda_device_comm,
                                        .parts = cuda_green_context_offer};
    /* Before the first CUDA call: with the default of 8 hardware queues, streams that wait for messages would block
     * others. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    return &table;
}
