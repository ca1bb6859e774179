/* exec/cuda/nccl.h - messages and collectives between CUDA devices, by NCCL. */
#ifndef EXEC_CUDA_NCCL_H
#define EXEC_CUDA_NCCL_H

#include "exec/device_transport/device_comm.h"

/* NULL, with the reason in err, where the library is absent or too old. Loads it at the first call; any thread. */
const struct device_comm *cuda_device_comm(struct error *err);

#endif
