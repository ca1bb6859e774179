/* planner/spmd/mesh.h - the best sharded program over the meshes that a stage's devices can stand in.
 *
 * One axis of all devices, and two: devices in their order, rows of equal length. Where the devices stand on nodes of equally
 * many, side by side, rows of a node come first (sums inside nodes and between them then go by themselves), then rows of half
 * and of twice as many, then what else divides. At most SPMD_MESHES_MAX are looked at, in this order; each but the first
 * only for what is better than the best so far, so that one whose bound is no better ends after its tables.
 * Ratios of a place along an axis are sums over its devices (core/sharding/sharding.h).
 */
#ifndef PLANNER_SPMD_MESH_H
#define PLANNER_SPMD_MESH_H

#include "planner/spmd/spmd.h"

enum { SPMD_MESHES_MAX = 6 };

struct spmd_shape {
    int32_t rows, columns; /* 1 row: one axis */
};
/* What is looked at, in order; returns how many, out: (SPMD_MESHES_MAX). node: (n), or NULL. */
int32_t spmd_meshes(int32_t n, const int32_t *node, struct spmd_shape *out);

struct spmd_mesh_best {
    struct spmd_answer answer; /* ns INT64_MAX: nothing fits */
    struct sharding *sharding; /* a plan's; NULL where nothing fits */
    struct spmd_shape shape;
    int64_t work_ns; /* of all meshes, as spmd_answer's */
};
/* q->s: ratios over the devices; its mesh is not read. */
MUST_CHECK enum status spmd_best_mesh(struct arena *a, const struct spmd_question *q,
                                      struct spmd_mesh_best *out, struct error *err);

#endif
