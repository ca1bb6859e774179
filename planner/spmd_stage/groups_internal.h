/* planner/spmd_stage/groups_internal.h - what the files of planner/spmd_stage/groups share. */
#ifndef PLANNER_SPMD_STAGE_GROUPS_INTERNAL_H
#define PLANNER_SPMD_STAGE_GROUPS_INTERNAL_H

#include "planner/spmd_stage/groups.h"
#include "planner/spmd_stage/split.h"

enum {
    DEVICE_LINES_MAX = 48,
    LAYOUTS_MAX = 24, /* that may be made */
    PARTS_MAX = 16,   /* of a layout: device lines' runs that are replicas */
    MASKS = 1 << (SPMD_STAGE_LINE_MAX - 1)
};

struct reach { /* how far memory reaches at a place in a line */
    int32_t in_flight, communicators;
    const int32_t *far; /* (n_layers) */
    struct reach *next;
};
struct
    device_group { /* a group as it was asked about: the member of every line that it stands in */
    struct spmd_stage_member member;
    int32_t n;
    const int32_t *device; /* (n) */
    const struct spmd_stage_layers *layers[SPMD_STAGE_MODES_MAX];
    struct reach *reach[SPMD_STAGE_MODES_MAX]; /* known so far */
};
struct
    line_cut { /* units first … last of a device line, cut into groups behind the units of mask's bits */
    struct spmd_stage_cut cut;
    int32_t microbatches;                                         /* that it was thought for */
    int32_t n;                                                    /* groups */
    int8_t first[SPMD_STAGE_LINE_MAX], last[SPMD_STAGE_LINE_MAX]; /* units of each */
    const int64_t *cross_ns[SPMD_STAGE_LINE_MAX];
};
struct device_line {
    int32_t n_units, copies;
    int32_t n[SPMD_STAGE_LINE_MAX];             /* devices of a unit of one copy */
    const int32_t *device[SPMD_STAGE_LINE_MAX]; /* (copies · n) */
    int32_t together;                           /* copies of which a message leaves the same node */
    struct device_group
        *device_group[SPMD_STAGE_LINE_MAX][SPMD_STAGE_LINE_MAX]; /* of units first … last */
    bool queried[SPMD_STAGE_LINE_MAX][SPMD_STAGE_LINE_MAX];
    struct line_cut *
        *line_cut; /* (JOIN_LINE_MAX² · MASKS) by first, last, mask; NULL: not asked for */
};
struct line_part { /* replicas: every copy of it */
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
struct line_partition { /* to cut the cluster: a device line of all devices, or cells that are replicas */
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
    /* of the microbatch size at hand */
    const struct space *s;
    double *power, all;       /* (n_devices) speed alone, and their sum */
    int64_t *parameter_bytes; /* (n_layers + 1) prefix sums */
    struct device_group_known *known;
    int32_t n_lineups;
    struct device_line *device_line; /* (DEVICE_LINES_MAX) */
    int32_t n_partitions;
    struct line_partition *partition;     /* (DEVICE_LINES_MAX) */
    int64_t begin, mine; /* of the work: of this size's turn, and how much it has */
    int64_t tables_end;  /* no group is asked for any more */
    /* over all sizes, best first */
    int32_t n_layouts;
    struct layout *layouts; /* (LAYOUTS_MAX + 1) */
};

/* Nothing is known yet of the microbatch size of s, which is at hand from here on. */
void groups_begin(struct groups *g, const struct space *s);
/* Devices of units first … last of a copy: (result's n). */
const int32_t *groups_devices(struct groups *g, const struct device_line *l, int32_t first,
                              int32_t last, int32_t copy, int32_t *n);
/* Devices of a pipe's group; 0: there is no such group. */
int32_t groups_size(const struct device_line *l, const struct line_cut *p, int32_t group);
/* A device line more, its units' devices filled in by the caller; NULL: there are enough. */
struct device_line *groups_device_line(struct groups *g, int32_t n_units, int32_t copies);
/* Units first … last of a copy as one group; NULL: they cannot share, or work is over. */
MUST_CHECK enum status groups_query(struct groups *g, struct device_line *l, int32_t first,
                                  int32_t last, struct device_group **out, struct error *err);
/* NULL where some group cannot share, or work is over. */
MUST_CHECK enum status groups_line_cut(struct groups *g, struct device_line *l, int32_t first,
                                       int32_t last, int32_t mask, const struct line_cut **out,
                                       struct error *err);
/* All device lines of the cluster, and what their cuts should take: g->layouts. */
MUST_CHECK enum status groups_layouts(struct groups *g, struct error *err);
/* The least time at which replicas that end at end_ns[r] with share[r], slow_ns[r] a microbatch, take `all` microbatches: new
 * shares, none below least. */
void groups_deal(int32_t n, const int64_t *end_ns, const int64_t *slow_ns, int32_t *share,
                 int64_t all, int32_t least);

#endif
