/* planner/spmd/mesh.h - the best sharded program over the possible device meshes of a stage.
 *
 * One-dimensional: one axis of all devices. Two-dimensional: devices in their order, rows of equal length. If the nodes have
 * equally many adjacent devices, rows of one node come first, because collectives within and between nodes are then separate;
 * then rows of half and of twice that length; then the other divisors. The best
 * cost so far is the upper bound of each search after the first, so a mesh whose lower bound is not below it ends after its
 * tables. The ratio of a position along an axis is the sum over its devices (core/sharding/sharding.h).
 */
#ifndef PLANNER_SPMD_MESH_H
#define PLANNER_SPMD_MESH_H

#include "planner/spmd/spmd.h"

enum { SPMD_MESHES_MAX = 32 }; /* numbers up to 256 have at most 20 divisors */

struct spmd_shape {
    int32_t rows, columns; /* 1 row: one axis */
};
/* Meshes in order of search; returns their number, out: (SPMD_MESHES_MAX). node: (n) node of each device, or NULL. */
int32_t spmd_meshes(int32_t n, const int32_t *node, struct spmd_shape *out);

struct spmd_mesh_best {
    struct spmd_answer answer; /* ns INT64_MAX: infeasible */
    struct sharding *sharding; /* for a plan; NULL: infeasible */
    struct spmd_shape shape;
    int64_t work_ns; /* of all meshes, as in spmd_answer */
};
/* q->s: ratios over the devices; its mesh is ignored. */
MUST_CHECK enum status spmd_best_mesh(struct arena *a, const struct spmd_question *q,
                                      struct spmd_mesh_best *out, struct error *err);

#endif
