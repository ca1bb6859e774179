/* exec/device_transport/communicators.h - this rank's communicators: made, joined, tested by a first message, watched, given up, closed. */
#ifndef EXEC_DEVICE_TRANSPORT_COMMUNICATORS_H
#define EXEC_DEVICE_TRANSPORT_COMMUNICATORS_H

#include "exec/device_transport/device_comm.h"
#include "exec/device_transport/device_transport.h"
#include "exec/device_transport/plan.h"

#include <stdbool.h>
#include <stdint.h>

struct communicator {
    const struct talk *talk;
    int32_t rank; /* -1: not this one's */
    void *handle;
};

/* All fields belong to communicators.c. */
struct communicators {
    struct arena *a;
    const struct device_transport_options *o;
    struct backend *b;
    const struct talks *talks;
    const struct device_comm *library; /* NULL: this rank is in none */
    int32_t stream;                    /* of first messages */
    struct communicator *at;           /* (talks->n) */
    bool given_up;
    struct error why; /* what they were given up for; OK: no reason of the transport's own */
};

void communicators_init(struct communicators *c, struct arena *a,
                        const struct device_transport_options *o, const struct talks *talks);
/* All ranks together; agrees by itself. stream: what first messages go on. */
MUST_CHECK enum status communicators_open(struct communicators *c,
                                          const struct device_comm *library, int32_t stream,
                                          struct error *err);
/* Takes limit_ns at most: communicators whose peers have not left by then are given up. */
void communicators_close(struct communicators *c);

/* Handle of a communicator for calls of the library. */
static inline void *communicators_handle(const struct communicators *c, int32_t talk)
{
    return c->at[talk].handle;
}
/* The error that they were given up for; OK before. */
MUST_CHECK enum status communicators_live(const struct communicators *c, struct error *err);
/* *why (OK before): the first error that the library has seen since. */
void communicators_check(struct communicators *c, struct error *why);
/* At once, all together, the first time. why: NULL, or what communicators_live reports from now on. */
void communicators_give_up(struct communicators *c, const struct error *why);
/* Adds to the error of a communicator (ERR_RANK) which rank is gone, where that is known. */
void communicators_peer_lost(const struct communicators *c, struct error *err);

#endif
