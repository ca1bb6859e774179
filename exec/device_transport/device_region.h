/* exec/device_transport/device_region.h - parts of an operand packed side by side, and back, in a device's memory.
 *
 * What region_copy (core/collective/collective.h) does on the host, asked of a stream: each run of the last cut dimension is one copy of
 * rows, whatever many there are.
 */
#ifndef EXEC_DEVICE_TRANSPORT_DEVICE_REGION_H
#define EXEC_DEVICE_TRANSPORT_DEVICE_REGION_H

#include "core/collective/collective.h"
#include "exec/backend.h"

/* PACK or UNPACK. O(copies): runs of the cut dimensions, times the indices of what stands before a second cut one. */
MUST_CHECK enum status device_region_copy(struct backend *b, int32_t stream, const struct region *r,
                                          enum dtype t, void *operand, void *packed,
                                          enum region_copy how, struct error *err);
/* Whether the region is one run of elements of the operand; from *first on. One without elements is, from 0 on. */
bool device_region_in_one(const struct region *r, int64_t *first);

#endif
