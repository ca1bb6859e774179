/* tools/export/sailor.h - a plan as Sailor's planner writes its own (formats of github eth-easl/sailor), so that its simulator
 * and others can score it.
 *
 *   {"zone": "us-central1-a",
 *    "pipeline_list": [{"num_stages": 2, "layers_per_stage": [[0, 1, …], [7, …]],
 *                       "tmp_per_stage": [[[[["V100-16", 4, "us-central1-a"]], 1], …], …],   # stage, replica: [[GPU, GPUs of its node, zone]], GPUs that share
 *                       "dp": [8, 8], "microbatches": [64, …]}],                             # replicas of each stage; shares of the replicas
 *    "mbs": 2, "gbs": 1024, "equal_shares": true, "iteration_s": 21.9}
 *
 * Replicas that cut the layers alike are one pipeline. Sailor gives every replica the same share and takes as many replicas for
 * granted in each pipeline; `microbatches` and `equal_shares` are ours, so that nobody takes the score of a plan that is not
 * like that for its time. ERR_INPUT: what its format has no word for (recomputation, chunks, stages that share a
 * microbatch's sequences, device types that its tables do not know).
 */
#ifndef TOOLS_EXPORT_SAILOR_H
#define TOOLS_EXPORT_SAILOR_H

#include "tools/export/export.h"

#define SAILOR_ZONE "us-central1-a"

/* Equal shares, and as many replicas of each cut: what Sailor's closed form assumes. */
bool export_sailor_equal(const struct plan *p);
#endif
