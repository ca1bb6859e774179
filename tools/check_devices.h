/* tools/check_devices.h - report of `musher check` about the devices of a backend: driver, devices, communication library, peer routes. */
#ifndef TOOLS_CHECK_DEVICES_H
#define TOOLS_CHECK_DEVICES_H

#include "core/base/error.h"
#include "core/document/json.h"
#include "exec/backend.h"
#include "exec/plugin.h"

#include <stdint.h>

struct arena;

struct device_here {
    struct backend_device about;
    char pci[24];
    const char *reaches; /* routes to the other devices: "by NVLink 1 2, by PCIe 3, by the host 4" */
    /* Of an opened device: free bytes with this program's context open (-1: not opened), the reason if opening failed (NULL: none),
     * the sizes into which its multiprocessors can be partitioned ("": none) */
    int64_t free_bytes;
    const char *why_not, *parts;
};

struct devices_here {     /* of one backend */
    const char *kind;     /* backend: "cuda" */
    enum status status;   /* OK, ERR_NO_DEVICE or ERR_RESOURCE */
    const char *reason;   /* text of a status that is not OK */
    const char *plugin;   /* file of the plugin; "" */
    const char *comm;     /* communication library: its version "2.28.9", or the load error; "": the backend has none */
    int32_t comm_version; /* 0: no library */
    int32_t n;
    struct device_here *devices; /* (n) */
};

/* Opens the plugin and, if `open`, each device (some tenths of a second). Failures are reported in *out. */
void check_devices(struct arena *a, const char *kind, bool open, struct devices_here *out);
/* "fp32, fp64, bf16" from a bit set of dtypes. */
const char *check_devices_dtypes(struct arena *a, uint32_t dtypes);
/* Adds one member, named by the backend, to the open object. */
void check_devices_json(struct json *j, struct arena *a, const struct devices_here *c);

#endif
