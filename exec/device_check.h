/* exec/device_check.h - does the GPU match the cluster file? */
#ifndef EXEC_DEVICE_CHECK_H
#define EXEC_DEVICE_CHECK_H

#include "core/base/error.h"
#include "core/program/program.h"
#include "exec/backend.h"

/* Checks precision; name and memory too, except on emulated devices or with MUSHER_ANY_GPU=1. ERR_INPUT names each
 * mismatch. */
MUST_CHECK enum status device_check_gpu(const struct program *p,
                                                     const struct program_device *d,
                                                     const struct backend_device *is,
                                                     struct error *err);

#endif
