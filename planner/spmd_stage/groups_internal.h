/* planner/spmd_stage/groups_internal.h - state shared by the files of planner/spmd_stage/groups. */
#ifndef PLANNER_SPMD_STAGE_GROUPS_INTERNAL_H
#define PLANNER_SPMD_STAGE_GROUPS_INTERNAL_H

#include "planner/spmd_stage/groups.h"
#include "planner/spmd_stage/split.h"

enum {
    DEVICE_LINES_MAX = 48,
    LAYOUTS_MAX = 24, /* kept by estimate */
    PARTS_MAX = 16,   /* of a layout: runs of device lines that are replicas */
    MASKS = 1 << (SPMD_STAGE_LINE_MAX - 1)
};

struct reach { /* longest range of layers within memory at a position of a line */
    int32_t in_flight, communicators;
    const int32_t *far; /* (n_layers) */
    struct reach *next;
};
struct
    device_group { /* a solved group: a member of every line that contains it */
    struct spmd_stage_member member;
    int32_t n;
    const int32_t *device; /* (n) */
    const struct spmd_stage_layers *layers[SPMD_STAGE_MODES_MAX];
    struct reach *reach[SPMD_STAGE_MODES_MAX]; /* memoised */
};
struct
    line_cut { /* units first … last of a device line, cut into groups after the units of mask's bits */
    struct spmd_stage_cut cut;
    int32_t microbatches;                                         /* of the estimate */
    int32_t n;                                                    /* groups */
    int8_t first[SPMD_STAGE_LINE_MAX], last[SPMD_STAGE_LINE_MAX]; /* units of each */
    const int64_t *cross_ns[SPMD_STAGE_LINE_MAX];
};
struct device_line {
    int32_t n_units, copies;
    int32_t n[SPMD_STAGE_LINE_MAX];             /* devices of a unit of one copy */
    const int32_t *device[SPMD_STAGE_LINE_MAX]; /* (copies · n) */
    int32_t together;                           /* copies whose messages leave the same node */
    struct device_group
        *device_group[SPMD_STAGE_LINE_MAX][SPMD_STAGE_LINE_MAX]; /* of units first … last */
    bool queried[SPMD_STAGE_LINE_MAX][SPMD_STAGE_LINE_MAX];
    struct line_cut *
        *line_cut; /* (SPMD_STAGE_LINE_MAX² · MASKS) by first, last, mask; NULL: not computed */
};
struct line_part { /* replicas: one per copy */
    struct device_line *device_line;
    int32_t first, last, mask;
    const struct line_cut *line_cut;
    int32_t share; /* microbatches of a copy */
};
struct layout {
    int64_t ns; /* estimate */
    const struct space *s;
    int32_t n;
    struct line_part part[PARTS_MAX];
};
struct line_partition { /* of the cluster: a device line of all devices, or cells that are replicas */
    bool cells;
    int32_t n;
    struct device_line *device_line[PARTS_MAX];
};
struct device_group_known {
    uint64_t key;
    struct device_group *device_group;
    struct device_group_known *next;
};
struct groups {
    struct search_context *t;
    struct arena *arena;
    const struct cluster *cluster;
    /* of the current microbatch size */
    const struct space *s;
    double *power, all;       /* (n_devices) speed of each device, and their sum */
    int64_t *parameter_bytes; /* (n_layers + 1) prefix sums */
    struct device_group_known *known;
    int32_t n_lineups;
    struct device_line *device_line; /* (DEVICE_LINES_MAX) */
    int32_t n_partitions;
    struct line_partition *partition;     /* (DEVICE_LINES_MAX) */
    int64_t begin, mine; /* scorer_work at the start of this size, and its budget */
    int64_t tables_end;  /* scorer_work after which no group is solved */
    /* over all sizes, best first */
    int32_t n_layouts;
    struct layout *layouts; /* (LAYOUTS_MAX + 1) */
};

/* Makes the microbatch size of s current and clears its memos. */
void groups_begin(struct groups *g, const struct space *s);
/* Devices of units first … last of a copy: (*n). */
const int32_t *groups_devices(struct groups *g, const struct device_line *l, int32_t first,
                              int32_t last, int32_t copy, int32_t *n);
/* Number of devices of a line cut's group; 0: no such group. */
int32_t groups_size(const struct device_line *l, const struct line_cut *p, int32_t group);
/* Adds a device line, whose units' devices the caller fills in; NULL: DEVICE_LINES_MAX is reached. */
struct device_line *groups_device_line(struct groups *g, int32_t n_units, int32_t copies);
/* Units first … last of a copy as one group; *out NULL: they have no sharded program, or the work limit is reached. */
MUST_CHECK enum status groups_query(struct groups *g, struct device_line *l, int32_t first,
                                  int32_t last, struct device_group **out, struct error *err);
/* The line cut of mask; *out NULL: some group has no sharded program, or the work limit is reached. */
MUST_CHECK enum status groups_line_cut(struct groups *g, struct device_line *l, int32_t first,
                                       int32_t last, int32_t mask, const struct line_cut **out,
                                       struct error *err);
/* Fills g->layouts: the cuts of all device lines of the cluster with the best estimates. */
MUST_CHECK enum status groups_layouts(struct groups *g, struct error *err);
/* New shares (>= least, sum `all`) that minimise the common end time, for replicas that end at end_ns[r] with share[r] and take
 * slow_ns[r] per microbatch. */
void groups_deal(int32_t n, const int64_t *end_ns, const int64_t *slow_ns, int32_t *share,
                 int64_t all, int32_t least);

#endif
