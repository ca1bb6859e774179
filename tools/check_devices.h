/* tools/check_devices.h - what `musher check` says of a backend's devices: driver, devices, communicators, who reaches whom. */
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
    const char *reaches; /* "by NVLink 1 2, by PCIe 3, by the host 4" */
    /* Where it was opened: bytes that it has free beside this program's context, -1; why it could not be, NULL; in which parts its
     * multiprocessors can be had, "" */
    int64_t free_bytes;
    const char *why_not, *parts;
};

struct devices_here {     /* of one backend */
    const char *kind;     /* backend: "cuda" */
    enum status status;   /* OK, or why there is none: ERR_NO_DEVICE, ERR_RESOURCE */
    const char *reason;   /* in words */
    const char *plugin;   /* the file; "" */
    const char *comm;     /* of its communicators: "2.28.9", or why they do not load; "": the backend has none */
    int32_t comm_version; /* 0: there are none */
    int32_t n;
    struct device_here *devices; /* (n) */
};

/* Opens the plugin, and each device where it may (some tenths of a second). What is wrong is in *out. */
void check_devices(struct arena *a, const char *kind, bool open, struct devices_here *out);
/* "fp32, fp64, bf16" of a set of dtypes */
const char *check_devices_dtypes(struct arena *a, uint32_t dtypes);
/* One member of the open object, by its kind. */
void check_devices_json(struct json *j, struct arena *a, const struct devices_here *c);

#endif
