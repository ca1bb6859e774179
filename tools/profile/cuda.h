/* tools/profile/cuda.h - this machine's GPUs that `musher profile` can measure: their discovery, warm-up and host-device copies.
 *
 * An idle GPU runs at a fraction of its clock and needs some tenths of a second of work to reach the full one, which is longer
 * than a short benchmark. So a benchmark on GPUs starts with warm-up rounds, which give no samples.
 */
#ifndef TOOLS_PROFILE_CUDA_H
#define TOOLS_PROFILE_CUDA_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/document/json.h"
#include "core/program/program.h"
#include "exec/bench/copies.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

struct profile_gpus { /* the cluster's devices on this machine, except host devices */
    const struct cluster *cluster;
    double warm_s; /* seconds of warm-up before the first sample */
    int32_t *
        n; /* (types of the cluster) devices of the type's backend on this machine; 0: none, see reason */
    const char *reason; /* the reason why a type has none */
    int32_t n_copies;
    struct copy_sample *copies; /* (n_copies) between pinned memory and the first device */
};

/* Opens the plugin of every backend of the cluster. */
void profile_gpus_find(struct arena *a, const struct cluster *c, double warm_s,
                       struct profile_gpus *out);
/* Whether this machine has the cluster's device. */
bool profile_is_here(const struct profile_gpus *k, int32_t device);
/* Whether two devices of the cluster are one GPU of one host. */
bool profile_same_gpu(const struct cluster *c, int32_t one, int32_t other);
/* This machine's first GPU whose type has the catalogue entry `base`; -1: none. */
int32_t profile_gpu_of(const struct profile_gpus *k, const char *base);
/* Warm-up rounds: those of these operators that take warm_s by the catalogue's roofline, at least one. */
int32_t profile_warm_rounds(const struct profile_gpus *k, const char *base,
                            const struct program_op *ops, size_t n);
/* Measures host-to-device and device-to-host copies of this machine's first GPU; n_copies 0 without one. */
MUST_CHECK enum status profile_copies(struct arena *a, struct profile_gpus *k, int32_t repeats,
                                      struct error *err);
void profile_copies_print(const struct profile_gpus *k);
void profile_copies_json(struct json *j, const struct profile_gpus *k);

#endif
