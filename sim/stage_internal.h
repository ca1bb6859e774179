/* sim/stage_internal.h - what sim/stage*.c share and nobody else includes. */
#ifndef SIM_STAGE_INTERNAL_H
#define SIM_STAGE_INTERNAL_H

#include "core/arena.h"
#include "sim/stage.h"

#include <stdbool.h>

/* Layers that read a tensor or use a parameter, ascending, each once. */
struct readers {
    int32_t n;
    int32_t *layer;
};

struct kept {                /* a tensor that some backward reads */
    int32_t tensor, made_in; /* layer; -1: an input */
    int64_t bytes;
    struct readers readers;
};

struct stage_parameter {
    int32_t tensor;
    int64_t bytes;
    struct readers used; /* by forward or backward */
    struct readers uses; /* layers of its gradients, one each use: not each once */
};

struct type_times {                             /* prefix sums: [l] is of layers before l */
    int64_t *forward_ns, *input_ns, *weight_ns; /* (n_layers + 1) */
    int64_t *again_last_ns,
        *again_ns;      /* (n_layers): recompute where the layer is the last one needed, and else */
    int64_t *within_ns; /* (n_layers + 1): updates of the parameters within a layer */
    int64_t *update_ns, *tie_ns; /* (n_parameters); of those across layers */
};

struct sizes {
    bool known;
    int64_t parameter, decayed, gradient, kept, input,
        scratch; /* decayed: bytes of the decayed parameters */
};

struct layer_sums { /* over the layers before one, of what lives within a layer */
    int64_t parameter, decayed, gradient, kept, input;
};

struct stage_table {
    struct arena *arena;
    const struct graph *g;
    struct cost *cost;
    const struct optimizer *optimizer;
    bool flat;
    int32_t n_kept, n_parameters;
    struct kept *kept; /* those across layers, by the layer that makes them */
    struct stage_parameter *parameters;
    struct layer_sums *sums; /* (n_layers + 1) */
    int32_t *first_kept;     /* (n_layers + 2): of those made in layer l, [l + 1]; [0]: of inputs */
    int32_t n_across;        /* parameters used in several layers, which come first */
    int32_t *forward,
        *first_forward;         /* forward operators by layer; (n_layers + 1) where each begins */
    int32_t *back, *first_back; /* the same of the others */
    int64_t *scratch;           /* (n_layers) */
    bool *again_last,
        *again; /* (n_forward): operator runs again; where its layer is the last needed, and else */
    bool *reads_last,
        *reads; /* (n_layers): the same: does what runs again or back read the activation before? */
    struct sizes **sizes;      /* (n_layers) rows of (n_layers), made when asked for */
    struct type_times **times; /* (n_types) */
    int32_t cards;             /* that share a stage; sizes are of one of them */
    struct stage_table *
        *other; /* (n_types): the table of a type with other cards, NULL until asked for */
};

/* --- sim/stage_sizes.c --- */

/* Fills all that sizes are counted from. */
void stage_sizes_prepare(struct stage_table *t);
struct sizes stage_sizes_count(const struct stage_table *t, int32_t first, int32_t last);
int64_t
stage_master_bytes(const struct graph *g); /* of one element of a gradient or master weight */

#endif
