/* exec/cuda/ops.h - what the table of operators says besides its functions (context.h). */
#ifndef EXEC_CUDA_OPS_H
#define EXEC_CUDA_OPS_H

#include "exec/cuda/context.h"

/* Why a kind has no function in cuda_ops; NULL where it has one. */
extern const char *const cuda_ops_why_not[OP_KIND_COUNT];

#endif
