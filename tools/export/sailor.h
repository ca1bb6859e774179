/* tools/export/sailor.h - export of a plan to the JSON of Sailor's planner (formats of github eth-easl/sailor), for its simulator.
 *
 *   {"zone": "us-central1-a",
 *    "pipeline_list": [{"num_stages": 2, "layers_per_stage": [[0, 1, …], [7, …]],
 *                       "tmp_per_stage": [[[[["V100-16", 4, "us-central1-a"]], 1], …], …],   # stage, replica: [[GPU, GPUs of its node, zone]], GPUs that share
 *                       "dp": [8, 8], "microbatches": [64, …]}],                             # replicas of each stage; shares of the replicas
 *    "mbs": 2, "gbs": 1024, "equal_shares": true, "iteration_s": 21.9}
 *
 * Replicas with equal cuts are one pipeline. Sailor's closed form assumes equal shares and equally many replicas in every pipeline.
 * `microbatches` and `equal_shares` are our additions: they mark a plan for which that assumption, and so Sailor's score, is wrong.
 * ERR_INPUT: features that the format cannot express (recomputation, chunks, stages that divide a microbatch's sequences, device
 * types outside Sailor's tables).
 */
#ifndef TOOLS_EXPORT_SAILOR_H
#define TOOLS_EXPORT_SAILOR_H

#include "tools/export/export.h"

#define SAILOR_ZONE "us-central1-a"

/* Whether shares are equal and every cut has equally many replicas, as Sailor's closed form assumes. */
bool export_sailor_equal(const struct plan *p);
#endif
