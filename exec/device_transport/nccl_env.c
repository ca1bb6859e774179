#include "exec/device_transport/nccl_env.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool nccl_env_shares_gpu(const struct program *p)
{
    for (int32_t i = 0; i < p->n_devices; i++)
        for (int32_t k = 0; k < i; k++) {
            const struct program_device *x = &p->devices[i], *y = &p->devices[k];
            if (x->index == y->index && !program_device_is_host(x) && !program_device_is_host(y) &&
                !strcmp(x->kind, y->kind) && x->host && y->host && !strcmp(x->host, y->host))
                return true;
        }
    return false;
}

void nccl_env_set(const struct program *p, int32_t rank)
{
    static const char *const loopback[][2] = {
        {"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_IB_DISABLE", "1"},   {"NCCL_NVLS_ENABLE", "0"},
        {"NCCL_MNNVL_ENABLE", "0"},   {"NCCL_CUMEM_ENABLE", "0"}, {"NCCL_MAX_CTAS", "2"}};
    char name[64];
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
    if (!nccl_env_shares_gpu(p)) return;
    for (size_t i = 0; i < sizeof loopback / sizeof *loopback; i++)
        setenv(loopback[i][0], loopback[i][1], 0);
    snprintf(name, sizeof name, "musher-rank-%" PRId32, rank);
    setenv("NCCL_HOSTID", name, 1);
}

void nccl_env_before(const struct program *p)
{
    int32_t gpus = 0;
    for (int32_t i = 0; i < p->n_devices; i++) gpus += !program_device_is_host(&p->devices[i]);
    if (gpus > 1 && !p->emulated) setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}
