/* exec/backend.h - the device interface of the worker, implemented by the host and by each plugin.
 *
 * A backend is one device: its memory, its streams and its operators. The contract is CUDA's. Operators and copies of
 * one stream run in issue order, and only events order different streams. STREAM_COMPUTE exists from open on. On the
 * host each call completes before it returns; on a GPU calls are asynchronous and events report completion. The
 * struct is a table of functions with an ABI number, because a plugin is opened at run time. An asynchronous failure
 * is reported, with the operator's name, by the next call that waits: event_wait_here, download or finish. Errors:
 * ERR_RESOURCE if memory is exhausted or the device fails; ERR_INPUT if the device lacks a dtype or a kernel.
 */
#ifndef EXEC_BACKEND_H
#define EXEC_BACKEND_H

#include "core/base/error.h"
#include "core/graph/op.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device_comm; /* exec/device_transport/device_comm.h */

enum { BACKEND_ABI = 8, STREAM_COMPUTE = 0 };

struct optimizer_step { /* arguments of updates, clip, outer_nesterov and encode besides their operands */
    double lr, beta1, beta2, eps, weight_decay, trust; /* lars, momentum: beta1 is the momentum */
    double max_grad_norm;                              /* of clip */
    bool nesterov;                                     /* of momentum */
    int64_t step; /* 1 for the first update */
    int64_t device; /* of the program: encode's random numbers */
    double outer_lr, outer_momentum;
};

struct op_call { /* one operator with the addresses of its operands */
    enum op_kind kind;
    enum dtype dtype; /* of every operand that is neither int32 nor wide */
    /* bit i: operand i is fp32 although dtype is bf16 or fp16 (statistics, losses, gradients, master weights) */
    uint32_t wide_input, wide_output;
    const struct op_attrs *attrs;
    const struct op_shapes *shapes;
    const void *input[OP_OPERANDS_MAX];
    void *output
        /* adamw: outputs 0 … 3 are p, m, v, g, updated in place; the inputs have the same addresses; so those
         * of outer_average and outer_nesterov */
        [OP_OPERANDS_MAX];
    const struct optimizer_step *optimizer; /* updates only */
    /* dropout, encode: the seed of the run; dropout: the number of the first row's sequence in the whole training */
    uint64_t seed;
    int64_t first_sequence;
    /* attrs.scaled: the program's loss-scale numbers (core/graph/loss_scale.h), in device memory */
    const float *scale;
    const void *clip; /* attrs.clipped: the factor of gradients, in device memory, of the gradient's dtype; else NULL */
};

struct backend_device { /* a device that the count function reports */
    char name[96];      /* the vendor's name */
    char version[96];   /* of the driver and the libraries */
    int64_t memory_bytes;
    uint32_t dtypes;    /* bit 1 << enum dtype: supported for computation */
    int32_t capability; /* CUDA compute capability, major·10 + minor; else 0 */
};

struct backend {
    int abi;
    const char *name; /* "host", "cuda" */
    bool discrete_memory; /* separate from host memory: only upload, download and copy cross */
    /* Set before open: multiprocessors to use, by a green context; 0: all. open returns ERR_INPUT if the GPU cannot
     * be divided at this number, or the driver has no green contexts. */
    int32_t multiprocessors;

    /* Number of devices; none needs to be open. ERR_RESOURCE with the reason if there is none. */
    enum status (*count)(struct backend *b, int32_t *out, struct error *err);
    enum status (*describe)(struct backend *b, int32_t device, struct backend_device *out,
                            struct error *err);
    enum status (*open)(struct backend *b, int32_t device, struct error *err);
    void (*close)(struct backend *b);

    /* 64-byte aligned and zeroed. Pinned memory is page-locked host memory, because only its copies are asynchronous. */
    enum status (*allocate)(struct backend *b, int64_t bytes, void **out, struct error *err);
    void (*release)(struct backend *b, void *memory);
    enum status (*allocate_pinned)(struct backend *b, int64_t bytes, void **out, struct error *err);
    void (*release_pinned)(struct backend *b, void *memory);
    /* Synchronous; after everything issued to stream 0. */
    enum status (*upload)(struct backend *b, void *device, const void *host, int64_t bytes,
                          struct error *err);
    enum status (*download)(struct backend *b, void *host, const void *device, int64_t bytes,
                            struct error *err);

    /* Streams and events are small integers of this backend; both live until close. */
    enum status (*stream_make)(struct backend *b, int32_t *out, struct error *err);
    enum status (*event_make)(struct backend *b, bool timed, int32_t *out, struct error *err);
    enum status (*run)(struct backend *b, int32_t stream, const struct op_call *call,
                       struct error *err);
    /* Each address is in device memory or pinned. */
    enum status (*copy)(struct backend *b, int32_t stream, void *to, const void *from,
                        int64_t bytes, struct error *err);
    /* `rows` rows of row_bytes at the given strides (cudaMemcpy2D), device to device. NULL: the caller copies row by
     * row. */
    enum status (*copy_rows)(struct backend *b, int32_t stream, void *to, int64_t to_stride,
                             const void *from, int64_t from_stride, int64_t row_bytes,
                             int64_t rows, struct error *err);
    /* Converts n elements to another dtype, device to device: round to nearest, ties to even. Messages may be
     * narrower than sums. */
    enum status (*cast)(struct backend *b, int32_t stream, void *to, enum dtype to_dtype,
                        const void *from, enum dtype from_dtype, int64_t n, struct error *err);
    enum status (*event_record)(struct backend *b, int32_t event, int32_t stream,
                                struct error *err);
    /* Later work of the stream waits for the event's last record; an event that was never recorded is complete. */
    enum status (*event_wait)(struct backend *b, int32_t stream, int32_t event, struct error *err);
    enum status (*event_done)(struct backend *b, int32_t event, bool *out, struct error *err);
    enum status (*event_wait_here)(struct backend *b, int32_t event, struct error *err);
    /* The instant of a completed timed event on CLOCK_MONOTONIC. */
    enum status (*event_at)(struct backend *b, int32_t event, int64_t *out_ns, struct error *err);
    /* Waits for all streams. */
    enum status (*finish)(struct backend *b, struct error *err);
    /* CPU seconds inside BLAS since open, for the bench; -1 unless MUSHER_BLAS_CLOCK=1 was set at open. NULL: not
     * supported. */
    double (*blas_seconds)(struct backend *b);
    /* Messages and collectives between devices of this backend, on its streams (NCCL); NULL: only through the host. */
    const struct device_comm *comm;
    /* Name of the profiler plugin (exec/activity.h), "cupti"; NULL: none. */
    const char *profiler;
    /* Free bytes of the open device, after contexts and other processes. NULL: unknown. */
    enum status (*free_bytes)(struct backend *b, int64_t *out, struct error *err);
    /* Called once, before any operator: reserves the scratch of STREAM_COMPUTE and the workspace of matrix products
     * (core/program/device_memory.h). Nothing grows afterwards; a larger request is an error. NULL: nothing to
     * prepare. */
    enum status (*prepare)(struct backend *b, int64_t scratch_bytes, int64_t workspace_bytes,
                           struct error *err);
    /* True if a thread of the open device may never end. The process must then leave by comm_end, because exit()
     * might wait for that thread. NULL: never. */
    bool (*unfinished)(struct backend *b);
    void *state; /* private to the backend */
};

/* Fills *out with the host backend's table; the device is not open yet. */
void backend_host(struct backend *out);

#endif
