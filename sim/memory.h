/* sim/memory.h - how many bytes are alive on each device, and when most of them were.
 *
 * A device's changes come from two sides, each nearly in ascending time: its own compute stream, and the network (a
 * receive begins, a sent buffer is free). Both are kept until nothing
 * earlier can come any more, then merged by time; at one instant bytes are given back before others are taken, because
 * that is the order in which buffers are reused. Changes wait in arrays that grow to the longest run-ahead seen.
 */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct memory; /* opaque */

/* safe: an instant before which no change of this device is still to come; asked only where much is waiting. */
struct memory *memory_new(struct arena *a, int32_t n_devices,
                          int64_t (*safe)(const void *owner, int32_t device), const void *owner);
/* What is always there; alone: no change will ever come from the network. */
void memory_always(struct memory *m, int32_t device, int64_t bytes, bool alone);
void memory_from_lane(struct memory *m, int32_t device, int64_t time_ns, int64_t bytes);
void memory_from_network(struct memory *m, int32_t device, int64_t time_ns, int64_t bytes);
/* After the last change. Of those that wait only what came until then counts: beyond it not all of them are known. */
int64_t memory_peak(struct memory *m, int32_t device, int64_t until_ns, int64_t *first_ns);

#endif
