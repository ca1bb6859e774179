/* exec/cuda/device.h - an open device: streams, events, faults; internal to the plugin.
 *
 * Tables have their maximum size from the start and never move, so that the compute thread and the communication
 * thread read them without a lock while one of them creates a stream or an event.
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
    struct cuda_green_context *green; /* a subset of its multiprocessors; NULL: all */
    uint32_t dtypes; /* bit 1 << enum dtype */
    bool
        wait_each; /* MUSHER_CUDA_WAIT=1: waits after every operator, so that the error names the right one */
    int priority; /* of all streams but the first: the device's highest */
    int64_t pitch_max; /* largest row pitch in bytes of a strided copy */
    _Atomic bool abandoned, unfinished; /* unfinished: a library thread is still working; also set if abandoned */
    struct cuda_context *contexts[STREAMS_MAX];
    struct cuda_fault *faults;               /* (STREAMS_MAX) pinned */
    struct cuda_event *events[EVENT_BLOCKS]; /* blocks of EVENT_BLOCK */
    _Atomic int32_t n_contexts, n_events;
    struct timeline timeline;
};

/* cuda_failed with the device's name, the call and the last operators issued to its streams. */
enum status cuda_device_failed(struct cuda_device *d, cudaError_t e, const char *call,
                               struct error *err);
/* Functions of the backend table that need no open device. */
enum status cuda_count(struct backend *b, int32_t *out, struct error *err);
enum status cuda_describe(struct backend *b, int32_t device, struct backend_device *out,
                          struct error *err);
enum status cuda_joined(int32_t a, int32_t b, struct plugin_joined *out, struct error *err);
/* ERR_INPUT if a kernel found invalid data; call after a wait. */
enum status cuda_faults(struct cuda_device *d, struct error *err);
/* Waits for the stream and frees its resources. */
void cuda_context_close(struct cuda_context *x);
/* Functions of the backend table for an open device. */
void cuda_device_table(struct backend *out);
void cuda_streams_table(struct backend *out);

#endif
