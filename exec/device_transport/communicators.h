/* exec/device_transport/communicators.h - this rank's communicators: creation, joining, a first test message, errors,
 * abort, close. */
#ifndef EXEC_DEVICE_TRANSPORT_COMMUNICATORS_H
#define EXEC_DEVICE_TRANSPORT_COMMUNICATORS_H

#include "exec/device_transport/device_comm.h"
#include "exec/device_transport/device_transport.h"
#include "exec/device_transport/plan.h"

#include <stdbool.h>
#include <stdint.h>

struct communicator {
    const struct talk *talk;
    int32_t rank; /* -1: this rank is not a member */
    void *handle;
};

/* All fields belong to communicators.c. */
struct communicators {
    struct arena *a;
    const struct device_transport_options *o;
    struct backend *b;
    const struct talks *talks;
    const struct device_comm *library; /* NULL: this rank is a member of none */
    int32_t stream;                    /* of the first messages */
    struct communicator *at;           /* (talks->n) */
    bool given_up;
    struct error why; /* reason for the abort; OK: none of this transport's own */
};

void communicators_init(struct communicators *c, struct arena *a,
                        const struct device_transport_options *o, const struct talks *talks);
/* All ranks together; they agree on the status inside. stream: of the first messages. */
MUST_CHECK enum status communicators_open(struct communicators *c,
                                          const struct device_comm *library, int32_t stream,
                                          struct error *err);
/* Takes limit_ns at most: communicators whose peers have not closed by then are aborted. */
void communicators_close(struct communicators *c);

/* The library's handle of a communicator. */
static inline void *communicators_handle(const struct communicators *c, int32_t talk)
{
    return c->at[talk].handle;
}
/* The error for which the communicators were aborted; OK before. */
MUST_CHECK enum status communicators_live(const struct communicators *c, struct error *err);
/* *why (OK before): the first error that the library reports. */
void communicators_check(struct communicators *c, struct error *why);
/* Aborts all communicators at once; later calls have no effect. why: NULL, or the error that communicators_live
 * returns afterwards. */
void communicators_give_up(struct communicators *c, const struct error *why);
/* Adds the dead rank, if known, to a communicator's error (ERR_RANK). */
void communicators_peer_lost(const struct communicators *c, struct error *err);

#endif
