/* exec/activity.h - kernels, copies and fills of a device as recorded by the vendor's profiler (CUPTI): a plugin
 * opened on request.
 *
 * CUDA events give the duration of an operator, not its kernels. CUPTI records each kernel with its name, its begin
 * and end and, by a correlation id, the operator that launched it. CUPTI may be missing or forbidden and adds
 * overhead, so it has a plugin of its own, opened for `run --kernels` only. Rejected: linking CUPTI into the CUDA
 * plugin, which could then not be opened on hosts without CUPTI. The search order is that of the CUDA plugin
 * (plugin_file.h), with the name libmusher_cupti.so or MUSHER_CUPTI_PLUGIN. The plugin stays open until the program
 * ends. A process has at most one session, which covers all its devices.
 */
#ifndef EXEC_ACTIVITY_H
#define EXEC_ACTIVITY_H

#include "core/base/error.h"

#include <stddef.h>
#include <stdint.h>

enum { ACTIVITY_ABI = 1 };

struct activity_record {
    uint64_t under;            /* id that the launching thread had entered; 0: none or unknown */
    int64_t begin_ns, end_ns;  /* CLOCK_MONOTONIC, by the profiler's fit of the device clock; accurate to some us */
    int64_t bytes;             /* of a copy or a fill; 0 for a kernel */
    const char *name;          /* readable kernel name, or "copy to device", "copy to host", "copy on device", "fill" */
};

struct activity_log {
    const struct activity_record *records; /* (n), roughly ordered by end */
    size_t n;
    int64_t lost; /* activities without a record: dropped, or without timestamps */
};

struct activity {
    int32_t abi; /* ACTIVITY_ABI; always the first field */
    int32_t record_bytes, log_bytes, activity_bytes;
    /* Begins a session; preferably before the device is opened, because modules loaded earlier are instrumented late.
     * ERR_RESOURCE with CUPTI's reason (no permission, another profiler is attached, …): there is no session then. */
    enum status (*open)(struct error *err);
    /* Work that the calling thread issues between enter and leave gets this id (from 1 on). Not nested. About 0.1 us
     * each. */
    enum status (*enter)(uint64_t id, struct error *err);
    enum status (*leave)(struct error *err);
    /* All activities that have ended since open. Devices must be idle, because records of running work are lost. The
     * session owns the log. ERR_RESOURCE if part of it is unavailable. O(n log n). */
    enum status (*collect)(struct activity_log *out, struct error *err);
    void (*close)(void); /* ends the session; no effect without one */
};
#define ACTIVITY_NUMBERS                                                                           \
    .abi = ACTIVITY_ABI, .record_bytes = (int32_t)sizeof(struct activity_record),                  \
    .log_bytes = (int32_t)sizeof(struct activity_log),                                             \
    .activity_bytes = (int32_t)sizeof(struct activity)
typedef const struct activity *activity_entry(void);
#define ACTIVITY_ENTRY "musher_activity"

/* The plugin of this name (`profiler` of struct backend), opened once per process; no session yet. ERR_NO_DEVICE: it
 * is missing, cannot be opened (CUPTI is not installed) or was built from other sources. Thread-safe. */
MUST_CHECK enum status activity_plugin(const char *name, const struct activity **out, struct error *err);

#endif
