/* exec/cuda/timeline.h - instants of a device's events as CLOCK_MONOTONIC.
 *
 * CUDA tells only how long one event came after another, by the device's own clock. An anchor is an event on an idle stream
 * whose instant on the host's clock is known to lie between two readings; every other event is told from the anchor. Both
 * clocks drift by some parts in a million, and the elapsed time comes as a float of milliseconds, so the anchor is renewed
 * every second: the old anchor predicts the new one's instant, the two readings around it bound it, and the prediction is
 * moved no further than into these bounds. So times neither jump nor run away, and what the bounds have moved it by becomes
 * the rate between the clocks.
 * Thread-safe. Errors are CUDA's own.
 */
#ifndef EXEC_CUDA_TIMELINE_H
#define EXEC_CUDA_TIMELINE_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct timeline {
    pthread_mutex_t mutex;
    cudaStream_t stream; /* nothing else runs on it */
    cudaEvent_t anchor, spare[2];
    int64_t at_ns;    /* of the anchor */
    int64_t first_ns; /* of the first anchor */
    double device_ns; /* from the first anchor to this one, by the device */
    double rate;      /* host ns a device ns */
};

/* All zeros before; timeline_close takes back whatever was made. Takes some 100 us. */
cudaError_t timeline_open(struct timeline *t, int priority);
void timeline_close(struct timeline *t);
/* When a timed event, that is done, was reached. About 1 us; 50 us once a second. */
cudaError_t timeline_at(struct timeline *t, cudaEvent_t event, int64_t *out_ns);

#endif
