/* planner/bound/kept.h - least memory of a layer in any plan: what a microbatch leaves for its backward, and the layer's state. */
#ifndef PLANNER_BOUND_KEPT_H
#define PLANNER_BOUND_KEPT_H

#include "planner/candidate/space.h"

#include <stdbool.h>

struct bound_kept {
    double kept_bytes;  /* of a sample */
    double waiting_bytes; /* the same between I and W, if W waits */
    double state_bytes; /* parameters that no layer before uses, gradients, optimizer state: once */
};
/* out: (n_layers). Counted are activations that one layer makes and reads back, and only where all operators of the layer are in
 * one block of the model, so that each is kept once per sample in any division into stages and shards unless the stage or the
 * block is recomputed (core/plan/plan.h); those that selective recomputation drops are not. false: nothing is known, because
 * layers are measured or the space's graph is one GPU's shard. O(operators + layers). */
bool bound_kept_of(struct arena *a, const struct space *s, struct bound_kept *out);

#endif
