/* exec/worker/transports.h - how each channel and each group of a program moves, and what moves it.
 *
 * LOCAL is within a device; DEVICE between devices of one backend that can communicate directly; HOST is everything else: the
 * communication thread and the message library, from and to memory of the host. All ranks choose alike, from what all of
 * them can. Emulated devices go by the host always, since messages on emulated links take virtual time there.
 * MUSHER_TRANSPORT=host leaves everything to the host. */
#ifndef EXEC_WORKER_TRANSPORTS_H
#define EXEC_WORKER_TRANSPORTS_H

#include "exec/device_transport/device_transport.h"
#include "exec/host_transport/bounce.h"
#include "exec/host_transport/comm_thread.h"

#include <stdbool.h>
#include <stdint.h>

struct chunks;
struct rank;

/* All fields belong to transports.c; whoever holds the struct uses the transports by their own functions. */
struct transports {
    unsigned char *channel,
        *group; /* (n_channels), (n_groups) enum transport, alike on all ranks */
    struct device_transport *device; /* NULL: nothing moves between devices directly */
    struct arena *moving;            /* the communication thread's */
    struct comm_thread comm_thread;
    bool host_open;       /* the communication thread is initialised, and not stopped */
    struct bounce bounce; /* a discrete device */
};

/* All ranks together: what moves how, from what all ranks' backends can. */
void transports_choose(struct transports *t, const struct rank *r);
/* Whether anything moves between devices directly. Alike on all ranks. */
bool transports_use_devices(const struct transports *t, const struct program *p);
/* Whether collectives of a stage have their staging on its device. */
bool transports_stage_on_device(const struct transports *t, const struct rank *r, int32_t stage);

/* Bytes of pinned memory for the channels of a device that the host carries; of a discrete one. */
int64_t transports_pinned_bytes(const struct transports *t, const struct program *p,
                                int32_t device);
/* pinned: so many bytes for this rank's channels. */
MUST_CHECK enum status transports_open_bounce(struct transports *t, struct rank *r,
                                              const struct chunks *c, char *pinned,
                                              struct error *err);
/* shared: as comm_thread_init takes it. The thread does not run yet. */
void transports_open_host(struct transports *t, const struct rank *r, void *shared);
MUST_CHECK enum status transports_open_devices(struct transports *t, struct rank *r,
                                               const struct chunks *c, struct error *err);
/* Joins the communication thread, when what was ordered has been done. */
void transports_stop_host(struct transports *t);
/* Between these two the ranks' board shows this rank as leaving, and device work must have ended. */
void transports_give_up_devices(struct transports *t);
void transports_close_devices(struct transports *t);
void transports_close(struct transports *t); /* the last thing */

/* What the compute stream was asked so far, as an event + 1 that the host may wait for; 0: it has been done already. */
MUST_CHECK enum status transports_mark(struct transports *t, struct rank *r, int32_t *after,
                                       struct error *err);

#endif
