/* exec/cuda/context.h - the per-stream context of CUDA operators, scratch, errors and data faults.
 *
 * An operator of the table (cuda_ops, one per kind) receives the context of its stream. It launches everything on
 * x->stream, in order, waits for nothing and reads nothing back. Scratch belongs to the stream; its contents end with
 * the stream's next request for scratch. Operators of different streams share nothing, so no lock is needed as long
 * as one thread at a time uses a stream. Faults: some data errors are visible to the device only (a token id outside
 * the vocabulary). A kernel records the first one in the stream's fault; the next host wait reads it and fails as the
 * host backend does. Operators issued meanwhile still run, so every kernel must ignore an invalid id: treat its row
 * as absent and touch no memory for it.
 */
#ifndef EXEC_CUDA_CONTEXT_H
#define EXEC_CUDA_CONTEXT_H

#include "core/base/error.h"
#include "core/graph/op.h"
#include "exec/backend.h"
#include "exec/cuda/fault.h"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cuda_device; /* device.h */

struct cuda_context {
    cudaStream_t stream;
    int32_t multiprocessors;  /* of the device, to size grids */
    int32_t capability;       /* major·10 + minor */
    struct cuda_fault *fault; /* of the stream, pinned; written by the device */

    /* private to device.c and blas.c */
    struct cuda_device *device;
    int32_t index; /* of the stream in the device */
    void *scratch;
    size_t scratch_bytes;
    bool prepared;       /* scratch and workspace are final */
    cublasHandle_t blas; /* created by the first product (cuda_product) */
    cublasLtHandle_t blas_lt;
    void *workspace; /* shared by cuBLAS and cuBLASLt */
    struct blas_plans *plans;
    _Atomic int32_t issued; /* enum op_kind of the last operator issued; -1 */
};

typedef enum status cuda_op(struct cuda_context *x, const struct op_call *c, struct error *err);
/* One per kind; NULL if the kind does not run on a device (ops.c gives the reason). */
extern cuda_op *const cuda_ops[OP_KIND_COUNT];

/* At least `bytes` of device memory, 256-byte aligned, valid until the stream's next call. A prepared stream has the
 * size set at set-up (core/program/device_memory.h) and returns an error for more; others grow, which a bench does in
 * its warm-up round. */
MUST_CHECK enum status cuda_scratch(struct cuda_context *x, size_t bytes, void **out,
                                    struct error *err);
/* OK for cudaSuccess; else ERR_RESOURCE "what: the reason (number)". */
enum status cuda_failed(cudaError_t e, const char *what, struct error *err);
/* Records the first of n ids outside 0 … vocabulary-1 (minus_one: -1 is valid too) as the stream's fault. ids: (n)
 * int32 on the device. One block, whose threads read eight ids at a time. */
MUST_CHECK enum status cuda_check_ids(struct cuda_context *x, enum op_kind kind, const int32_t *ids,
                                      int64_t n, int64_t vocabulary, bool minus_one,
                                      struct error *err);

/* The context of a stream of an open CUDA backend (for nccl.c). */
struct cuda_context *cuda_context_of(struct backend *b, int32_t stream);
/* Makes this backend's device current on the calling thread. Cheap if it already is. */
MUST_CHECK enum status cuda_enter(struct backend *b, struct error *err);
/* Marks the device as abandoned, because work on it will not end: nothing is waited for or freed afterwards. */
void cuda_abandon(struct backend *b);
bool cuda_is_abandoned(struct backend *b);
/* For a library that frees memory asynchronously after an abort: waits until the streams are idle; after until_ns the
 * device is abandoned. Either way the backend is unfinished (exec/backend.h). */
void cuda_await_rest(struct backend *b, int64_t until_ns);

#endif
