/* traces/stats.h - breakdown of one steady iteration's time, device by device.
 *
 * The window reaches from the end of the last update of the last step but one to that of the last step (from 0 in a trace of one
 * step); with local SGD it is the last period. If a simulated step stands for several, its times count as often, between the device's own
 * ends of steps. All times use the spans' own clock, clipped to the window; overlapping spans of a stream count once. busy + waiting for a
 * message + waiting for a collective + bubble = the window.
 */
#ifndef TRACES_STATS_H
#define TRACES_STATS_H

#include "traces/trace.h"

enum { STATS_F, STATS_B, STATS_I, STATS_W, STATS_U, STATS_PHASES };

struct stats_device {
    int64_t busy_ns, idle_ns;       /* of the compute stream; busy + idle = the window */
    int64_t phase_ns[STATS_PHASES]; /* compute spans by call: F, B, I, W, U */
    /* time of each stream, concurrent with compute or not */
    int64_t send_ns, receive_ns, collective_ns;
    int64_t idle_message_ns;    /* idle while a message was in flight to this device */
    int64_t idle_collective_ns; /* idle while only a collective ran */
    int64_t bubble_ns;          /* idle with nothing in flight: pure bubble of the schedule */
};
struct stats {
    int64_t begin_ns, end_ns;
    int64_t window_ns; /* their difference, or with steps that stand for several the time of all */
    int32_t n_devices;
    struct stats_device *devices;
};
void stats_of_trace(struct arena *a, const struct trace *t, struct stats *out); /* O(n log n + n · simulated steps of a period) */

#endif
