/* exec/device_transport/nccl_env.h - what NCCL reads in the environment, set before its first call in this process. */
#ifndef EXEC_DEVICE_TRANSPORT_NCCL_ENV_H
#define EXEC_DEVICE_TRANSPORT_NCCL_ENV_H

#include "core/program/program.h"

/* Connections are made when a communicator is, not by the first call that needs one: that call would wait for its peer's, and hold
 * up the thread that has to make that peer go on. Where two lanes of the program are the same GPU of the same host, which
 * the library refuses, this rank also passes for a host of its own and talks over the loopback: for correctness alone, emulated,
 * never to be timed. What the user has set stays, but for the host's name. */
void nccl_env_set(const struct program *p, int32_t rank);
/* Before the first call of CUDA: where several GPUs work together their kernels are loaded at once, not each when it is first
 * launched. Loading may wait for whatever runs on the device, and a receive that runs there may wait for us. */
void nccl_env_before(const struct program *p);
bool nccl_env_shares_gpu(const struct program *p);

#endif
