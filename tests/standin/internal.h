/* tests/standin/internal.h - what the twins of the runtime share. */
#ifndef TESTS_STANDIN_INTERNAL_H
#define TESTS_STANDIN_INTERNAL_H

#include "cuda_runtime_api.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STANDIN_DEVICES_MAX = 16 };

/* --- books that all threads share ---
 * One lock over tables and counts, hidden from the thread sanitizer: whoever only looks into the books is not thereby
 * ordered with others who did. What CUDA orders is ordered by tickets and by the hand-over of tasks, and by nothing else,
 * so a missing event stays a race. Never held while anything runs or waits. */
void books_open(void);
void books_close(void);
/* The same hiding around what is not the books. */
void hidden_begin(void);
void hidden_end(void);

/* --- tickets: something that is done once, and who waits for it --- */

struct ticket {
    uint32_t done;       /* a futex, read and written as an atomic */
    int64_t at_ns;       /* written before done */
    int64_t held;        /* under the books */
    struct ticket *next; /* among those that nobody holds */
};
struct ticket *ticket_new(void); /* held once */
void ticket_hold(struct ticket *t);
void ticket_drop(struct ticket *t);
/* Whatever the caller did before is seen by those who waited. */
void ticket_finish(struct ticket *t);
void ticket_wait(struct ticket *t);
bool ticket_done(struct ticket *t);
int64_t ticket_at_ns(struct ticket *t); /* CLOCK_MONOTONIC; of one that is done */

/* --- entering a call --- */

/* Counts the call; the error that was asked for by STANDIN_FAIL_AT, or what the current device is lost with. */
cudaError_t standin_enter(const char *call);
/* As standin_enter, of calls that are made as often as time goes by: not counted. */
cudaError_t standin_enter_uncounted(void);
/* Remembers e for cudaGetLastError and returns it. */
cudaError_t standin_leave(cudaError_t e);
/* OK-or-return. */
#define ENTER()                                                                                    \
    do {                                                                                           \
        cudaError_t enter_ = standin_enter(__func__);                                              \
        if (enter_ != cudaSuccess) return standin_leave(enter_);                                   \
    } while (0)

int standin_device(void);            /* of the calling thread */
int standin_shared_max(int device); /* bytes of shared memory that a block may be allowed */
int standin_device_count(void);
int64_t standin_device_memory(int device);
int standin_capability(int device);
int standin_multiprocessors(void);
int standin_driver_version(void);
int64_t standin_granule(void);
int64_t standin_pitch(void); /* the most bytes between two rows */
int64_t standin_queue(void); /* the most that a stream has before whoever asks for more waits */
/* Nothing of the device works from now on. */
void standin_lose(int device, cudaError_t e);
cudaError_t standin_lost(int device);
/* A stream is about to do something: false where the device is lost, or is by this. */
bool standin_may_work(int device);
/* Host functions may not call the runtime; streams say when one runs. */
void standin_in_host_function(bool inside);

/* Bytes of shared memory that a launch may ask for. */
size_t standin_shared_limit(const void *function);

/* --- streams --- */

struct work {                     /* what a stream does; from malloc, freed by the stream */
    void (*run)(struct work *w);  /* skipped where the device is lost; NULL: nothing */
    void (*drop)(struct work *w); /* frees what w owns; NULL: nothing */
    struct work *next;
    struct ticket *ticket; /* finished after run, and dropped; may be NULL */
    bool always;           /* even on a lost device */
    struct wanted_activity *noted; /* for CUPTI's twin (activity.h); may be NULL */
    int handed;            /* the producer's release, the stream's acquire */
};
/* Zeroed, of a struct that begins with a struct work. */
void *work_new(size_t bytes, void (*run)(struct work *w));

/* The stream behind a handle; NULL is the current device's default one. cudaErrorInvalidResourceHandle where there is
 * none, or (here) where it is another device's. */
cudaError_t stream_find(cudaStream_t handle, bool here, cudaStream_t *out);
/* Takes w. Orders it with the default stream as CUDA does where the stream is not a non-blocking one. Waits while the stream has as
 * much to do as it takes. */
void stream_push(cudaStream_t stream, struct work *w);
/* Waits for everything that was pushed so far. */
void stream_wait(cudaStream_t stream);
int stream_device(cudaStream_t stream);
/* Non-blocking, of a green context, whose count of streams goes down when it is destroyed. */
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
