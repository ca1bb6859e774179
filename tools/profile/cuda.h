/* tools/profile/cuda.h - what `musher profile` can measure on this machine's devices beside the host, and how long they warm up.
 *
 * A GPU that idles runs at a fraction of its clock and takes some tenths of a second of work to come up, which is longer
 * than a bench of few rounds; so a bench on GPUs begins with rounds that nobody counts.
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

struct profile_gpus { /* devices of the cluster beside the host's that are this machine's */
    const struct cluster *cluster;
    double warm_s; /* of work before anything is counted */
    int32_t *
        n; /* (types of the cluster) devices of the type's kind on this machine; 0 where there are none */
    const char *reason; /* then */
    int32_t n_copies;
    struct copy_sample *copies; /* (n_copies) pinned memory and the first of them */
};

/* Is this the name of the machine that asks? */
bool profile_host_is_here(const char *host);
/* Opens the plugin of each device class that the cluster has. */
void profile_gpus_find(struct arena *a, const struct cluster *c, double warm_s,
                       struct profile_gpus *out);
/* False for a device of another machine, or that is not there; true for the host. */
bool profile_is_here(const struct profile_gpus *k, int32_t device);
/* Are two devices of the cluster one GPU of one host? */
bool profile_same_gpu(const struct cluster *c, int32_t one, int32_t other);
/* The first device beside the host of this machine whose type has this entry of the catalogue; -1. */
int32_t profile_gpu_of(const struct profile_gpus *k, const char *base);
/* Rounds of these operators that take warm_s by the catalogue's roofline, one at least. */
int32_t profile_warm_rounds(const struct profile_gpus *k, const char *base,
                            const struct program_op *ops, size_t n);
/* Copies up and down of the first device that is here; none where there is none. */
MUST_CHECK enum status profile_copies(struct arena *a, struct profile_gpus *k, int32_t repeats,
                                      struct error *err);
void profile_copies_print(const struct profile_gpus *k);
void profile_copies_json(struct json *j, const struct profile_gpus *k);

#endif
