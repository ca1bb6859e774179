/* planner/spmd_stage/groups_internal.h - what the files of planner/spmd_stage/groups share. */
#ifndef PLANNER_SPMD_STAGE_GROUPS_INTERNAL_H
#define PLANNER_SPMD_STAGE_GROUPS_INTERNAL_H

#include "planner/spmd_stage/groups.h"
#include "planner/spmd_stage/split.h"

enum {
    LINEUPS_MAX = 48,
    LAYOUTS_MAX = 24, /* that may be made */
    PARTS_MAX = 16,   /* of a layout: lineups' runs that are replicas */
    MASKS = 1 << (JOIN_LINE_MAX - 1)
};

struct reach { /* how far memory reaches at a place in a line */
    int32_t in_flight, communicators;
    const int32_t *far; /* (n_layers) */
    struct reach *next;
};
struct crowd { /* a group as it was asked about: the member of every line that it stands in */
    struct join_member member;
    int32_t n;
    const int32_t *device; /* (n) */
    const struct join_layers *layers[JOIN_MODES_MAX];
    struct reach *reach[JOIN_MODES_MAX]; /* known so far */
};
struct pipe { /* units first … last of a lineup, cut into groups behind the units of mask's bits */
    struct join_cut cut;
    int32_t microbatches;                             /* that it was thought for */
    int32_t n;                                        /* groups */
    int8_t first[JOIN_LINE_MAX], last[JOIN_LINE_MAX]; /* units of each */
    const int64_t *cross_ns[JOIN_LINE_MAX];
};
struct lineup {
    int32_t n_units, copies;
    int32_t n[JOIN_LINE_MAX];             /* devices of a unit of one copy */
    const int32_t *device[JOIN_LINE_MAX]; /* (copies · n) */
    int32_t together;                     /* copies of which a message leaves the same node */
    struct crowd *crowd[JOIN_LINE_MAX][JOIN_LINE_MAX]; /* of units first … last */
    bool asked[JOIN_LINE_MAX][JOIN_LINE_MAX];
    struct pipe **pipe; /* (JOIN_LINE_MAX² · MASKS) by first, last, mask; NULL: not asked for */
};
struct part { /* replicas: every copy of it */
    struct lineup *lineup;
    int32_t first, last, mask;
    const struct pipe *pipe;
    int32_t share; /* microbatches of a copy */
};
struct layout {
    int64_t ns; /* estimate */
    const struct space *s;
    int32_t n;
    struct part part[PARTS_MAX];
};
struct way { /* to cut the cluster: a lineup of all devices, or cells that are replicas */
    bool cells;
    int32_t n;
    struct lineup *lineup[PARTS_MAX];
};
struct crowd_known {
    uint64_t key;
    struct crowd *crowd;
    struct crowd_known *next;
};
struct groups {
    struct tries *t;
    struct arena *arena;
    const struct cluster *cluster;
    /* of the microbatch size at hand */
    const struct space *s;
    double *power, all;       /* (n_devices) speed alone, and their sum */
    int64_t *parameter_bytes; /* (n_layers + 1) prefix sums */
    struct crowd_known *known;
    int32_t n_lineups;
    struct lineup *lineup; /* (LINEUPS_MAX) */
    int32_t n_ways;
    struct way *way;     /* (LINEUPS_MAX) */
    int64_t begin, mine; /* of the work: of this size's turn, and how much it has */
    int64_t tables_end;  /* no group is asked for any more */
    /* over all sizes, best first */
    int32_t n_layouts;
    struct layout *layouts; /* (LAYOUTS_MAX + 1) */
};

/* Nothing is known yet of the microbatch size of s, which is at hand from here on. */
void groups_begin(struct groups *g, const struct space *s);
/* Devices of units first … last of a copy: (result's n). */
const int32_t *groups_devices(struct groups *g, const struct lineup *l, int32_t first, int32_t last,
                              int32_t copy, int32_t *n);
/* Devices of a pipe's group; 0: there is no such group. */
int32_t groups_size(const struct lineup *l, const struct pipe *p, int32_t group);
/* A lineup more, its units' devices filled in by the caller; NULL: there are enough. */
struct lineup *groups_lineup(struct groups *g, int32_t n_units, int32_t copies);
/* Units first … last of a copy as one group; NULL: they cannot share, or work is over. */
MUST_CHECK enum status groups_ask(struct groups *g, struct lineup *l, int32_t first, int32_t last,
                                  struct crowd **out, struct error *err);
/* NULL where some group cannot share, or work is over. */
MUST_CHECK enum status groups_pipe(struct groups *g, struct lineup *l, int32_t first, int32_t last,
                                   int32_t mask, const struct pipe **out, struct error *err);
/* All lineups of the cluster, and what their cuts should take: g->layouts. */
MUST_CHECK enum status groups_layouts(struct groups *g, struct error *err);
/* The least time at which replicas that end at end_ns[r] with share[r], slow_ns[r] a microbatch, take `all` microbatches: new
 * shares, none below least. */
void groups_deal(int32_t n, const int64_t *end_ns, const int64_t *slow_ns, int32_t *share,
                 int64_t all, int32_t least);

#endif
