/* exec/cuda/nccl.h - messages and collectives between CUDA devices by NCCL (struct device_comm). */
#ifndef EXEC_CUDA_NCCL_H
#define EXEC_CUDA_NCCL_H

#include "exec/device_transport/device_comm.h"

/* Loads NCCL at the first call; any thread. NULL, with the reason in err, if the library is missing or too old. */
const struct device_comm *cuda_device_comm(struct error *err);

#endif
