/* tests/standin/cupti.h - the subset of CUPTI's activity API that its plugin uses, on CPU threads.
 *
 * Names, numbers, field order and meanings are those of CUPTI in CUDA 13; trailing fields that the plugin does not
 * read are omitted. Behaviour and checks: cupti.c.
 */
#ifndef TESTS_STANDIN_CUPTI_H
#define TESTS_STANDIN_CUPTI_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#define CUPTI_API_VERSION 130001
#define CUPTIAPI
#define STANDIN_RECORD __attribute__((packed, aligned(8)))

typedef struct CUctx_st *CUcontext;
typedef uint32_t CUpti_CallbackId;

/* name, number */
#define STANDIN_CUPTI_RESULTS(X)                                                                   \
    X(CUPTI_SUCCESS, 0)                                                                            \
    X(CUPTI_ERROR_INVALID_PARAMETER, 1)                                                            \
    X(CUPTI_ERROR_INVALID_OPERATION, 7)                                                            \
    X(CUPTI_ERROR_OUT_OF_MEMORY, 8)                                                                \
    X(CUPTI_ERROR_MAX_LIMIT_REACHED, 12)                                                           \
    X(CUPTI_ERROR_NOT_COMPATIBLE, 14)                                                              \
    X(CUPTI_ERROR_NOT_INITIALIZED, 15)                                                             \
    X(CUPTI_ERROR_QUEUE_EMPTY, 18)                                                                 \
    X(CUPTI_ERROR_INVALID_KIND, 21)                                                                \
    X(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, 35)                                                     \
    X(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, 39)                                          \
    X(CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES, 40)                                  \
    X(CUPTI_ERROR_UNKNOWN, 999)
typedef enum {
#define X(name, number) name = number,
    STANDIN_CUPTI_RESULTS(X)
#undef X
} CUptiResult;

typedef enum {
    CUPTI_ACTIVITY_KIND_INVALID = 0,
    CUPTI_ACTIVITY_KIND_MEMCPY = 1,
    CUPTI_ACTIVITY_KIND_MEMSET = 2,
    CUPTI_ACTIVITY_KIND_KERNEL = 3,
    CUPTI_ACTIVITY_KIND_DRIVER = 4,
    CUPTI_ACTIVITY_KIND_RUNTIME = 5,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL = 10,
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION = 39,
    CUPTI_ACTIVITY_KIND_COUNT = 52,
} CUpti_ActivityKind;

enum {
    CUPTI_ACTIVITY_MEMCPY_KIND_HTOD = 1,
    CUPTI_ACTIVITY_MEMCPY_KIND_DTOH = 2,
    CUPTI_ACTIVITY_MEMCPY_KIND_DTOD = 8,
    CUPTI_ACTIVITY_MEMCPY_KIND_HTOH = 9,
    CUPTI_ACTIVITY_FLAG_FLUSH_FORCED = 1,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventQuery_v3020 = 138,
    CUPTI_DRIVER_TRACE_CBID_cuEventQuery = 120,
};

typedef enum {
    CUPTI_EXTERNAL_CORRELATION_KIND_INVALID = 0,
    CUPTI_EXTERNAL_CORRELATION_KIND_UNKNOWN = 1,
    CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 = 3,
} CUpti_ExternalCorrelationKind;

typedef struct STANDIN_RECORD {
    CUpti_ActivityKind kind;
} CUpti_Activity;

typedef struct STANDIN_RECORD {
    CUpti_ActivityKind kind;
    uint8_t cacheConfig, sharedMemoryConfig;
    uint16_t registersPerThread;
    uint32_t partitionedGlobalCacheRequested, partitionedGlobalCacheExecuted;
    uint64_t start, end, completed;
    uint32_t deviceId, contextId, streamId;
    int32_t gridX, gridY, gridZ, blockX, blockY, blockZ;
    int32_t staticSharedMemory, dynamicSharedMemory;
    uint32_t localMemoryPerThread, localMemoryTotal, correlationId;
    int64_t gridId;
    const char *name;
} CUpti_ActivityKernel4;
typedef CUpti_ActivityKernel4 CUpti_ActivityKernel10;

typedef struct STANDIN_RECORD {
    CUpti_ActivityKind kind;
    uint8_t copyKind, srcKind, dstKind, flags;
    uint64_t bytes, start, end;
    uint32_t deviceId, contextId, streamId, correlationId, runtimeCorrelationId, pad;
} CUpti_ActivityMemcpy;
typedef CUpti_ActivityMemcpy CUpti_ActivityMemcpy6;

typedef struct STANDIN_RECORD {
    CUpti_ActivityKind kind;
    uint32_t value;
    uint64_t bytes, start, end;
    uint32_t deviceId, contextId, streamId, correlationId;
    uint16_t flags, memoryKind;
} CUpti_ActivityMemset;
typedef CUpti_ActivityMemset CUpti_ActivityMemset4;

typedef struct STANDIN_RECORD {
    CUpti_ActivityKind kind;
    CUpti_CallbackId cbid;
    uint64_t start, end;
    uint32_t processId, threadId, correlationId, returnValue;
} CUpti_ActivityAPI;

typedef struct STANDIN_RECORD {
    CUpti_ActivityKind kind;
    CUpti_ExternalCorrelationKind externalKind;
    uint64_t externalId;
    uint32_t correlationId, reserved;
} CUpti_ActivityExternalCorrelation;

typedef uint64_t (*CUpti_TimestampCallbackFunc)(void);
typedef void (*CUpti_BuffersCallbackRequestFunc)(uint8_t **buffer, size_t *size,
                                                 size_t *maxNumRecords);
typedef void (*CUpti_BuffersCallbackCompleteFunc)(CUcontext context, uint32_t streamId,
                                                  uint8_t *buffer, size_t size, size_t validSize);

CUptiResult cuptiGetResultString(CUptiResult result, const char **out);
CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc f);
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                           CUpti_BuffersCallbackCompleteFunc completed);
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind);
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind);
CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId cbid, uint8_t enable);
CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId cbid, uint8_t enable);
CUptiResult cuptiActivityFlushAll(uint32_t flag);
CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t validSize, CUpti_Activity **record);
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t streamId, size_t *out);
CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id);
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                  uint64_t *out);

#endif
