/* tests/standin/cuda.h - the subset of CUDA's driver API for green contexts, on CPU threads.
 *
 * No program links the driver: its functions are looked up by name (cudaGetDriverEntryPointByVersion), so this header
 * has types and no declarations. Behaviour and checks: driver.c.
 */
#ifndef TESTS_STANDIN_CUDA_H
#define TESTS_STANDIN_CUDA_H

#include <stddef.h>

#define CUDA_VERSION 13000

typedef int CUdevice;
typedef struct CUstream_st *CUstream;
typedef struct CUgreenCtx_st *CUgreenCtx;
typedef struct CUdevResourceDesc_st *CUdevResourceDesc;

typedef enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_INVALID_RESOURCE_TYPE = 914,
    CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION = 915,
} CUresult;

enum { CU_STREAM_NON_BLOCKING = 1, CU_GREEN_CTX_DEFAULT_STREAM = 1 };

typedef enum {
    CU_DEV_RESOURCE_TYPE_INVALID = 0,
    CU_DEV_RESOURCE_TYPE_SM = 1,
} CUdevResourceType;

typedef struct {
    unsigned int smCount, minSmPartitionSize, smCoscheduledAlignment;
} CUdevSmResource;

typedef struct {
    CUdevResourceType type;
    unsigned char padding[92];
    union {
        CUdevSmResource sm;
        unsigned char room[48];
    };
} CUdevResource;

#endif
