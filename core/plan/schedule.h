/* core/plan/schedule.h - schedules as data: who computes what in which order, by name, by hand or from CSV.
 *
 * A schedule places `n_chunks` virtual stages on each of `n_devices` devices and orders the F, B (fused backward) or I and W
 * of every microbatch on every device. It knows no times: the same schedule is timed by sim/pipeline/static, lowered to lanes by
 * core/lower/lower and drawn by tools/print/schedule. Updates are not in it: they follow the last operation of a device.
 *
 * Text of one device: "F0 F1 B0 B1" (one chunk) or "0F0,0F1,1F0,1B0 …" (chunk of the device before the letter; comma or
 * blank between); devices are separated by '|' or by lines, and '#' starts a comment that ends with its line.
 *
 * Where the names come from, and what holds of them for equal stages without transfers, p devices, m microbatches. The
 * bubble is the longest idle time of a device between its first and its last operation; peaks are microbatches whose
 * activations live on the fullest device:
 *   gpipe              Huang et al., NeurIPS 2019              bubble (p-1)(F+B+W), peak m
 *   1f1b               Narayanan et al., SOSP 2019             (p-1)(F+B+W), min(p, m)
 *   eager-1f1b         Zhuang et al., MLSys 2023               the same, min(2p-1, m): hides transfers
 *   h-1f1b(-published) HARP, arXiv 2509.24859                  warm-ups by the speed of each link
 *   interleaved        Narayanan et al., SC 2021               a v-th of it, 2(p-1)+(v-1)p+1 chunks
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
     * v-half, v-min: chunk 0 goes down the devices, chunk 1 comes back) */
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

/* Bounds of what schedule_make and schedule_parse take. */
enum { SCHEDULE_MAX_DEVICES = 100000, SCHEDULE_MAX_CHUNKS = 1000 };
#define SCHEDULE_MAX_MICROBATCHES 10000000
#define SCHEDULE_MAX_OPS INT64_C(100000000)

struct schedule_spec {
    enum schedule_kind kind;
    int32_t n_devices, n_chunks, n_microbatches; /* n_chunks 0: the kind's least */
    /* I and W instead of fused B where the kind leaves it open (1F1B and its kin, GPipe, interleaved) */
    bool split;
    /* h-1f1b: times of a microbatch on each device (F + B + W) and one-way transfers (n_devices - 1), any one unit; NULL: 1 and 0 */
    const double *time, *transfer;
    /* (n_devices) explicit warm-up counts, forwards in flight, of 1F1B and its kin; NULL: by kind. More than m means m. */
    const int32_t *warmup;
};
/* ERR_INPUT: counts out of range; interleaved: microbatches no multiple of devices; warm-up counts that cannot go on. O(operations). */
MUST_CHECK enum status schedule_make(struct arena *a, const struct schedule_spec *s,
                                     struct schedule *out, struct error *err);
/* (n_devices) warm-up counts of 1F1B and its kin, at most m: what schedule_make uses. */
void schedule_warmup(const struct schedule_spec *s, int32_t *out);
/* Text as above. file labels messages (file:line:column). The stage table is round robin unless `v_shaped`. Calls
 * schedule_check. */
MUST_CHECK enum status schedule_parse(struct arena *a, const char *file, const char *text,
                                      bool v_shaped, struct schedule *out, struct error *err);
void schedule_write(FILE *out, const struct schedule *s,
                    char separator); /* '|' or '\n' between devices */

/* Complete: every (stage, microbatch) has F once and either B, or I then W, once; F before it. Free of deadlock: a device
 * takes its operations in order, F of stage v needs F of v-1, B and I of v need B or I of v+1 (of the last: its own F), W
 * its own I. ERR_INPUT says what is missing or twice, or "no progress: blocked set: device 0 at F3 (waits for …), …".
 * order (may be NULL): (all operations) indices device-major as they stand, in an order that can be executed. O(operations). */
MUST_CHECK enum status schedule_check(struct arena *a, const struct schedule *s, int64_t **order,
                                      struct error *err);
int64_t schedule_ops(const struct schedule *s); /* of all devices */

#endif
