/* profiles/team.h - completes a cluster from the catalogue: omitted memory sizes, and the fused kinds that all device types
 * support. */
#ifndef PROFILES_TEAM_H
#define PROFILES_TEAM_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/lower/lower.h"
#include "core/model/model.h"
#include "profiles/catalogue.h"

/* The catalogue's row of a type with what the cluster file states in place of the row's values (source: TEAM_STATED): *out is the
 * row, or *room where the file states something. ERR_INPUT: unknown catalogue id. */
#define TEAM_STATED "stated by the cluster file"
MUST_CHECK enum status team_device(const struct device_type *t, struct catalogue_device *room,
                                   const struct catalogue_device **out, struct error *err);

/* Dense peak of one GPU of the type in FLOP/s: stated, or the catalogue's; 0: unknown, or none (for MFU). */
double team_peak_flops(const struct device_type *t, enum dtype precision);

/* Sets each type's backend and the memory that its libraries take, and the catalogue's memory size and power if the file states
 * none, and the catalogue's price as list_price_per_h.
 * ERR_INPUT: unknown catalogue id; no memory size in the file or the catalogue; more multiprocessors than the GPU has, or a GPU
 * whose number of them is unknown; an NCCL version without a cost model, or a cluster without NVIDIA GPUs that states one. */
MUST_CHECK enum status team_complete(struct cluster *c, struct error *err);

/* ERR_INPUT if a device type cannot compute in this dtype: GPUs before compute capability 8.0 have no bf16, and a type without a
 * backend has what the catalogue or the file states a peak for. */
MUST_CHECK enum status team_precision(const struct cluster *c, enum dtype t, struct error *err);

/* Prior slowdown of a type with a share of its GPU's multiprocessors: all ÷ share. Memory-bound operators lose less, which
 * calibration learns. 1 for a full GPU. */
double team_slower(const struct device_type *t);


/* Fills n_fused and fused; other fields of *out are unchanged. ERR_INPUT: unknown catalogue id. */
MUST_CHECK enum status team_fused(struct arena *a, const struct cluster *c,
                                  struct lower_options *out, struct error *err);

#endif
