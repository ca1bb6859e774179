/* tools/import/sailor_tables.h - what Sailor's artifact (SOSP'25, github eth-easl/sailor, MIT) calls its GPUs, and what its framework costs.
 *
 * The plans were run by Megatron-DeepSpeed as Sailor patched it. Its source (deepspeed/pipe_engine.py, utils.py) and its
 * simulator say what a model of operators cannot know; no figure here is fitted to the measured plans:
 *  - Peak memory is what nvidia-smi shows, so a reserve belongs to it: the driver's context, kernels, NCCL's buffers. Sailor's
 *    simulator counts 4.76 GB + 0.3 GB on the GH200 cluster (measured by its authors, "depends on GPU and platform"), and
 *    2 GB for one GPU, 3 GB where GPUs share layers, when it plans for its A100 and V100 machines; the same is assumed of
 *    the Titan and RTX nodes, which nobody gives a figure for.
 *  - Messages between stages are sent and received on the compute stream: nothing overlaps (links have overlap: false).
 *  - A receiver makes a zero-filled tensor in pageable host memory and copies it to the GPU before it fills it in:
 *    the host goes over fresh pages of the whole message with one core and over the host link. Assumed, not measured on those
 *    machines: 12 GB/s on Grace (64 KiB pages, NVLink-C2C), 4 GB/s on x86 hosts (4 KiB pages, PCIe; one core of our own virtual
 *    machine fills fresh pages at 1.6-2.0 GB/s and copies at 7).
 *    The fifteen GH200 rows see only the first: their mean error is 4.4 % with 12 GB/s, at most 6 % from 9 to 50, 6.9 % with
 *    nothing. That was known when 12 was chosen; the x86 figure was seen by no measured plan.
 */
#ifndef TOOLS_IMPORT_SAILOR_TABLES_H
#define TOOLS_IMPORT_SAILOR_TABLES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct sailor_gpu {
    const char *name, *catalogue;
    int64_t reserve_bytes[2]; /* of a GPU on its own, of one that shares layers */
    double host_Bps;          /* zero-filling host memory and copying it to the GPU */
    int32_t node_gpus;        /* of one node (cluster_config.json) */
};

/* The i-th; NULL behind the last. */
static inline const struct sailor_gpu *sailor_gpu_at(size_t i)
{
    enum { GB = 1000000000 };
    static const struct sailor_gpu table[] = {
        {"GH-96", "GH200-96", {INT64_C(5060000000), INT64_C(5060000000)}, 12e9, 4},
        {"A100-40", "A100-SXM4-40", {INT64_C(2) * GB, INT64_C(3) * GB}, 4e9, 4},
        {"A100-80", "A100-SXM4-80", {INT64_C(2) * GB, INT64_C(3) * GB}, 4e9, 4},
        {"V100-16", "V100-SXM2-16", {INT64_C(2) * GB, INT64_C(3) * GB}, 4e9, 4},
        {"Titan-RTX", "Titan-RTX", {INT64_C(2) * GB, INT64_C(3) * GB}, 4e9, 8},
        {"RTX-2080", "RTX-2080-Ti", {INT64_C(2) * GB, INT64_C(3) * GB}, 4e9, 8},
        {"RTX-3090", "RTX-3090", {INT64_C(2) * GB, INT64_C(3) * GB}, 4e9, 8},
    };
    return i < sizeof table / sizeof *table ? &table[i] : NULL;
}

/* NULL where there is none of this name. */
static inline const struct sailor_gpu *sailor_gpu(const char *name)
{
    const struct sailor_gpu *g;
    for (size_t i = 0; (g = sailor_gpu_at(i)); i++)
        if (!strcmp(g->name, name)) break;
    return g;
}

/* The same by its id in the catalogue. */
static inline const struct sailor_gpu *sailor_gpu_of(const char *catalogue)
{
    const struct sailor_gpu *g;
    for (size_t i = 0; (g = sailor_gpu_at(i)); i++)
        if (!strcmp(g->catalogue, catalogue)) break;
    return g;
}

/* Cluster name of the profile that import makes and validation looks for; its hash is of this text. */
#define SAILOR_CLUSTER "sailor"

#endif
