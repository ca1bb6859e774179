/* exec/host/kernels_host.h - every operator of the table as plain code for one CPU thread.
 *
 * Each kernel is written once over `REAL` (files kernels_host_*.inc) and compiled twice, for fp32
 * and fp64; two tables, one a dtype, are indexed by the operator's kind. A kernel works on whatever
 * memory the call names and keeps nothing but scratch in the context.
 * Repeatable bit for bit: sums run in a fixed order that depends on shapes only, never on
 * addresses; BLAS runs on one thread. Shapes are trusted (op_infer has seen them); token ids are
 * data and are checked.
 */
#ifndef EXEC_HOST_KERNELS_HOST_H
#define EXEC_HOST_KERNELS_HOST_H

#include "core/base/error.h"
#include "exec/backend.h"
#include "exec/op_values.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

struct host_rotary { /* sines of the last rotary call; layers ask for the same ones */
    struct arena *arena;
    enum dtype dtype;
    int64_t positions;
    int32_t head_dim;
    double theta;
    struct rope_scaling rope;
    const void *cosine, *sine; /* (positions, head_dim/2) of dtype */
};

struct host_context {
    struct arena *scratch_arena;
    unsigned char *scratch; /* 64-byte aligned, holds nothing between calls */
    size_t scratch_bytes;
    struct arena *wide_arena; /* what operands in half precision are while they are worked on */
    float *wide;
    size_t wide_bytes;
    struct host_rotary rotary;
    bool blas_clock;
    double blas_s; /* thread CPU time inside BLAS */
};

void host_context_init(struct host_context *x);
void host_context_free(struct host_context *x);

/* Runs one operator to its end; bf16 and fp16 by kernels_host_half.c. ERR_INPUT for a dtype of integers, a matrix too large
 * for BLAS, a token id outside the vocabulary. */
MUST_CHECK enum status kernels_host_run(struct host_context *x, const struct op_call *c,
                                        struct error *err);

/* A call in bf16 or fp16. */
MUST_CHECK enum status kernels_host_half(struct host_context *x, const struct op_call *c,
                                         struct error *err);

/* --- for the kernels --- */

typedef enum status host_kernel(struct host_context *x, const struct op_call *c, struct error *err);
extern host_kernel *const kernels_host_fp32[OP_KIND_COUNT];
extern host_kernel *const kernels_host_fp64[OP_KIND_COUNT];

/* At least `bytes`, aligned to 64; the one before it is gone. */
void *host_scratch(struct host_context *x, size_t bytes);
/* 0 <= ids[i] < vocabulary for all i < n, else ERR_INPUT that names the first that is not. */
MUST_CHECK enum status host_check_ids(enum op_kind kind, const int32_t *ids, int64_t n,
                                      int64_t vocabulary, struct error *err);
/* The same of targets, input 1 of the call; -1 is fine where the attributes say that only some count. */
MUST_CHECK enum status host_check_targets(const struct op_call *c, int64_t n, int64_t vocabulary,
                                          struct error *err);
/* Thread CPU time where BLAS time is asked for, else 0; host_blas_end adds what passed since. */
double host_blas_begin(const struct host_context *x);
void host_blas_end(struct host_context *x, double begin_s);

#endif
