/* tests/standin/internal.h - shared by the stand-in's runtime, streams, memory and libraries. */
#ifndef TESTS_STANDIN_INTERNAL_H
#define TESTS_STANDIN_INTERNAL_H

#include "cuda_runtime_api.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STANDIN_DEVICES_MAX = 16 };

/* --- tables shared by all threads ---
 *
 * One lock protects tables and counts. It is hidden from the thread sanitizer, because a thread that only reads a
 * table must not thereby be ordered with others. Only what CUDA orders is ordered, by tickets and by the hand-over of
 * work, so a missing event stays a race. The lock is never held while anything runs or waits. */
void books_open(void);
void books_close(void);
/* The same hiding for other code. */
void hidden_begin(void);
void hidden_end(void);

/* --- tickets: one-time events with waiters --- */

struct ticket {
    uint32_t done;       /* a futex, read and written as an atomic */
    int64_t at_ns;       /* written before done */
    int64_t held;        /* reference count, under the lock */
    struct ticket *next; /* free list */
};
struct ticket *ticket_new(void); /* held once */
void ticket_hold(struct ticket *t);
void ticket_drop(struct ticket *t);
/* The caller's earlier writes are visible to waiters. */
void ticket_finish(struct ticket *t);
void ticket_wait(struct ticket *t);
bool ticket_done(struct ticket *t);
int64_t ticket_at_ns(struct ticket *t); /* CLOCK_MONOTONIC; of one that is done */

/* --- entering a call --- */

/* Counts the call; returns the failure requested by STANDIN_FAIL_AT, or the error of the lost current device. */
cudaError_t standin_enter(const char *call);
/* Like standin_enter without counting, for calls whose number depends on timing. */
cudaError_t standin_enter_uncounted(void);
/* Records e for cudaGetLastError and returns it. */
cudaError_t standin_leave(cudaError_t e);
/* OK-or-return. */
#define ENTER()                                                                                    \
    do {                                                                                           \
        cudaError_t enter_ = standin_enter(__func__);                                              \
        if (enter_ != cudaSuccess) return standin_leave(enter_);                                   \
    } while (0)

int standin_device(void);            /* of the calling thread */
int standin_shared_max(int device); /* largest shared memory of a block, in bytes */
int standin_device_count(void);
int64_t standin_device_memory(int device);
int standin_capability(int device);
int standin_multiprocessors(void);
int standin_driver_version(void);
int64_t standin_granule(void);
int64_t standin_pitch(void); /* largest row pitch, in bytes */
int64_t standin_queue(void); /* length of a stream's queue */
/* The device does nothing from now on. */
void standin_lose(int device, cudaError_t e);
cudaError_t standin_lost(int device);
/* Before a stream runs an item: false if the device is lost, or becomes lost by this item. */
bool standin_may_work(int device);
/* Host functions must not call the runtime; streams report when one runs. */
void standin_in_host_function(bool inside);

/* Bytes of shared memory that a launch may ask for. */
size_t standin_shared_limit(const void *function);

/* --- streams --- */

struct work {                     /* what a stream does; from malloc, freed by the stream */
    void (*run)(struct work *w);  /* skipped on a lost device; NULL: nothing */
    void (*drop)(struct work *w); /* frees what w owns; NULL: nothing */
    struct work *next;
    struct ticket *ticket; /* finished after run, and dropped; may be NULL */
    bool always;           /* also on a lost device */
    struct wanted_activity *noted; /* for CUPTI's twin (activity.h); may be NULL */
    int handed;            /* release by the producer, acquire by the stream */
};
/* Zeroed, of a struct that begins with a struct work. */
void *work_new(size_t bytes, void (*run)(struct work *w));

/* The stream of a handle; NULL is the current device's default stream. cudaErrorInvalidResourceHandle if none exists,
 * or (here) if it belongs to another device. */
cudaError_t stream_find(cudaStream_t handle, bool here, cudaStream_t *out);
/* Takes ownership of w. Orders it with the default stream as CUDA does unless the stream is non-blocking. Blocks
 * while the queue is full. */
void stream_push(cudaStream_t stream, struct work *w);
/* Waits for everything pushed so far. */
void stream_wait(cudaStream_t stream);
int stream_device(cudaStream_t stream);
/* A non-blocking stream of a green context, whose stream count decreases at its destruction. */
cudaStream_t stream_make_green_context(int device, int *of);
/* All streams of a device. */
void streams_wait(int device);

/* --- memory --- */

enum place { PLACE_PAGEABLE, PLACE_PINNED, PLACE_DEVICE };
/* Where p is; cudaErrorInvalidValue where [p, p + bytes) leaves a known allocation. */
cudaError_t memory_find(const void *p, size_t bytes, enum place *out, int *out_device);

/* --- what is alive, for the question of leaks --- */

enum kept {
    KEPT_DEVICE_MEMORY,
    KEPT_PINNED_MEMORY,
    KEPT_STREAM,
    KEPT_EVENT,
    KEPT_BLAS,
    KEPT_GREEN,
    KEPT_ACTIVITY, /* kinds of CUPTI's that are on */
    KEPT_COUNT
};
void standin_keep(enum kept what, int by); /* +1, -1 */

#endif
