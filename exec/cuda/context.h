/* exec/cuda/context.h - a stream as an operator sees it, and how what CUDA says becomes ours.
 *
 * An operator of the table (cuda_ops, one a kind) is handed the context of the stream it was asked on. All that it
 * launches goes to x->stream, in order; it waits for nothing and reads nothing back. Scratch is the stream's own: what an
 * operator left there is gone once the next one asks for some. Operators of different streams share nothing, so no lock
 * is needed, as long as one thread at a time asks one stream for something.
 * Data can be wrong where only the device sees it (a token id outside the vocabulary). A kernel that finds such a thing
 * writes the stream's fault, once; whoever waits next reads it and fails as the host backend does. Until then the
 * operators behind it run on: every kernel must treat an id that is no row as if it were not there, and touch no memory
 * for it.
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
    struct cuda_fault *fault; /* the stream's, pinned; the device may write it */

    /* The rest is device.c's and blas.c's. */
    struct cuda_device *device;
    int32_t index; /* among the device's streams */
    void *scratch;
    size_t scratch_bytes;
    bool prepared;       /* scratch and workspace are all there will be */
    cublasHandle_t blas; /* made by the first product; cuda_product knows */
    cublasLtHandle_t blas_lt;
    void *workspace; /* of both */
    struct blas_plans *plans;
    _Atomic int32_t issued; /* enum op_kind of the last operator asked; -1 */
};

typedef enum status cuda_op(struct cuda_context *x, const struct op_call *c, struct error *err);
/* One a kind; NULL where a kind has no meaning on a device alone (ops.c says why). */
extern cuda_op *const cuda_ops[OP_KIND_COUNT];

/* At least `bytes` of device memory, 256-byte aligned, that hold until the stream's next call of this. A prepared stream has what it
 * was told at set-up (core/program/device_memory.h) and refuses more; others grow, which a bench does in its first round. */
MUST_CHECK enum status cuda_scratch(struct cuda_context *x, size_t bytes, void **out,
                                    struct error *err);
/* OK for cudaSuccess; else ERR_RESOURCE: "what: the reason (number)". */
enum status cuda_failed(cudaError_t e, const char *what, struct error *err);
/* Finds the first of n ids outside 0 … vocabulary-1 (minus_one: -1 is fine as well) and notes it as the stream's fault.
 * ids: (n) int32 on the device. One block, whose threads read eight ids at a time. */
MUST_CHECK enum status cuda_check_ids(struct cuda_context *x, enum op_kind kind, const int32_t *ids,
                                      int64_t n, int64_t vocabulary, bool minus_one,
                                      struct error *err);

/* The context of a stream of an open CUDA backend (nccl.c sends on its stream). */
struct cuda_context *cuda_context_of(struct backend *b, int32_t stream);
/* The calling thread talks to this backend's device from now on. Cheap where it did already. */
MUST_CHECK enum status cuda_enter(struct backend *b, struct error *err);
/* Something runs on the device that will not end: from now on nothing of it is waited for or taken back. */
void cuda_abandon(struct backend *b);
bool cuda_is_abandoned(struct backend *b);
/* A library goes on behind our back with what it frees: waits until nothing runs on our streams; where that is not so by until_ns, the device
 * is abandoned. Either way the backend is unfinished (exec/backend.h). */
void cuda_await_rest(struct backend *b, int64_t until_ns);

#endif
