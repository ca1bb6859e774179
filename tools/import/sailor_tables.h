/* tools/import/sailor_tables.h - GPU names of Sailor's artifact (SOSP'25, github eth-easl/sailor, MIT) and overheads of its framework.
 *
 * The plans were run by Megatron-DeepSpeed as Sailor patched it. The overheads below come from its source
 * (deepspeed/pipe_engine.py, utils.py) and its simulator; a model of operators cannot predict them. No figure is fitted to the
 * measured plans:
 *  - Peak memory is that of nvidia-smi, so it includes a reserve: the driver's context, kernels, NCCL's buffers. Sailor's
 *    simulator counts 4.76 GB + 0.3 GB on the GH200 cluster (measured by its authors, "depends on GPU and platform"). For its A100
 *    and V100 machines it counts 2 GB for one GPU and 3 GB with tensor parallelism; the same is assumed of the Titan and RTX nodes,
 *    for which no figure is published.
 *  - Messages between stages are sent and received on the compute stream, so nothing overlaps (links have overlap: false).
 *  - A receiver allocates a zero-filled tensor in pageable host memory and copies it to the GPU before the data arrives: one
 *    core fills fresh pages of the size of the message, which then cross the host link. The rates are assumed, not measured on those
 *    machines: 12 GB/s on Grace (64 KiB pages, NVLink-C2C), 4 GB/s on x86 hosts (4 KiB pages, PCIe; one core of our own virtual
 *    machine fills fresh pages at 1.6-2.0 GB/s and copies at 7).
 *    Only the first rate affects the fifteen GH200 rows: their mean error is 4.4 % with 12 GB/s, at most 6 % from 9 to 50, 6.9 %
 *    without the copy. That was known when 12 was chosen; no measured plan influenced the x86 figure.
 */
#ifndef TOOLS_IMPORT_SAILOR_TABLES_H
#define TOOLS_IMPORT_SAILOR_TABLES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct sailor_gpu {
    const char *name, *catalogue;
    int64_t reserve_bytes[2]; /* without, with tensor parallelism */
    double host_Bps;          /* zero-filling of host memory and its copy to the GPU */
    int32_t node_gpus;        /* GPUs of one node (cluster_config.json) */
};

/* The i-th row; NULL past the last. */
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

/* By Sailor's name; NULL: unknown. */
static inline const struct sailor_gpu *sailor_gpu(const char *name)
{
    const struct sailor_gpu *g;
    for (size_t i = 0; (g = sailor_gpu_at(i)); i++)
        if (!strcmp(g->name, name)) break;
    return g;
}

/* By catalogue id; NULL: unknown. */
static inline const struct sailor_gpu *sailor_gpu_of(const char *catalogue)
{
    const struct sailor_gpu *g;
    for (size_t i = 0; (g = sailor_gpu_at(i)); i++)
        if (!strcmp(g->catalogue, catalogue)) break;
    return g;
}

/* Cluster name of the imported profile, which `validate` loads; the profile's hash is that of this text. */
#define SAILOR_CLUSTER "sailor"

#endif
