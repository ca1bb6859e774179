/* exec/host/kernels_host.h - every operator of the table as portable code for one CPU thread.
 *
 * Each kernel is written once over `REAL` (files kernels_host_*.inc) and compiled twice, for fp32 and fp64; two
 * tables, one per dtype, are indexed by operator kind. A kernel works on the memory of its call; the context holds
 * scratch only. Bitwise repeatable: sums have a fixed order that depends on shapes, never on addresses; BLAS runs on
 * one thread. Shapes are trusted, because op_infer has checked them; token ids are data and are checked.
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

/* Sines and cosines of a rotary call. The tables of the last calls are kept, because all layers use the same one, or one of two (Gemma 3). */
enum { HOST_ROTARY_TABLES = 2 };
struct host_rotary {
    struct arena *arena;
    enum dtype dtype;
    int64_t positions;
    int32_t head_dim, rotary_dim;
    double theta;
    struct rope_scaling rope;
    const void *cosine, *sine; /* (positions, pairs) of dtype */
};

struct host_context {
    struct arena *scratch_arena;
    unsigned char *scratch; /* 64-byte aligned; contents end with the call */
    size_t scratch_bytes;
    struct arena *wide_arena; /* half-precision operands converted to fp32 */
    float *wide;
    size_t wide_bytes;
    struct host_rotary rotary[HOST_ROTARY_TABLES];
    int32_t rotary_next;
    bool blas_clock;
    double blas_s; /* thread CPU time inside BLAS */
};

void host_context_init(struct host_context *x);
void host_context_free(struct host_context *x);

/* Runs one operator to its end; bf16 and fp16 by kernels_host_half.c. ERR_INPUT: an integer dtype, a matrix too large
 * for BLAS, or a token id outside the vocabulary. */
MUST_CHECK enum status kernels_host_run(struct host_context *x, const struct op_call *c,
                                        struct error *err);

/* A call in bf16 or fp16. */
MUST_CHECK enum status kernels_host_half(struct host_context *x, const struct op_call *c,
                                         struct error *err);

/* --- for the kernels --- */

typedef enum status host_kernel(struct host_context *x, const struct op_call *c, struct error *err);
extern host_kernel *const kernels_host_fp32[OP_KIND_COUNT];
extern host_kernel *const kernels_host_fp64[OP_KIND_COUNT];

/* At least `bytes`, 64-byte aligned; invalidates the previous one. */
void *host_scratch(struct host_context *x, size_t bytes);
/* ERR_INPUT with the first id for which not 0 <= ids[i] < vocabulary, i < n. */
MUST_CHECK enum status host_check_ids(enum op_kind kind, const int32_t *ids, int64_t n,
                                      int64_t vocabulary, struct error *err);
/* The same for targets, input 1 of the call; -1 is allowed if attrs.counted is set. */
MUST_CHECK enum status host_check_targets(const struct op_call *c, int64_t n, int64_t vocabulary,
                                          struct error *err);
/* Thread CPU time if BLAS time is measured, else 0; host_blas_end adds the time since. */
double host_blas_begin(const struct host_context *x);
void host_blas_end(struct host_context *x, double begin_s);

#endif
