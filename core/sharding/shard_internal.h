/* core/sharding/shard_internal.h - shared by shard_place.c and shard.c. */
#ifndef CORE_SHARDING_SHARD_INTERNAL_H
#define CORE_SHARDING_SHARD_INTERNAL_H

#include "core/sharding/shard.h"

/* Units of axis x that the device has, counted from the beginning of the outer shard. */
void shard_units(struct arena *a, const struct sharding *s, const struct placement *p, int32_t x,
                 int32_t device, int64_t *first, int64_t *n);
/* How the device's group along x divides its dimension. */
struct division *shard_division(struct arena *a, const struct sharding *s,
                                const struct placement *p, int32_t x, int32_t device);
struct exchange *shard_group(struct arena *a, const struct sharding *s, int32_t axis,
                             int32_t device);
const struct exchange *shard_exchange(struct arena *a, const struct sharding *s,
                                      const struct conversion *c, int32_t device);

/* What stages of one sharding share (shard_choices_new). */
struct shard_choices {
    const struct graph *whole;
    const struct sharding *s;
    const struct grain *grains;
    const struct op_choice *choices; /* (n_forward) */
    const bool *gathered;            /* (n_tensors) */
    const bool *trained;             /* (n_tensors) activations that require gradients */
    const bool *reaches;             /* (n_forward) the loss depends on it */
};

struct shard_window { /* forward operators of the whole graph: [begin, end) */
    int32_t begin, end;
    int32_t open; /* the tensor that is read behind it, -1: none */
};
struct shard_window shard_window_of(const struct shard_choices *c, int32_t first_layer,
                                    int32_t last_layer, int32_t until);
/* Fills trained and reaches. */
void shard_window_prepare(struct arena *a, struct shard_choices *c);

/* A view under construction (shard.c). */
struct shard_version { /* of a tensor of the whole graph, in one placement */
    struct placement placement;
    int32_t tensor; /* of the view */
    struct shard_version *next;
};

struct shard_view {
    struct arena *a;
    const struct graph *whole;
    const struct sharding *s;
    int32_t device, first_layer, last_layer;
    struct graph *g;
    const struct grain *grains;
    const struct shard_choices *shared; /* of all stages with this sharding */
    struct shard_window window;
    struct op_choice before;    /* of operators before the stage */
    struct op_choice *choices;  /* (operators of the window) */
    const bool *gathered;       /* (n_tensors) */
    struct shard_version **versions;  /* (n_tensors) the first one is what was made; others follow */
    int32_t *n_conversions;     /* (n_tensors) for names */
    struct placement *home;     /* (n_tensors) of parameters */
    int32_t *made_for;          /* (n_tensors) of parameters: reader of its versions, + 1 */
    int32_t *last;              /* (n_layers) last operator of each layer */
    int32_t *uses_before;       /* (n_tensors) of parameters, before the window */
    struct op_placements *need; /* (operators of the window) */
};

static inline struct op_choice *shard_choice_of(const struct shard_view *v, int32_t op)
{
    return &v->choices[op - v->window.begin];
}
static inline struct op_placements *shard_need_of(const struct shard_view *v, int32_t op)
{
    return &v->need[op - v->window.begin];
}

int32_t shard_add_version(struct shard_view *v, int32_t t, const struct placement *p, int32_t tensor);
/* The tensor of the view that has `t` in placement p, for operator `reader` (-1: none). */
MUST_CHECK enum status shard_version_of(struct shard_view *v, int32_t t, const struct placement *p,
                                        int32_t reader, int32_t *out, struct error *err);
/* The axis over which a measured layer is sharded; -1: it is replicated. */
int32_t shard_tensor_axis(const struct shard_view *v, int32_t op);
/* The degree of a measured layer that is sharded, and what its backward keeps at that degree. ERR_INPUT: unequal ratios, an axis
 * that does not have all devices, a degree whose sizes are not known. */
MUST_CHECK enum status shard_measured_attrs(const struct shard_view *v, int32_t op,
                                            struct op_attrs *attrs, struct error *err);
/* Choices of the window's operators outside the stage: sharded by batch where the neighbour in the stage is, else replicated. */
void shard_choose_outside(struct shard_view *v);
/* A tensor from before the window, as its producer places it; NULL: it is from inside. */
const struct shard_version *shard_enter_window(struct shard_view *v, int32_t t);
/* Versions of inputs that operators before the window use, conversions there of parameters that the window uses (used: by tensor), and
 * uses of these parameters: uses (n_tensors). */
MUST_CHECK enum status shard_count_outside(struct shard_view *v, const bool *used, int32_t *uses,
                                           struct error *err);

#endif
