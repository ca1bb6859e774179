/* planner/spmd_stage/group_rules.h - rules of a stage on several equal GPUs of a node, for any of its layers.
 *
 * One set of rules by index and operator suits every stage of a model, because tensors between layers are complete (spmd_question.
 * complete_cuts). It is found for all layers by one rough A* (planner/spmd_stage/spmd_stage.h), once for each number of GPUs and kind.
 */
#ifndef PLANNER_SPMD_STAGE_GROUP_RULES_H
#define PLANNER_SPMD_STAGE_GROUP_RULES_H

#include "planner/spmd_stage/spmd_stage.h"

enum group_rules {
    GROUP_RULES_UNBATCHED, /* any index but the batch: sequence, context and tensor parallel */
    GROUP_RULES_ANY,       /* also the batch: data and expert parallel within a stage */
    GROUP_RULES_PARAMETERS, /* parameters are sharded (tensor parallel, or gathered for each use): the least memory */
    GROUP_RULES_MESH, /* positions in two parts (context parallel), each over half of the GPUs as by GROUP_RULES_PARAMETERS */
    GROUP_RULES_COUNT
};

/* device: (n) of the space's cluster, on one node. *out in the arena `keep`: NULL if there are none; measured layers are sharded as
 * they were measured. w: charged for the work. */
MUST_CHECK enum status group_rules_solve(struct spmd_stage *memo, struct scorer *w,
                                         const struct space *s, const int32_t *device, int32_t n,
                                         enum group_rules kind, struct arena *keep,
                                         const struct sharding **out, struct error *err);

#endif
