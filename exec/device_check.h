/* exec/device_check.h - is a GPU what the cluster says it is? */
#ifndef EXEC_DEVICE_CHECK_H
#define EXEC_DEVICE_CHECK_H

#include "core/base/error.h"
#include "core/program/program.h"
#include "exec/backend.h"

/* Precision; name and memory too, but of emulated devices, and unless MUSHER_ANY_GPU=1. ERR_INPUT names what is otherwise. */
MUST_CHECK enum status device_check_gpu(const struct program *p,
                                                     const struct program_device *d,
                                                     const struct backend_device *is,
                                                     struct error *err);

#endif
