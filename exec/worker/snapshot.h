/* exec/worker/snapshot.h - copies of a rank's device memory in host memory, from which a checkpoint is written while training goes on (the
 * snapshot of CheckFreq, Mohan et al., FAST 2021).
 *
 * A snapshot has one owner at a time: the compute thread from snapshot_begin to snapshot_settle, then the thread that writes it. The memory
 * is used again by the next one, so a rank never has two. That of a discrete device is page-locked, and a stream of its own
 * copies; that of a host is copied at once. */
#ifndef EXEC_WORKER_SNAPSHOT_H
#define EXEC_WORKER_SNAPSHOT_H

#include "core/base/error.h"
#include "core/graph/op.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rank;
struct snapshot_block;
struct snapshot_values;

/* All fields belong to snapshot.c. */
struct snapshot {
    struct rank *r;
    struct snapshot_block *blocks;
    struct snapshot_values *values; /* to be finite */
    size_t n_blocks, blocks_capacity, n_values, values_capacity;
    int32_t stream, event, copied; /* of a discrete device */
    bool has_stream, measures;
    int64_t measured;
};

void snapshot_init(struct snapshot *s, struct rank *r);
/* Before the first step, because an allocation of page-locked memory waits for all that a device has to do, and receives for the next step are
 * posted when a checkpoint is copied: the memory and the stream of a discrete device. 0 bytes: neither; what does not fit is copied to other memory by
 * and by. ERR_RESOURCE. */
MUST_CHECK enum status snapshot_reserve(struct snapshot *s, int64_t bytes, struct error *err);
/* From now on until snapshot_reserve copies are counted but not made: *out is not to be read. measured: bytes since then. */
void snapshot_measure(struct snapshot *s);
int64_t snapshot_measured(const struct snapshot *s);
/* Forgets the copies before. */
void snapshot_begin(struct snapshot *s);
/* A copy of bytes of device memory; its contents are there after snapshot_settle. ERR_RESOURCE: no memory, or the device fails. */
MUST_CHECK enum status snapshot_copy(struct snapshot *s, const void *device, int64_t bytes, void **out, struct error *err);
/* A checkpoint is written only if these n values of a copy are finite. */
void snapshot_require_finite(struct snapshot *s, const void *values, enum dtype t, int64_t n);
/* Waits for the copies; the device's memory may change afterwards. */
MUST_CHECK enum status snapshot_settle(struct snapshot *s, struct error *err);
bool snapshot_finite(const struct snapshot *s); /* after snapshot_settle. O(values) */
int64_t snapshot_bytes(const struct snapshot *s); /* host memory */
/* Before the device is closed. */
void snapshot_close(struct snapshot *s);

#endif
