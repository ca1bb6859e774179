/* planner/bound/any_internal.h - what is known of a job and a cluster, shared by the terms of planner/bound/any.h. */
#ifndef PLANNER_BOUND_ANY_INTERNAL_H
#define PLANNER_BOUND_ANY_INTERNAL_H

#include "planner/bound/any.h"

struct layer {
    double *work_ns,
        *update_ns;            /* (n_classes) device-ns per sample; of the update. INFINITY: no offer */
    double pass_ns, weight_ns; /* least over the classes, for one microbatch */
    double parameter_bytes, activation_bytes;
    double kept_bytes, state_bytes; /* INFINITY: unknown */
};
/* Offers of so many samples; in plans of that microbatch size, if it is one. */
struct size {
    int64_t samples;
    bool tried;
    double *work_ns, *again_ns; /* (n_layers, n_classes) device-ns per sample */
};
struct device_cut {
    int64_t *here; /* (n_classes) */
    double Bps;
    const char *name;
};
struct family {
    const struct bound_any_part *parts;
    int32_t n;
    const char *name;
};
struct bound_any {
    struct arena *arena;
    int32_t n_layers, n_classes;
    int64_t *count;
    double batch;
    enum bound_stages stages;
    int64_t most_on_node;
    int64_t fewest; /* fewest samples of an offer */
    double *price;  /* (n_classes) per hour; NULL: none */
    double most_ns; /* longest iteration covered by the bound on cost; 0: any */
    struct layer *layers;
    size_t n_cuts, capacity;
    struct device_cut *cuts;
    size_t n_families, family_capacity;
    struct family *families;
    double *price_of_time; /* (n_classes) of a device, dual of compute */
    size_t n_sizes, size_capacity;
    struct size *sizes;
    double *memory_bytes; /* (n_classes) of a device; NULL: memory is not bounded */
    int32_t *pool;        /* (n_classes) */
    /* classes of equal layers: a representative and the count */
    int32_t n_rows, *row, *times;
};

/* Remembers an offer by its number of samples. */
void bound_any_remember(struct bound_any *b, int32_t device_class, int32_t layer, const struct bound_offer *o);
/* The larger of what is known and what memory makes of the best microbatch size (planner/bound/memory.h). *alone, if it is larger:
 * memory binds at that size; else it is the compute of that size, and more efficient sizes do not fit. */
double bound_any_memory_ns(const struct bound_any *b, double known_ns, bool *alone);

#endif
