/* tests/gpu/collectives.h - every collective of exec/device_transport/device_comm.h between the ranks of one GPU,
 * against exact sums.
 *
 * Inputs are small integers and weights are quarters, so that every dtype's sums are exact in any order: each element
 * must match bit for bit. Shards are uneven, and one rank's is empty. Outputs, and the memory after them, are filled
 * before.
 */
#ifndef TESTS_GPU_COLLECTIVES_H
#define TESTS_GPU_COLLECTIVES_H

#include "core/base/error.h"
#include "core/program/program.h"

#include <stdint.h>

/* As one rank of p's devices, by themselves one communicator. *calls: collectives that were looked at.
 * ERR_TOLERANCE: which call, dtype, size and element is wrong; what opening devices and communicators says else. */
MUST_CHECK enum status collectives_check(const struct program *p, int64_t *calls, struct error *err);

#endif
