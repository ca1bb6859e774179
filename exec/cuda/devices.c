/* exec/cuda/devices.c - enumerates devices before any is open.
 *
 * No driver, a driver older than the toolkit, the toolkit's stub instead of a driver, no GPU: each is "no CUDA
 * device" with its reason, and none is an error of the host. CUDA leaves the count untouched then.
 */
#include "exec/cuda/blas.h"
#include "exec/cuda/device.h"

#include <stdio.h>
#include <string.h>

/* "13.0" of 13000 */
static const char *dotted(char out[16], int version)
{
    snprintf(out, 16, "%d.%d", version / 1000, version % 1000 / 10);
    return out;
}

static enum status no_device(cudaError_t e, struct error *err)
{
    char driver[16], runtime[16];
    int version = 0;
    (void)cudaDriverGetVersion(&version);
    dotted(driver, version);
    dotted(runtime, CUDART_VERSION);
    if (e == cudaErrorInsufficientDriver && version > 0)
        return error_set(err, ERR_NO_DEVICE,
                         "no CUDA device: the driver is for CUDA %s, this plugin for %s (%d)",
                         driver, runtime, (int)e);
    if (e == cudaErrorInsufficientDriver)
        return error_set(err, ERR_NO_DEVICE, "no CUDA device: no NVIDIA driver is loaded (%d)",
                         (int)e);
    if (e == cudaErrorStubLibrary)
        return error_set(err, ERR_NO_DEVICE,
                         "no CUDA device: libcuda is the toolkit's stub, not the driver's library (%d)",
                         (int)e);
    return error_set(err, ERR_NO_DEVICE, "no CUDA device: the driver (CUDA %s) reports no GPU%s (%d)",
                     driver, e == cudaSuccess ? "" : "; is CUDA_VISIBLE_DEVICES set?", (int)e);
}

enum status cuda_count(struct backend *b, int32_t *out, struct error *err)
{
    int n = 0;
    (void)b;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e == cudaErrorInsufficientDriver || e == cudaErrorStubLibrary || e == cudaErrorNoDevice ||
        (e == cudaSuccess && n == 0)) {
        (void)cudaGetLastError();
        return no_device(e, err);
    }
    TRY(cuda_failed(e, "cudaGetDeviceCount", err));
    *out = n;
    return OK;
}

static enum status attribute(enum cudaDeviceAttr which, int32_t device, int *out, struct error *err)
{
    return cuda_failed(cudaDeviceGetAttribute(out, which, device), "cudaDeviceGetAttribute", err);
}

static enum status check_index(struct backend *b, int32_t device, struct error *err)
{
    int32_t n = 0;
    TRY(cuda_count(b, &n, err));
    if (device >= 0 && device < n) return OK;
    return error_set(err, ERR_NO_DEVICE, "no CUDA device %d: there %s %d, counted from 0", device,
                     n == 1 ? "is" : "are", n);
}

/* bf16 requires compute capability 8.0; every GPU of these kernels has the others. */
static uint32_t dtypes_of(int32_t capability)
{
    uint32_t t = 1u << DTYPE_fp32 | 1u << DTYPE_fp64 | 1u << DTYPE_fp16;
    return capability >= 80 ? t | 1u << DTYPE_bf16 : t;
}

enum status cuda_describe(struct backend *b, int32_t device, struct backend_device *out,
                          struct error *err)
{
    int major = 0, minor = 0, driver = 0, runtime = 0;
    char of_driver[16], of_runtime[16];
    struct cudaDeviceProp p;
    TRY(check_index(b, device, err));
    TRY(cuda_failed(cudaGetDeviceProperties(&p, device), "cudaGetDeviceProperties", err));
    TRY(attribute(cudaDevAttrComputeCapabilityMajor, device, &major, err));
    TRY(attribute(cudaDevAttrComputeCapabilityMinor, device, &minor, err));
    TRY(cuda_failed(cudaDriverGetVersion(&driver), "cudaDriverGetVersion", err));
    TRY(cuda_failed(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion", err));
    *out = (struct backend_device){.memory_bytes = (int64_t)p.totalGlobalMem,
                                   .capability = 10 * major + minor};
    out->dtypes = dtypes_of(out->capability);
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, p.name);
    int blas = (int)cuda_product_version();
    snprintf(out->version, sizeof out->version, "driver for CUDA %s, runtime %s, cuBLAS %d.%d.%d",
             dotted(of_driver, driver), dotted(of_runtime, runtime), blas / 10000, blas / 100 % 100,
             blas % 100);
    return OK;
}

enum status cuda_joined(int32_t a, int32_t b, struct plugin_joined *out, struct error *err)
{
    int reach = 0, atomics = 0;
    *out = (struct plugin_joined){0};
    TRY(check_index(NULL, a, err));
    TRY(check_index(NULL, b, err));
    TRY(cuda_failed(cudaDeviceGetPCIBusId(out->pci[0], sizeof out->pci[0], a),
                    "cudaDeviceGetPCIBusId", err));
    TRY(cuda_failed(cudaDeviceGetPCIBusId(out->pci[1], sizeof out->pci[1], b),
                    "cudaDeviceGetPCIBusId", err));
    if (a == b) return OK;
    TRY(cuda_failed(cudaDeviceGetP2PAttribute(&reach, cudaDevP2PAttrAccessSupported, a, b),
                    "cudaDeviceGetP2PAttribute", err));
    TRY(cuda_failed(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, a, b),
                    "cudaDeviceGetP2PAttribute", err));
    out->reach = reach != 0;
    out->atomics = atomics != 0;
    return OK;
}
