/* exec/activity.h - kernels, copies and fills of a device as its maker's profiler saw them: a second plugin, opened when asked for.
 *
 * CUDA events tell how long an operator took, not what ran in it. CUPTI tells that: each kernel with its name and instants, and under
 * which operator it was launched. It is a library of its own, may be missing or forbidden, and costs something, so it has a plugin of
 * its own that nobody opens who was not asked (`run --kernels`). Rejected: to link it into the CUDA plugin, which would then not
 * open where CUPTI is not installed.
 * Looked for like the CUDA plugin (plugin_file.h), by the name libmusher_cupti.so or MUSHER_CUPTI_PLUGIN; it stays open until the
 * program ends. One session at a time in a process, which sees all devices of it.
 */
#ifndef EXEC_ACTIVITY_H
#define EXEC_ACTIVITY_H

#include "core/base/error.h"

#include <stddef.h>
#include <stdint.h>

enum { ACTIVITY_ABI = 1 };

struct activity_record {
    uint64_t under;            /* what its thread had entered when it asked for this; 0: nothing, or nobody knows */
    int64_t begin_ns, end_ns;  /* CLOCK_MONOTONIC, as the profiler fits the device's clock to it: true to some us */
    int64_t bytes;             /* of a copy or a fill; 0 of a kernel */
    const char *name;          /* the kernel's, readable; "copy to device", "copy to host", "copy on device", "fill" */
};

struct activity_log {
    const struct activity_record *records; /* (n), in the order of their ends or nearly so */
    size_t n;
    int64_t lost; /* things that ran and are not among them: dropped, or without instants */
};

struct activity {
    int32_t abi; /* ACTIVITY_ABI; first for good */
    int32_t record_bytes, log_bytes, activity_bytes;
    /* Begins a session. Best before the device is opened, since what is loaded then is instrumented from the start. ERR_RESOURCE
     * with CUPTI's own reason (forbidden, another profiler is there, …): no session then. */
    enum status (*open)(struct error *err);
    /* What the calling thread asks of devices until leave is under `id`, from 1 on. Not nested. About 0.1 us each. */
    enum status (*enter)(uint64_t id, struct error *err);
    enum status (*leave)(struct error *err);
    /* All that has ended since open; devices must be idle, or what runs is lost. The log is the session's. ERR_RESOURCE where any
     * part of it could not be had. O(n log n). */
    enum status (*collect)(struct activity_log *out, struct error *err);
    void (*close)(void); /* ends the session; without one nothing */
};
#define ACTIVITY_NUMBERS                                                                           \
    .abi = ACTIVITY_ABI, .record_bytes = (int32_t)sizeof(struct activity_record),                  \
    .log_bytes = (int32_t)sizeof(struct activity_log),                                             \
    .activity_bytes = (int32_t)sizeof(struct activity)
typedef const struct activity *activity_entry(void);
#define ACTIVITY_ENTRY "musher_activity"

/* The plugin of that name (struct backend's profiler), opened once for the whole program; no session yet. ERR_NO_DEVICE where it is not there, cannot be opened (CUPTI is
 * missing) or was built from other sources. Thread-safe. */
MUST_CHECK enum status activity_plugin(const char *name, const struct activity **out, struct error *err);

#endif
