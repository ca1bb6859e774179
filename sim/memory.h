/* sim/memory.h - live bytes of each device over simulated time, and their peak.
 *
 * A device's changes come from two sources, each nearly in ascending time: its compute stream and the network (a receive
 * begins, a sent buffer is free). Changes are kept until no earlier one can follow, then merged by time. At one instant
 * releases precede allocations, because buffers are reused in that order. Pending changes wait in arrays that grow to
 * the longest run-ahead of a lane.
 */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct memory; /* opaque */

/* safe: an instant before which no change of the device can follow; called only when many changes are pending. */
struct memory *memory_new(struct arena *a, int32_t n_devices,
                          int64_t (*safe)(const void *owner, int32_t device), const void *owner);
/* Resident bytes; alone: no change will come from the network. */
void memory_always(struct memory *m, int32_t device, int64_t bytes, bool alone);
void memory_from_lane(struct memory *m, int32_t device, int64_t time_ns, int64_t bytes);
void memory_from_network(struct memory *m, int32_t device, int64_t time_ns, int64_t bytes);
/* Call after the last change. Pending changes after until_ns are ignored, because not all of them are known. */
int64_t memory_peak(struct memory *m, int32_t device, int64_t until_ns, int64_t *first_ns);

#endif
