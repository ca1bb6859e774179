/* tools/check_cuda.h - what `musher check` says of CUDA: driver, devices, NCCL, who reaches whom. */
#ifndef TOOLS_CHECK_CUDA_H
#define TOOLS_CHECK_CUDA_H

#include "core/base/error.h"
#include "core/document/json.h"
#include "exec/backend.h"
#include "exec/plugin.h"

#include <stdint.h>

struct arena;

struct cuda_card {
    struct backend_device about;
    char pci[24];
    const char *reaches; /* "by NVLink 1 2, by PCIe 3, by the host 4" */
    /* Where it was opened: bytes that it has free beside this program's context, -1; why it could not be, NULL; in which parts its
     * multiprocessors can be had, "" */
    int64_t free_bytes;
    const char *why_not, *parts;
};

struct cuda_here {
    enum status status;   /* OK, or why there is none: ERR_NO_DEVICE, ERR_RESOURCE */
    const char *reason;   /* in words */
    const char *plugin;   /* the file; "" */
    const char *nccl;     /* "2.28.9", or why there is none */
    int32_t nccl_version; /* 0: there is none */
    int32_t n;
    struct cuda_card *cards; /* (n) */
};

/* Opens the plugin, and each device where it may (some tenths of a second). What is wrong is in *out. */
void check_cuda(struct arena *a, bool open, struct cuda_here *out);
/* "fp32, fp64, bf16" of a set of dtypes */
const char *check_cuda_dtypes(struct arena *a, uint32_t dtypes);
/* One member "cuda" of the open object. */
void check_cuda_json(struct json *j, struct arena *a, const struct cuda_here *c);

#endif
