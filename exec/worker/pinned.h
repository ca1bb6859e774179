/* exec/worker/pinned.h - the pinned (page-locked) memory of a discrete device's lane: one allocation and its division
 * among modules. */
#ifndef EXEC_WORKER_PINNED_H
#define EXEC_WORKER_PINNED_H

#include "core/base/error.h"

#include <stdint.h>

struct rank;
struct transports;

/* All fields belong to pinned.c; NULL if the device uses host memory. */
struct pinned {
    char *all;
    char *channels;    /* transports_open_bounce */
    char *scratch;     /* of the collective that runs on the host */
    char *staging;     /* of its operands (exec/worker/staging.h) */
    char *async_issue; /* async_issue_open */
    char *inputs;      /* inputs_open_discrete */
};

/* Bytes for a device's lane. */
int64_t pinned_bytes(const struct rank *r, const struct transports *t, int32_t device);
MUST_CHECK enum status pinned_open(struct pinned *x, struct rank *r, const struct transports *t,
                                   struct error *err);
void pinned_close(struct pinned *x, struct rank *r);

#endif
