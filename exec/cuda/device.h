/* exec/cuda/device.h - an open device: its streams, events, faults; for the files of the plugin that look after it.
 *
 * Tables have room for the most there may be from the start and are never moved, so that the compute thread and the
 * communication thread read them without a lock while one of them makes a stream or an event more.
 */
#ifndef EXEC_CUDA_DEVICE_H
#define EXEC_CUDA_DEVICE_H

#include "exec/cuda/context.h"
#include "exec/cuda/green_context.h"
#include "exec/cuda/timeline.h"
#include "exec/plugin.h"

#include <stdatomic.h>

enum { STREAMS_MAX = 1024, EVENT_BLOCK = 1024, EVENT_BLOCKS = 1024 };

struct cuda_event {
    cudaEvent_t event;
    bool timed;
};

struct cuda_device {
    struct arena *arena;
    int32_t index, capability, multiprocessors;
    char name[128];  /* "NVIDIA H200 (device 0)" */
    struct cuda_green_context *green; /* a part of it; NULL: all */
    uint32_t dtypes; /* bit 1 << enum dtype */
    bool
        wait_each; /* MUSHER_CUDA_WAIT=1: every operator is waited for, so that it is the one that is named */
    int priority; /* of all streams but the first: the most urgent that the device has */
    int64_t pitch_max; /* bytes from one row to the next that a copy of rows takes */
    _Atomic bool abandoned, unfinished; /* unfinished: a library is at work on a thread of its own; set too where abandoned */
    struct cuda_context *contexts[STREAMS_MAX];
    struct cuda_fault *faults;               /* (STREAMS_MAX) pinned */
    struct cuda_event *events[EVENT_BLOCKS]; /* blocks of EVENT_BLOCK */
    _Atomic int32_t n_contexts, n_events;
    struct timeline timeline;
};

/* cuda_failed with the device's name, the call and what was asked of its streams last. */
enum status cuda_device_failed(struct cuda_device *d, cudaError_t e, const char *call,
                               struct error *err);
/* The table's functions that look at devices before one is open. */
enum status cuda_count(struct backend *b, int32_t *out, struct error *err);
enum status cuda_describe(struct backend *b, int32_t device, struct backend_device *out,
                          struct error *err);
enum status cuda_joined(int32_t a, int32_t b, struct plugin_joined *out, struct error *err);
/* ERR_INPUT where a kernel found wrong data; after a wait. */
enum status cuda_faults(struct cuda_device *d, struct error *err);
/* Waits for the stream and takes back all that it has. */
void cuda_context_close(struct cuda_context *x);
/* The table's functions for an open one. */
void cuda_device_table(struct backend *out);
void cuda_streams_table(struct backend *out);

#endif
