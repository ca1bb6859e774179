/* tests/gpu/collectives.h - every collective of exec/device_transport/device_comm.h between the ranks of one GPU, beside exact sums.
 *
 * Numbers are small integers and weights are quarters, so that every dtype's sums are exact whatever their order: each element must
 * be that number, to the bit. Parts are uneven, and one rank has none. All bits of outputs, and of what lies behind them, are set before.
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
