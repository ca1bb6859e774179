/* exec/cuda/ops.h - reasons why operator kinds do not run on a device (functions: context.h). */
#ifndef EXEC_CUDA_OPS_H
#define EXEC_CUDA_OPS_H

#include "exec/cuda/context.h"

/* The reason why a kind has no function in cuda_ops; NULL if it has one. */
extern const char *const cuda_ops_why_not[OP_KIND_COUNT];

#endif
