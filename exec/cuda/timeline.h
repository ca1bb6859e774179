/* exec/cuda/timeline.h - converts a device's events to CLOCK_MONOTONIC.
 *
 * CUDA reports only the time between two events, by the device clock. An anchor is an event on an idle stream whose
 * host instant lies between two known readings; every other event is timed relative to it. Both clocks drift by some
 * ppm, and the elapsed time is a float of milliseconds, so the anchor is renewed every second: the old anchor
 * predicts the new one's instant, the two readings around it bound it, and the prediction is clamped to the bounds.
 * So times neither jump nor drift, and the correction becomes the rate between the clocks. Thread-safe. Errors are
 * CUDA's.
 */
#ifndef EXEC_CUDA_TIMELINE_H
#define EXEC_CUDA_TIMELINE_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct timeline {
    pthread_mutex_t mutex;
    cudaStream_t stream; /* reserved for anchors */
    cudaEvent_t anchor, spare[2];
    int64_t at_ns;    /* host instant of the anchor */
    int64_t first_ns; /* host instant of the first anchor */
    double device_ns; /* from the first anchor to this one, by the device clock */
    double rate;      /* host ns per device ns */
};

/* *t must be zeroed; timeline_close frees whatever was created. Some 100 us. */
cudaError_t timeline_open(struct timeline *t, int priority);
void timeline_close(struct timeline *t);
/* The host instant of a completed timed event. About 1 us; 50 us once per second. */
cudaError_t timeline_at(struct timeline *t, cudaEvent_t event, int64_t *out_ns);

#endif
