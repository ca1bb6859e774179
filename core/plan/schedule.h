/* core/plan/schedule.h - pipeline schedules as data: the order of all F, B, I and W, by name, by hand or from CSV.
 *
 * A schedule places `n_chunks` virtual stages on each of `n_devices` devices and orders the F, B (fused backward) or I and W
 * of every microbatch on every device. It has no times: sim/pipeline/static times it, core/lower/lower lowers it to lanes,
 * tools/print/schedule draws it. Updates are implied after the last operation of a device.
 *
 * Text of one device: "F0 F1 B0 B1" (one chunk) or "0F0,0F1,1F0,1B0 …" (the device's chunk before the letter, separated by comma or
 * blank); devices are separated by '|' or by lines; '#' starts a comment up to the end of the line.
 *
 * Sources of the names, and their properties for equal stages without transfers, p devices, m microbatches. The
 * bubble is the longest idle time of a device between its first and its last operation; peaks are microbatches whose
 * activations are live on the fullest device:
 *   gpipe              Huang et al., NeurIPS 2019              bubble (p-1)(F+B+W), peak m
 *   1f1b               Narayanan et al., SOSP 2019             (p-1)(F+B+W), min(p, m)
 *   eager-1f1b         Zhuang et al., MLSys 2023               the same, min(2p-1, m): hides transfers
 *   h-1f1b(-published) HARP, arXiv 2509.24859                  warm-up counts from the speed of each link
 *   interleaved        Narayanan et al., SC 2021               1/v of it, 2(p-1)+(v-1)p+1 chunks
 *   zb-h1, zb-h2       Qi et al., arXiv 2401.10241             (p-1)(F+B-W), p; (p-1)(F+B-2W), 2p-1 (m >= peak, W <= F, B)
 *   zb-v               ”, appendix                             0 where F = B = W and m >= 2p-1; p
 *   v-half, v-min      Qi et al., arXiv 2405.15362             about p/2 and 2p/3 times F+B+W; (p+2)/2, (p+4)/3 (floors)
 * Ownership: the arena's.
 */
#ifndef CORE_PLAN_SCHEDULE_H
#define CORE_PLAN_SCHEDULE_H

#include "core/base/error.h"
#include "core/graph/phase.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct arena;

struct schedule_op {
    enum phase phase;          /* F B I W */
    int32_t chunk, microbatch; /* chunk: of the device, 0 … n_chunks-1 */
};
struct schedule_lane {
    int64_t n_ops;
    struct schedule_op *ops;
};
struct schedule {
    const char *name;
    int32_t n_devices, n_chunks, n_microbatches;
    /* (n_devices, n_chunks) virtual stage 0 … n_devices·n_chunks-1 of a chunk: round robin (interleaved) or V-shaped (zb-v,
     * v-half, v-min: chunk 0 in the order of the devices, chunk 1 in reverse) */
    int32_t *stage;
    struct schedule_lane *lanes; /* (n_devices) */
};

/* A named schedule is a row here and its order: `schedule_order_ORDER` (core/plan/schedule_internal.h), which appends every
 * device's operations. The names that files and the command line accept, their help, and the tests of all schedules follow.
 *      enumerator          name in files and on the command line    chunks (0: any >= 2)    traits    order */
