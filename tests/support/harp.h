/* tests/support/harp.h - pipelines with slow links whose makespans HARP (arXiv 2509.24859) gives, checked by hand.
 *
 * Equal stages, fused B; a link is occupied for c, first in first out, full duplex, no latency. Any unit of time.
 */
#ifndef TESTS_SUPPORT_HARP_H
#define TESTS_SUPPORT_HARP_H

#include <stdint.h>

static const struct harp_golden {
    int32_t stages, microbatches;
    double f, b, c[3];
    int32_t warmup[4]; /* forwards in flight */
    double makespan;
} harp_goldens[] = {
    {2, 6, 1, 2, {1}, {3, 1}, 23},
    {3, 12, 1, 2, {0, 2}, {3, 2, 1}, 66},
    {3, 12, 1, 2, {0, 2}, {5, 4, 1}, 46},
    {4, 16, 1, 2, {0, 1.5, 0}, {4, 3, 2, 1}, 81},
    {4, 16, 1, 2, {0, 1.5, 0}, {5, 4, 2, 1}, 60},
    {4, 16, 1, 2, {0, 1.5, 0}, {7, 5, 3, 1}, 60},
    {2, 8, .25, .75, {.3}, {2, 1}, 11.4},
    {2, 8, .25, .75, {.3}, {3, 1}, 9.6},
    {2, 8, .25, .75, {.7}, {2, 1}, 14.6},
    {2, 8, .25, .75, {.7}, {3, 1}, 11.2},
    {2, 8, .25, .75, {.7}, {4, 1}, 10.4},
};

#endif
