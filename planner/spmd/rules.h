/* planner/spmd/rules.h - between planner/spmd/spmd.c and its pricing of operators. */
#ifndef PLANNER_SPMD_RULES_H
#define PLANNER_SPMD_RULES_H

#include "planner/spmd/spmd.h"

struct arena;

struct dealt; /* of planner/spmd/rules.c */

struct builder {
    struct arena *a;
    const struct spmd_question *q;
    const struct graph *g;
    const struct grain *grains;
    struct spmd_tables *t;
    int32_t n_devices;
    int32_t *first_back,
        *next_back;        /* (n_forward), (n_ops): gradient operators of each forward one */
    bool *shared;          /* (n_tensors) parameters of several operators of the stage */
    int32_t *input_reader; /* (n_tensors) the stage's first operator that reads an input; -1 */
    uint8_t keeps_output;  /* of the operator whose rules are made */
    struct dealt *dealt;   /* units that were dealt out already */
    struct spmd_meaning *meanings;
    size_t n_meanings, meaning_capacity;
};

/* Rules of forward operator i, each priced. */
MUST_CHECK enum status spmd_rules_of(struct builder *b, int32_t i, struct spmd_op *out,
                                     struct error *err);
/* A parameter's own: its share of the sum over the axes of partial values once a step, which lowering makes of all parameters
 * together (*ns), its update (added to device_ns), what it holds (added to bytes). */
MUST_CHECK enum status spmd_parameter(struct builder *b, int32_t tensor, int32_t home,
                                      uint8_t partial, int64_t *ns, int64_t *device_ns,
                                      int64_t *bytes, struct error *err);
/* Of a stage's first activation: whole, or sharded by batch. */
void spmd_entry_rules(struct builder *b, struct spmd_op *op);
/* Of shared parameters: struct spmd_tensor's functions, and the problem's user that they take. The builder must outlive it. */
const void *spmd_shared_user(struct builder *b);
void spmd_join(const void *user, int32_t *home, uint8_t *partial, int32_t need,
               uint8_t need_partial);
int64_t spmd_home_ns(const void *user, int32_t tensor, int32_t home, uint8_t partial,
                     const int64_t **bytes);
int32_t spmd_meaning_new(struct builder *b, const struct spmd_meaning *m);

#endif