enum schedule_trait {
    SCHEDULE_WARMUPS = 1, /* of the 1F1B family: warm-up counts may be given */
    SCHEDULE_SPLITS = 2,  /* always I and W */
    SCHEDULE_V = 4,       /* stages placed down the devices and back (V-shaped) */
    SCHEDULE_GROUPS = 8   /* microbatches in groups of n_devices, hence a multiple of it */
};
#define SCHEDULES(X)                                                                               \
    X(GPIPE, "gpipe", 1, 0, warmup)                                                                \
    X(1F1B, "1f1b", 1, SCHEDULE_WARMUPS, warmup)                                                   \
    X(EAGER, "eager-1f1b", 1, SCHEDULE_WARMUPS, warmup)                                            \
    X(H1F1B_PUBLISHED, "h-1f1b-published", 1, SCHEDULE_WARMUPS, warmup)                            \
    X(H1F1B, "h-1f1b", 1, SCHEDULE_WARMUPS, warmup)                                                \
    X(INTERLEAVED, "interleaved", 0, SCHEDULE_GROUPS, interleaved)                                 \
    X(ZB_H1, "zb-h1", 1, SCHEDULE_SPLITS, zb_h1)                                                   \
    X(ZB_H2, "zb-h2", 1, SCHEDULE_SPLITS, zb_h2)                                                   \
    X(ZB_V, "zb-v", 2, SCHEDULE_SPLITS | SCHEDULE_V, zb_v)                                         \
    X(V_HALF, "v-half", 2, SCHEDULE_SPLITS | SCHEDULE_V, v_half)                                   \
    X(V_MIN, "v-min", 2, SCHEDULE_SPLITS | SCHEDULE_V, v_min)
enum schedule_kind {
#define X(name, text, chunks, traits, order) SCHEDULE_##name,
    SCHEDULES(X)
#undef X
        SCHEDULE_KIND_COUNT
};
const char *schedule_name(enum schedule_kind k);
MUST_CHECK enum status schedule_kind_parse(const char *name, enum schedule_kind *out,
                                           struct error *err); /* ERR_INPUT lists the names */
int32_t schedule_kind_chunks(enum schedule_kind k);            /* 0: any >= 2 */
bool schedule_kind_has(enum schedule_kind k, enum schedule_trait trait);

/* Limits of schedule_make and schedule_parse. */
enum { SCHEDULE_MAX_DEVICES = 100000, SCHEDULE_MAX_CHUNKS = 1000 };
#define SCHEDULE_MAX_MICROBATCHES 10000000
#define SCHEDULE_MAX_OPS INT64_C(100000000)

struct schedule_spec {
    enum schedule_kind kind;
    int32_t n_devices, n_chunks, n_microbatches; /* n_chunks 0: the kind's minimum */
    /* separate I and W if the kind leaves the choice (1F1B and variants, GPipe, interleaved) */
    bool split;
    /* h-1f1b: times of a microbatch on each device (F + B + W) and one-directional transfers (n_devices - 1), in one unit; NULL: 1 and 0 */
    const double *time, *transfer;
    /* (n_devices) explicit warm-up counts, forwards in flight, of 1F1B and variants; NULL: by kind. Values above m mean m. */
    const int32_t *warmup;
};
/* ERR_INPUT: counts out of range; interleaved: microbatches not a multiple of devices; warm-up counts that deadlock. O(operations). */
MUST_CHECK enum status schedule_make(struct arena *a, const struct schedule_spec *s,
                                     struct schedule *out, struct error *err);
/* (n_devices) warm-up counts of 1F1B and variants, at most m, as in schedule_make. */
void schedule_warmup(const struct schedule_spec *s, int32_t *out);
/* Text as above. file is the name in messages (file:line:column). The stage table is round robin unless `v_shaped`. Calls
 * schedule_check. */
MUST_CHECK enum status schedule_parse(struct arena *a, const char *file, const char *text,
                                      bool v_shaped, struct schedule *out, struct error *err);
void schedule_write(FILE *out, const struct schedule *s,
                    char separator); /* '|' or '\n' between devices */

/* Completeness: every (stage, microbatch) has F once and either B, or I then W, once, after F. Freedom from deadlock: a device
 * executes its operations in order, F of stage v needs F of v-1, B and I of v need B or I of v+1 (of the last: its own F), W
 * its own I. ERR_INPUT names what is missing or duplicate, or "deadlock: device 0 at F3 (waits for …), …".
 * order (may be NULL): (all operations) device-major indices in a topological order. O(operations). */
MUST_CHECK enum status schedule_check(struct arena *a, const struct schedule *s, int64_t **order,
                                      struct error *err);
int64_t schedule_ops(const struct schedule *s); /* sum over devices */

#endif
