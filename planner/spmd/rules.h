/* planner/spmd/rules.h - sharding rules of a stage's operators with their costs; private to planner/spmd/spmd.c and its files. */
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
        *next_back;        /* (n_forward), (n_ops): lists of the gradient operators of each forward operator */
    bool *shared;          /* (n_tensors) parameters of several operators of the stage */
    bool *crosses;         /* (n_tensors) activations that must not be partial (spmd_question.complete_cuts) */
    int32_t *input_reader; /* (n_tensors) the stage's first reader of an input; -1: none */
    uint8_t keeps_output;  /* of the current operator */
    struct dealt *dealt;   /* memo of distributed units */
    struct spmd_meaning *meanings;
    size_t n_meanings, meaning_capacity;
};

/* Rules of forward operator i, with costs. */
MUST_CHECK enum status spmd_rules_of(struct builder *b, int32_t i, struct spmd_op *out,
                                     struct error *err);
/* Costs of a parameter per step: *ns its share of the gradient all-reduce over the axes in `partial`, which lowering makes for
 * all parameters together; device_ns: its update is added; bytes: its memory is added. */
MUST_CHECK enum status spmd_parameter(struct builder *b, int32_t tensor, int32_t home,
                                      uint8_t partial, int64_t *ns, int64_t *device_ns,
                                      int64_t *bytes, struct error *err);
/* Rules of a stage's input activation: replicated, or sharded by batch. */
void spmd_entry_rules(struct builder *b, struct spmd_op *op);
/* For shared parameters: the functions of struct spmd_tensor and their user argument. The builder must outlive it. */
const void *spmd_shared_user(struct builder *b);
void spmd_join(const void *user, int32_t *home, uint8_t *partial, int32_t need,
               uint8_t need_partial);
int64_t spmd_home_ns(const void *user, int32_t tensor, int32_t home, uint8_t partial,
                     const int64_t **bytes);
int32_t spmd_meaning_new(struct builder *b, const struct spmd_meaning *m);

#endif
