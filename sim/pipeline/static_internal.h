/* sim/pipeline/static_internal.h - a sorted schedule, shared by sim/pipeline/static and its report. */
#ifndef SIM_PIPELINE_STATIC_INTERNAL_H
#define SIM_PIPELINE_STATIC_INTERNAL_H

#include "sim/pipeline/static.h"

/* Operation classes: eight per stage, five of them used. class / 2 is an index of message queues: F's, W's (which sends
 * nothing: its class has no duration on it) and that of I and B, which send the same gradient. */
enum { CLASS_F = 0, CLASS_W = 2, CLASS_I = 4, CLASS_B = 5, CLASSES = 8 };

struct static_op {
    uint32_t needs; /* index of the arrival it waits for: 1 + place of its producer, or 0: none */
    uint32_t class; /* stage · CLASSES + CLASS_ */
    uint32_t device;
};
struct class_cost {
    int64_t ns, occupancy_ns, latency_ns, pad; /* size is a power of two: indexing is a shift */
};
struct static_timer {
    const struct schedule *s;
    int32_t n_stages;
    uint32_t n_ops;
    struct static_op *ops; /* (n_ops) sorted by level */
    uint32_t *place_of;    /* (n_ops) device-major index → place in ops */
    uint32_t *last;        /* (n_stages) place of its last weight-gradient operation */
    int32_t *device_of;    /* (n_stages) */
    bool *shared
        [2]; /* (n_stages) whether the link of the stage's messages, forward or backward, has other senders */
    struct class_cost *cost;
    int64_t *arrival; /* (n_ops + 1) of an operation's output at its consumer; [0] 0 */
    int64_t *end;     /* (n_ops) */
    int64_t *free;    /* (n_devices) */
    int64_t *queue;   /* (n_stages · CLASSES / 2) when the link of a message queue is free */
};

#endif
