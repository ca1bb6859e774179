/* exec/backend.h - what the worker needs of a device; host and CUDA answer it alike.
 *
 * A backend owns one device's memory and runs one operator at a time in the order it is asked
 * (its compute stream). Host runs an operator to its end; a device that runs ahead answers `run`
 * at once and `finish` when all is done. The struct is a table of functions with an ABI number, so
 * that a plugin opened at run time can give one.
 * Errors: ERR_RESOURCE where memory or the device gives out, ERR_INPUT where the device lacks a dtype.
 */
#ifndef EXEC_BACKEND_H
#define EXEC_BACKEND_H

#include "core/error.h"
#include "core/op.h"

#include <stddef.h>
#include <stdint.h>

enum { BACKEND_ABI = 1 };

struct optimizer_step { /* what adamw and sgd need besides their operands */
    double lr, beta1, beta2, eps, weight_decay;
    int64_t step; /* 1 for the first update */
};

struct op_call { /* one operator, resolved to memory */
    enum op_kind kind;
    enum dtype dtype; /* of every operand that is not int32 */
    const struct op_attrs *attrs;
    const struct op_shapes *shapes;
    const void *input[OP_OPERANDS_MAX];
    void *output
        [OP_OPERANDS_MAX]; /* adamw: output 0..3 are p, m, v, g in place; its inputs are the same addresses */
    const struct optimizer_step *optimizer; /* updates only */
    /* dropout: the run's seed, and the number, among all that are trained on, of the sequence that its first row is of */
    uint64_t seed;
    int64_t first_sequence;
};

struct backend {
    int abi;
    const char *name; /* "host", "cuda" */
    enum status (*open)(struct backend *b, int32_t device, struct error *err);
    void (*close)(struct backend *b);
    /* 64-byte aligned, zeroed. */
    enum status (*allocate)(struct backend *b, int64_t bytes, void **out, struct error *err);
    void (*release)(struct backend *b, void *memory);
    enum status (*upload)(struct backend *b, void *device, const void *host, int64_t bytes,
                          struct error *err);
    enum status (*download)(struct backend *b, void *host, const void *device, int64_t bytes,
                            struct error *err);
    enum status (*run)(struct backend *b, const struct op_call *call, struct error *err);
    enum status (*finish)(struct backend *b, struct error *err);
    /* CPU seconds spent inside BLAS since open, for the bench; counted only where MUSHER_BLAS_CLOCK=1 was set at open, else 0. */
    double (*blas_seconds)(struct backend *b);
    void *state; /* the backend's own */
};

/* Fills *out with the host backend's table (not opened yet). */
void backend_host(struct backend *out);

#endif
