/* planner/spmd_stage/spmd_stage.h - pipelines of sharded stages: intra-operator parallelism within a stage (Alpa).
 *
 * The sharded program of a stage comes from planner/spmd/spmd, its ratios from planner/spmd/ratio: the best for these layers
 * on these devices. Answers are memoised by all their inputs: layers, microbatch size and count, microbatches in flight,
 * device types, and the links between every two devices. Interchangeable devices therefore share an answer.
 *
 * HAP (arXiv 2401.05965) is one stage on all devices: a baseline (planner/baseline/hap.h).
 */
#ifndef PLANNER_SPMD_STAGE_SPMD_STAGE_H
#define PLANNER_SPMD_STAGE_SPMD_STAGE_H

#include "core/sharding/sharding.h"
#include "planner/bound/any.h"
#include "planner/candidate/search_context.h"

struct spmd_stage; /* opaque: memo of answers */

struct spmd_stage_team {
    const struct space *s;
    int32_t first_layer, last_layer, n;
    const int32_t *device; /* (n) of the space's cluster */
    int32_t microbatches, in_flight;
    /* (n) bytes available to the search on each; NULL: memory does not count */
    const int64_t *memory;
    bool rough;        /* a single search, with ratios by speed */
    uint32_t excluded; /* indices by which nothing is sharded, 1 << index */
    bool complete_cuts; /* the rules suit stages that end behind any layer (planner/spmd/spmd.h) */
    bool shard_parameters; /* parameters of two dimensions and more are sharded (planner/spmd/spmd.h) */
};
struct spmd_stage_answer {
    int64_t ns; /* all calls of an iteration and the update in sequence; INT64_MAX: infeasible */
    const struct sharding *sharding; /* this and the following live as long as the memo */
    const char *why;                        /* reason, if infeasible */
};

struct spmd_stage *spmd_stage_new(void);
void spmd_stage_free(struct spmd_stage *j); /* NULL: no effect */
/* Hash of all inputs of an answer. */
uint64_t spmd_stage_key(const struct spmd_stage_team *t, bool thorough);
/* thorough: alternation of search and ratios, and meshes of two axes; else one search each for even and proportional ratios.
 * w: NULL, or the scorer charged for the work. Infeasibility is no error: see `why`. */
MUST_CHECK enum status spmd_stage_solve(struct spmd_stage *j, struct scorer *w,
                                        const struct spmd_stage_team *t, bool thorough,
                                        struct spmd_stage_answer *out, struct error *err);
/* Bytes that lowering reserves on a GPU for other purposes than tensors, as far as known before lowering: BLAS, and the given
 * number of communicators. */
int64_t spmd_stage_reserve(const struct device_type *t, int32_t communicators, bool emulated);
/* Lower bound of the communicators of a device of a stage on n devices with an adjacent stage on m (0: none). Activations and
 * gradients flow in opposite directions, and each direction of a pair of devices has its own communicator
 * (core/program/device_memory). Every device receives from at least one; a replicated tensor is sent by one of its holders. */
int32_t spmd_stage_beside(int32_t n, int32_t m);
/* Memory of the team's devices in bytes: (n). */
const int64_t *spmd_stage_memory(struct arena *a, const struct spmd_stage_team *t);
/* Makes *out the sharded stage of the answer. Its warm-up count is kept if it had the same layers. */
void spmd_stage_put(struct arena *a, const struct spmd_stage_team *t,
                    const struct spmd_stage_answer *x, struct plan_stage *out);

bool spmd_stage_in_plan(const struct plan *p); /* whether any stage shards operators */
/* The narrowest class with all its stages. */
enum bound_stages spmd_stage_extent(const struct plan *p);

#endif
