/* tools/sweep/axis.h - the axes of `sweep`: what varies, its values, and their effect on a job and a cluster.
 *
 *     batch=64,128,256              sequences of a step (the job's global_batch)
 *     sequence=1024..8192:x2        tokens of a sequence
 *     nodes:h=1..8                  nodes of the family h: a node h, else h0, h1 ..., else the nodes whose devices are all of type h.
 *                                   The first are kept; beyond their number copies of the last are added (team/edit.h)
 *     devices:slow=0..3             devices of a type, or of a node: the first are kept
 *     link:lan=10GB/s..100GB/s:5    bandwidth of a link, of the links lan0, lan1 ..., or of the link A:B (team/edit.h)
 *     price:a100=1.5/h,2/h          price of each GPU of a type per hour
 *
 * A list has values and ranges between commas. FIRST..LAST of whole numbers: every one; FIRST..LAST:N: N values at equal distances,
 * both ends among them, rounded where only whole numbers are valid; FIRST..LAST:xF: FIRST, F times FIRST and so on up to LAST.
 * A value given twice counts once.
 *
 * Errors: ERR_USAGE of a text that is no axis; ERR_INPUT of a name that job or cluster lack, or a value that they do not allow;
 * ERR_INFEASIBLE of a point that leaves no device, or a batch that no microbatch size divides.
 */
#ifndef TOOLS_SWEEP_AXIS_H
#define TOOLS_SWEEP_AXIS_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/model/job.h"
#include "profiles/profile.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

/* id, word, whether it names a part of the cluster (WORD:NAME), whole numbers, smallest and largest value, unit in CSV and text,
 * an example. In the order of application: links before nodes, so that a link may go
 * with its nodes, and copies of a node have the changed link. */
#define AXIS_KINDS(X)                                                                              \
    X(LINK, "link", true, false, 1, 1e15, "B/s", "link:lan=10GB/s..100GB/s:5")                     \
    X(PRICE, "price", true, false, 0, 1e9, "1/h", "price:a100=1.5/h,2/h")                          \
    X(NODES, "nodes", true, true, 0, 1e5, "", "nodes:h=1..8")                                      \
    X(DEVICES, "devices", true, true, 0, 1e6, "", "devices:a100=8,16")                             \
    X(SEQUENCE, "sequence", false, true, 1, 1 << 27, "", "sequence=1024..8192:x2")                 \
    X(BATCH, "batch", false, true, 1, 1 << 24, "", "batch=64,128,256")

enum axis_kind {
#define X(id, word, names, whole, min, max, unit, example) AXIS_##id,
    AXIS_KINDS(X)
#undef X
        AXIS_KIND_COUNT
};

struct axis {
    enum axis_kind kind;
    const char *name;   /* "batch", "link:lan" */
    const char *object; /* "lan"; NULL */
    const char *unit;   /* of the values: "", "B/s", "1/h" */
    int32_t n;
    double *values;     /* (n) */
    const char **texts; /* (n) "128", "25 GB/s", "1.5/h" */
};

/* The most values of one axis. */
enum { AXIS_VALUES_MAX = 10000 };

/* Cost O(n²), for values given twice. */
MUST_CHECK enum status axis_parse(struct arena *a, const char *text, struct axis *out,
                                  struct error *err);
/* Value `at` of the axis, applied to the job and the cluster. */
MUST_CHECK enum status axis_apply(struct arena *a, const struct axis *x, int32_t at,
                                  const struct profile *profile, struct job *j, struct cluster *c,
                                  struct error *err);

#endif
