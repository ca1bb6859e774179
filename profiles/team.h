/* profiles/team.h - what the catalogue adds to a cluster: memory that the file leaves out, and the fused kinds that every
 * device type of the team runs. */
#ifndef PROFILES_TEAM_H
#define PROFILES_TEAM_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/lower/lower.h"
#include "core/model/model.h"

/* Every type gets its backend and what its libraries keep of memory; types without a stated memory get the catalogue's. ERR_INPUT: unknown catalogue id, or the catalogue knows no memory; a
 * part of multiprocessors that the GPU does not have, or of a GPU whose number is not known; an NCCL version without model, or no
 * NVIDIA GPU beside it. */
MUST_CHECK enum status team_complete(struct cluster *c, struct error *err);

/* ERR_INPUT where a device type of the team cannot compute in this dtype: the host has fp32 and fp64, GPUs before compute
 * capability 8.0 have no bf16. */
MUST_CHECK enum status team_precision(const struct cluster *c, enum dtype t, struct error *err);

/* How many times as long a type that has a part of its GPU's multiprocessors is taken to compute before it was measured: all over
 * part; what memory bounds loses less, which calibration learns. 1 for a whole GPU. */
double team_slower(const struct device_type *t);

/* Tells the model how many GPUs shard every operator of a device of the first type, for who asks for the job's one graph;
 * lowering and the planner ask each type (core/lower/lower.h). */
void team_share(const struct cluster *c, struct model *m);

/* Fills n_fused and fused; the rest of *out is untouched. ERR_INPUT: unknown catalogue id. */
MUST_CHECK enum status team_fused(struct arena *a, const struct cluster *c,
                                  struct lower_options *out, struct error *err);

#endif
