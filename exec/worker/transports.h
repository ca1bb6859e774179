/* exec/worker/transports.h - the transport of each channel and each collective of a program.
 *
 * TRANSPORT_LOCAL: within a device. TRANSPORT_DEVICE: between devices of one backend with a communication library
 * (NCCL). TRANSPORT_HOST: everything else, through host memory, the communication thread and the message library. All
 * ranks choose alike, from the capabilities of all. Emulated devices always use the host, because messages on
 * emulated links take virtual time there. MUSHER_TRANSPORT=host forces the host transport. */
#ifndef EXEC_WORKER_TRANSPORTS_H
#define EXEC_WORKER_TRANSPORTS_H

#include "exec/device_transport/device_transport.h"
#include "exec/host_transport/bounce.h"
#include "exec/host_transport/comm_thread.h"

#include <stdbool.h>
#include <stdint.h>

struct chunks;
struct rank;

/* All fields belong to transports.c; users call the transports' own functions. */
struct transports {
    unsigned char *channel,
        *group; /* (n_channels), (n_groups) enum transport, equal on all ranks */
    struct device_transport *device; /* NULL: no direct device communication */
    struct arena *moving;            /* the communication thread's arena */
    struct comm_thread comm_thread;
    bool host_open;       /* the communication thread is initialised and not stopped */
    struct bounce bounce; /* discrete device only */
};

/* All ranks together: chooses the transports from the capabilities of all ranks' backends. */
void transports_choose(struct transports *t, const struct rank *r);
/* Whether any transport is TRANSPORT_DEVICE. Equal on all ranks. */
bool transports_use_devices(const struct transports *t, const struct program *p);
/* Whether the collectives of a stage have their staging on its device. */
bool transports_stage_on_device(const struct transports *t, const struct rank *r, int32_t stage);

/* Bytes of pinned memory for a discrete device's channels that use the host. */
int64_t transports_pinned_bytes(const struct transports *t, const struct program *p,
                                int32_t device);
/* pinned: transports_pinned_bytes of this rank. */
MUST_CHECK enum status transports_open_bounce(struct transports *t, struct rank *r,
                                              const struct chunks *c, char *pinned,
                                              struct error *err);
/* shared: as for comm_thread_init. The thread does not run yet. */
void transports_open_host(struct transports *t, const struct rank *r, void *shared);
MUST_CHECK enum status transports_open_devices(struct transports *t, struct rank *r,
                                               const struct chunks *c, struct error *err);
/* Joins the communication thread after all orders are done. */
void transports_stop_host(struct transports *t);
/* Between give_up and close the ranks' board shows this rank as leaving; device work must end there. */
void transports_give_up_devices(struct transports *t);
void transports_close_devices(struct transports *t);
void transports_close(struct transports *t); /* the last call */

/* Marks the work issued to the compute stream so far: an event + 1 that the host can wait for; 0: it is complete. */
MUST_CHECK enum status transports_mark(struct transports *t, struct rank *r, int32_t *after,
                                       struct error *err);

#endif
