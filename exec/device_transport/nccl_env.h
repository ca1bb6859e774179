/* exec/device_transport/nccl_env.h - NCCL's environment variables, set before its first call in this process. */
#ifndef EXEC_DEVICE_TRANSPORT_NCCL_ENV_H
#define EXEC_DEVICE_TRANSPORT_NCCL_ENV_H

#include "core/program/program.h"

/* Connections are made with the communicator, not lazily by its first call: that call would wait for its peer and
 * block the thread that the peer depends on. If two lanes of the program are the same GPU of one host, which NCCL
 * refuses, each rank also poses as a separate host and communicates over loopback: correct, emulated, never to be
 * timed. Variables set by the user stay, except the host name. */
void nccl_env_set(const struct program *p, int32_t rank);
/* Before the first CUDA call: if several GPUs cooperate, kernels are loaded eagerly instead of at their first launch,
 * because loading may wait for running work, and a receive that runs there may wait for this rank: a deadlock. */
void nccl_env_before(const struct program *p);
bool nccl_env_shares_gpu(const struct program *p);

#endif
