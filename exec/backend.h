/* exec/backend.h - what the worker needs of a device; the host and every plugin answer it alike.
 *
 * A backend owns one device's memory and runs operators and copies on its streams: each stream does what it was asked in
 * order, streams order themselves by events alone. Stream 0 is there from the start and computes. The host does everything
 * at once, before the call returns; a device runs ahead and says by events how far it is. The struct is a table of functions
 * with an ABI number, so that a plugin opened at run time can give one.
 * Whatever was wrong on a device shows at the call that waits for it (event_wait_here, download, finish), named.
 * Errors: ERR_RESOURCE where memory or the device gives out, ERR_INPUT where the device lacks a dtype or a kernel.
 */
#ifndef EXEC_BACKEND_H
#define EXEC_BACKEND_H

#include "core/base/error.h"
#include "core/graph/op.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device_comm; /* exec/device_transport/device_comm.h */

enum { BACKEND_ABI = 4, STREAM_COMPUTE = 0 };

struct optimizer_step { /* what adamw and sgd need besides their operands */
    double lr, beta1, beta2, eps, weight_decay;
    int64_t step; /* 1 for the first update */
};

struct op_call { /* one operator, resolved to memory */
    enum op_kind kind;
    enum dtype dtype; /* of every operand that is not int32 and not wide */
    /* bit i: operand i is fp32 though dtype is bf16 or fp16 (statistics, losses, gradients, master weights) */
    uint32_t wide_input, wide_output;
    const struct op_attrs *attrs;
    const struct op_shapes *shapes;
    const void *input[OP_OPERANDS_MAX];
    void *output
        [OP_OPERANDS_MAX]; /* adamw: output 0..3 are p, m, v, g in place; its inputs are the same addresses */
    const struct optimizer_step *optimizer; /* updates only */
    /* dropout: the run's seed, and the number, among all that are trained on, of the sequence that its first row is of */
    uint64_t seed;
    int64_t first_sequence;
    /* attrs.scaled: the numbers of the program's loss scale (core/graph/loss_scale.h), where operands are */
    const float *scale;
};

struct backend_device { /* one that could be opened */
    char name[96];      /* as its maker calls it */
    char version[96];   /* of the driver and the libraries that would run it */
    int64_t memory_bytes;
    uint32_t dtypes;    /* bit 1 << enum dtype: computes in it */
    int32_t capability; /* CUDA's major·10 + minor; 0 */
};

struct backend {
    int abi;
    const char *name; /* "host", "cuda" */
    bool discrete_memory; /* its memory is not the host's: only upload, download and copy go between them */
    /* Set before open: a part of a GPU's multiprocessors, by a green context; 0: all of them. ERR_INPUT from open where the GPU
     * does not part so, or its driver does not at all. */
    int32_t multiprocessors;

    /* How many devices there are, before any is opened. ERR_RESOURCE, with the reason, where there is none. */
    enum status (*count)(struct backend *b, int32_t *out, struct error *err);
    enum status (*describe)(struct backend *b, int32_t device, struct backend_device *out,
                            struct error *err);
    enum status (*open)(struct backend *b, int32_t device, struct error *err);
    void (*close)(struct backend *b);

    /* 64-byte aligned, zeroed. `pinned`: the host's memory, which copies need not wait for. */
    enum status (*allocate)(struct backend *b, int64_t bytes, void **out, struct error *err);
    void (*release)(struct backend *b, void *memory);
    enum status (*allocate_pinned)(struct backend *b, int64_t bytes, void **out, struct error *err);
    void (*release_pinned)(struct backend *b, void *memory);
    /* After everything asked of stream 0 before; done when they return. */
    enum status (*upload)(struct backend *b, void *device, const void *host, int64_t bytes,
                          struct error *err);
    enum status (*download)(struct backend *b, void *host, const void *device, int64_t bytes,
                            struct error *err);

    /* Streams and events are small numbers of this backend; both live until close. */
    enum status (*stream_make)(struct backend *b, int32_t *out, struct error *err);
    enum status (*event_make)(struct backend *b, bool timed, int32_t *out, struct error *err);
    enum status (*run)(struct backend *b, int32_t stream, const struct op_call *call,
                       struct error *err);
    /* Either address the device's or pinned. */
    enum status (*copy)(struct backend *b, int32_t stream, void *to, const void *from,
                        int64_t bytes, struct error *err);
    /* `rows` of row_bytes, each a stride behind the one before; both the device's. NULL: by copy, row by row. */
    enum status (*copy_rows)(struct backend *b, int32_t stream, void *to, int64_t to_stride,
                             const void *from, int64_t from_stride, int64_t row_bytes,
                             int64_t rows, struct error *err);
    /* n elements in another dtype, rounded to nearest, ties to even; both the device's. Messages are narrower than sums. */
    enum status (*cast)(struct backend *b, int32_t stream, void *to, enum dtype to_dtype,
                        const void *from, enum dtype from_dtype, int64_t n, struct error *err);
    enum status (*event_record)(struct backend *b, int32_t event, int32_t stream,
                                struct error *err);
    /* What is asked of the stream from now on waits for the event's last record; none: for nothing. */
    enum status (*event_wait)(struct backend *b, int32_t stream, int32_t event, struct error *err);
    enum status (*event_done)(struct backend *b, int32_t event, bool *out, struct error *err);
    enum status (*event_wait_here)(struct backend *b, int32_t event, struct error *err);
    /* CLOCK_MONOTONIC when a timed event that is done was reached. */
    enum status (*event_at)(struct backend *b, int32_t event, int64_t *out_ns, struct error *err);
    /* All streams. */
    enum status (*finish)(struct backend *b, struct error *err);
    /* CPU seconds spent inside BLAS since open, for the bench; counted only where MUSHER_BLAS_CLOCK=1 was set at open, else
     * -1. NULL: never. */
    double (*blas_seconds)(struct backend *b);
    /* Messages and collectives between devices of this backend on its streams; NULL: by the host alone. */
    const struct device_comm *comm;
    /* The plugin that sees what the device ran (exec/activity.h), "cupti"; NULL: none. */
    const char *profiler;
    /* Bytes that the open device has for anybody now, beside contexts and others' memory. NULL: nobody knows. */
    enum status (*free_bytes)(struct backend *b, int64_t *out, struct error *err);
    /* Once, before anything runs: operators of STREAM_COMPUTE take no more scratch than that, nor products without a workspace
     * (core/program/device_memory.h). From then on nothing grows: who wants more is refused. NULL: nothing to prepare. */
    enum status (*prepare)(struct backend *b, int64_t scratch_bytes, int64_t workspace_bytes,
                           struct error *err);
    /* Something of the open device is on a thread of its own and may never end: whoever ends the process must not wait for it, as exit()
     * may (comm_end). NULL: nothing ever is. */
    bool (*unfinished)(struct backend *b);
    void *state; /* the backend's own */
};

/* Fills *out with the host backend's table (not opened yet). */
void backend_host(struct backend *out);

#endif
