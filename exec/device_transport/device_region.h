/* exec/device_transport/device_region.h - packs and unpacks a region of an operand in device memory.
 *
 * The device version of region_copy (core/collective/collective.h): each run of the last cut dimension is one strided
 * copy of all its rows.
 */
#ifndef EXEC_DEVICE_TRANSPORT_DEVICE_REGION_H
#define EXEC_DEVICE_TRANSPORT_DEVICE_REGION_H

#include "core/collective/collective.h"
#include "exec/backend.h"

/* PACK or UNPACK. O(copies): runs of the cut dimensions × indices of the dimensions before a second cut one. */
MUST_CHECK enum status device_region_copy(struct backend *b, int32_t stream, const struct region *r,
                                          enum dtype t, void *operand, void *packed,
                                          enum region_copy how, struct error *err);
/* Whether the region is contiguous in the operand, from element *first on. An empty region is, from 0 on. */
bool device_region_in_one(const struct region *r, int64_t *first);

#endif
