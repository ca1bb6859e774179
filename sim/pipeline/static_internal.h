/* sim/pipeline/static_internal.h - a sorted schedule as sim/pipeline/static and its report see it. */
#ifndef SIM_PIPELINE_STATIC_INTERNAL_H
#define SIM_PIPELINE_STATIC_INTERNAL_H

#include "sim/pipeline/static.h"

/* What an operation is: eight classes a stage, five of them used. Halved, they name a queue of messages: F's, W's (which
 * sends nothing: its class takes no time on it) and that of I and B, which send the same gradient. */
enum { CLASS_F = 0, CLASS_W = 2, CLASS_I = 4, CLASS_B = 5, CLASSES = 8 };

struct static_op {
    uint32_t needs; /* place of the arrival it waits for: 1 + place of its maker, or 0: nothing */
    uint32_t class; /* stage · CLASSES + CLASS_ */
    uint32_t device;
};
struct class_cost {
    int64_t ns, occupancy_ns, latency_ns, pad; /* a power of two: an index is a shift */
};
struct static_timer {
    const struct schedule *s;
    int32_t n_stages;
    uint32_t n_ops;
    struct static_op *ops; /* (n_ops) sorted by level */
    uint32_t *place_of;    /* (n_ops) device-major index → place in ops */
    uint32_t *last;        /* (n_stages) place of the last operation that makes a weight gradient */
    int32_t *device_of;    /* (n_stages) */
    bool *shared
        [2]; /* (n_stages) does what the stage sends, forward or back, share its way with another stage? */
    struct class_cost *cost;
    int64_t *arrival; /* (n_ops + 1) of what an operation makes at who waits for it; [0] 0 */
    int64_t *end;     /* (n_ops) */
    int64_t *free;    /* (n_devices) */
    int64_t *queue;   /* (n_stages · CLASSES / 2) when a queue's link is free */
};

#endif
