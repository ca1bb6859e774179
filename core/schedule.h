/* core/schedule.h - schedules as data: who computes what in which order, by name, by hand or from CSV.
 *
 * A schedule places `n_chunks` virtual stages on each of `n_devices` devices and orders the F, B (fused backward) or I and W
 * of every microbatch on every device. It knows no times: the same schedule is timed by sim/static, lowered to lanes by
 * core/lower and drawn by tools/plot. Updates are not in it: they follow the last operation of a device.
 *
 * Text of one device: "F0 F1 B0 B1" (one chunk) or "0F0,0F1,1F0,1B0 …" (chunk of the device before the letter; comma or
 * blank between); devices are separated by '|' or by lines.
 * Ownership: the arena's.
 */
#ifndef CORE_SCHEDULE_H
#define CORE_SCHEDULE_H

#include "core/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct arena;

struct schedule_op {
    char letter;               /* F B I W */
    int32_t chunk, microbatch; /* chunk: of the device, 0 … n_chunks-1 */
};
struct schedule_lane {
    int64_t n_ops;
    struct schedule_op *ops;
};
struct schedule {
    const char *name;
    int32_t n_devices, n_chunks, n_microbatches;
    int32_t *
        stage; /* (n_devices, n_chunks) virtual stage 0 … n_devices·n_chunks-1 of a chunk: round robin (interleaved),
                      * V-shaped (zb-v, v-half, v-min: chunk 0 goes down, chunk 1 comes back) */
    struct schedule_lane *lanes; /* (n_devices) */
};

/*      enumerator          name in files and on the command line    chunks (0: any >= 2) */
#define SCHEDULES(X)                                                                               \
    X(GPIPE, "gpipe", 1)                                                                           \
    X(1F1B, "1f1b", 1)                                                                             \
    X(EAGER, "eager-1f1b", 1)                                                                      \
    X(H1F1B_PUBLISHED, "h-1f1b-published", 1)                                                      \
    X(H1F1B, "h-1f1b", 1)                                                                          \
    X(INTERLEAVED, "interleaved", 0)                                                               \
    X(ZB_H1, "zb-h1", 1)                                                                           \
    X(ZB_H2, "zb-h2", 1)                                                                           \
    X(ZB_V, "zb-v", 2)                                                                             \
    X(V_HALF, "v-half", 2)                                                                         \
    X(V_MIN, "v-min", 2)
enum schedule_kind {
#define X(name, text, chunks) SCHEDULE_##name,
    SCHEDULES(X)
#undef X
        SCHEDULE_KIND_COUNT
};
const char *schedule_name(enum schedule_kind k);
MUST_CHECK enum status schedule_kind_parse(const char *name, enum schedule_kind *out,
                                           struct error *err); /* ERR_INPUT lists the names */

struct schedule_spec {
    enum schedule_kind kind;
    int32_t n_devices, n_chunks, n_microbatches; /* n_chunks 0: the kind's least */
    bool
        split; /* I and W instead of fused B where the kind leaves it open (1F1B and its kin, GPipe, interleaved) */
    /* h-1f1b: times of a microbatch on each device (F + B + W) and one-way transfers (n_devices - 1), any one unit; NULL: 1 and 0 */
    const double *time, *transfer;
    const int32_t
        *warmup; /* (n_devices) explicit warm-up counts, forwards in flight; NULL: by kind */
};
/* ERR_INPUT: counts out of range; interleaved: microbatches no multiple of devices. O(operations). */
MUST_CHECK enum status schedule_make(struct arena *a, const struct schedule_spec *s,
                                     struct schedule *out, struct error *err);
/* Text as above. file labels messages (file:line:column). The stage table is round robin unless `v_shaped`. Calls
 * schedule_check. */
MUST_CHECK enum status schedule_parse(struct arena *a, const char *file, const char *text,
                                      bool v_shaped, struct schedule *out, struct error *err);
void schedule_write(FILE *out, const struct schedule *s,
                    char separator); /* '|' or '\n' between devices */

/* Complete: every (stage, microbatch) has F once and either B, or I then W, once; F before it. Free of deadlock: a device
 * takes its operations in order, F of stage v needs F of v-1, B and I of v need B or I of v+1 (of the last: its own F), W
 * its own I. ERR_INPUT says what is missing or twice, or "no progress: blocked set: device 0 at F3 (waits for …), …".
 * order (may be NULL): (all operations) indices device-major as they stand, in an order that can be executed. */
MUST_CHECK enum status schedule_check(struct arena *a, const struct schedule *s, int64_t **order,
                                      struct error *err);

#endif
