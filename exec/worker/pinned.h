/* exec/worker/pinned.h - the pinned memory of a discrete lane: one allocation, and who has which part of it. */
#ifndef EXEC_WORKER_PINNED_H
#define EXEC_WORKER_PINNED_H

#include "core/base/error.h"

#include <stdint.h>

struct rank;
struct transports;

/* All fields belong to pinned.c; NULL where the host's memory is the device's. */
struct pinned {
    char *all;
    char *channels;    /* transports_open_bounce */
    char *scratch;     /* of the collective that the host runs */
    char *staging;     /* of its operands (exec/worker/staging.h) */
    char *async_issue; /* async_issue_open */
    char *inputs;      /* inputs_open_discrete */
};

/* Bytes that a device's lane takes. */
int64_t pinned_bytes(const struct rank *r, const struct transports *t, int32_t device);
MUST_CHECK enum status pinned_open(struct pinned *x, struct rank *r, const struct transports *t,
                                   struct error *err);
void pinned_close(struct pinned *x, struct rank *r);

#endif
