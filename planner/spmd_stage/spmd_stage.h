/* planner/spmd_stage/spmd_stage.h - pipelines of sharded stages: intra-operator parallelism inside a stage.
 *
 * A stage on several devices takes its inside from planner/spmd/spmd, its ratios from planner/spmd/ratio: the best sharded program of
 * these layers on these devices. Answers are kept by what they depend on: layers, microbatch and their number, how many are
 * in flight, types of the devices and the links between every two of them. So devices that are alike share an answer.
 *
 * spmd_stage_local_search starts from the best plans found: a stage that is shared by `sequences:`, or neighbouring stages of one replica
 * taken together, become one sharded stage on their devices. What spmd says such a stage computes alone decides whether it
 * is worth lowering; the simulator decides everything else. HAP (arXiv 2401.05965) is the end of that way, one stage on all
 * devices; it is a preset (planner/baseline/hap.h) and a candidate like the others.
 */
#ifndef PLANNER_SPMD_STAGE_SPMD_STAGE_H
#define PLANNER_SPMD_STAGE_SPMD_STAGE_H

#include "core/sharding/sharding.h"
#include "planner/candidate/search_context.h"

/* A search looks for sharded stages on clusters of at most so many devices. */
enum { SPMD_STAGE_DEVICES_MAX = SEARCH_DEVICES_MAX };

struct spmd_stage; /* opaque: answers */

struct spmd_stage_team {
    const struct space *s;
    int32_t first_layer, last_layer, n;
    const int32_t *device; /* (n) of the space's cluster */
    int32_t microbatches, in_flight;
    /* (n) what the search may lay out on each; NULL: memory does not count */
    const int64_t *memory;
    bool rough;       /* one search, dealt out by speed */
    int32_t together; /* so many such teams share the ways between nodes; 0: one */
    int32_t
        beside; /* communicators that each makes with the stages before and behind (spmd_stage_beside) */
};
/* What an answer for all layers takes layer by layer: conversions are the reader's layer's, sums over the devices are once a
 * step. */
struct spmd_stage_layers {
    const int64_t *call_ns, *step_ns;        /* (n_layers) a microbatch; an iteration */
    const int64_t *fixed_bytes, *kept_bytes; /* (n_layers, n) for good; of a microbatch in flight */
    const bool *
        replicated; /* (n_layers) what it hands on is replicated on every device, not sharded by batch */
};
struct spmd_stage_answer {
    int64_t
        ns; /* all calls of an iteration and the update, one after the other; INT64_MAX: it cannot be */
    const struct sharding *sharding;        /* kept as long as the join, as all that follows */
    const struct spmd_stage_layers *layers; /* of all layers only */
    const char *why;                        /* where it cannot be */
};

struct spmd_stage *spmd_stage_new(void);
void spmd_stage_free(struct spmd_stage *j); /* NULL: nothing */
/* What an answer depends on. */
uint64_t spmd_stage_key(const struct spmd_stage_team *t, bool thorough);
/* thorough: search and ratios by turns, and meshes of two axes, else one search each for even and for proportional ratios. w: NULL, or is charged what it
 * takes. Errors: none of what cannot be, which `why` says. */
MUST_CHECK enum status spmd_stage_solve(struct spmd_stage *j, struct scorer *w,
                                        const struct spmd_stage_team *t, bool thorough,
                                        struct spmd_stage_answer *out, struct error *err);
/* Bytes that lowering will keep of a GPU for others than tensors, as far as that can be known before there is a program: it
 * multiplies, and is in so many communicators. */
int64_t spmd_stage_reserve(const struct device_type *t, int32_t communicators, bool emulated);
/* Communicators that a device of a stage on n makes with a stage beside on m (0: there is none), at least: activations go one way,
 * gradients the other, and in each direction of a pair of devices is a communicator of its own (core/program/device_memory). Each receives from one of
 * the others at least; what is replicated on several devices one of them sends. */
int32_t spmd_stage_beside(int32_t n, int32_t m);
/* What the team's devices have: (n). */
const int64_t *spmd_stage_memory(struct arena *a, const struct spmd_stage_team *t);
/* x on the answer's devices, sharding operators; of what *out said its warm-up stays, where it was of the same layers. */
void spmd_stage_put(struct arena *a, const struct spmd_stage_team *t,
                    const struct spmd_stage_answer *x, struct plan_stage *out);

/* A sharded stage of a plan, and what was asked for it. */
struct spmd_stage_spot {
    int32_t replica, stage;
    struct spmd_stage_team team;
    struct spmd_stage_answer answer;
};
/* Made to fit and simulated (search_context_score). Where a sharded stage is too large however it is scheduled, it is asked for again with
 * less memory by what its devices lack, a few times; device choices and *p, which are the arena's, are changed. *ns: INT64_MAX where nothing fits. */
MUST_CHECK enum status spmd_stage_fit(struct search_context *t, struct arena *a,
                                      const struct space *s, struct spmd_stage_spot *diverse_starts,
                                      int32_t n, bool thorough, struct plan *p, int64_t *ns,
                                      struct error *err);

/* Adds what it finds to t->incumbents. spaces: (n_spaces); plans of other clusters or sizes are no starts. evaluations: most
 * simulations, of t's budget. */
MUST_CHECK enum status spmd_stage_local_search(struct search_context *t,
                                               const struct space *const *spaces, int32_t n_spaces,
                                               int64_t evaluations, struct error *err);
bool spmd_stage_in_plan(const struct plan *p); /* whether some stage shards operators */

#endif
