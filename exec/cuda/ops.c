/* exec/cuda/ops.c - the table of operators: one a kind. */
#include "exec/cuda/context.h"

#define X(name) extern cuda_op cuda_op_##name __attribute__((weak));
OP_KINDS(X)
#undef X

cuda_op *const cuda_ops[OP_KIND_COUNT] = {
#define X(name) [OP_##name] = cuda_op_##name,
    OP_KINDS(X)
#undef X
};
