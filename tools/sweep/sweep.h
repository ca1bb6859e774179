/* tools/sweep/sweep.h - the points of a sweep: the cartesian product of its axes, a plan search at each.
 *
 * Points are independent searches as `plan` makes them (planner/search.h). The plan of a point is then simulated at its neighbours on each
 * axis, and becomes their answer where it is better; so are the plans of strategies. A point's answer is that of `plan` for the changed job and cluster, or a better one. The last axis varies fastest. A point without a plan has a reason (`why`) and is no failure of the sweep.
 * Results are the same for any number of threads, unless `stop` ends the searches.
 */
#ifndef TOOLS_SWEEP_SWEEP_H
#define TOOLS_SWEEP_SWEEP_H

#include "core/base/error.h"
#include "planner/search.h"
#include "profiles/profile.h"
#include "tools/options.h"
#include "tools/print/outcome.h"
#include "tools/sweep/axis.h"

struct arena;

/* With --allow: a plan of a strategy at a point, or a textbook plan (LINE_TEXTBOOK in front of its name) for comparison. */
#define LINE_TEXTBOOK "textbook:"
struct sweep_line {
    const char *name, *plan; /* plan_describe */
    int64_t ns;
    double progress; /* of a sample (tools/strategy/strategies.h) */
    double cost;     /* of an iteration; 0: unknown */
    const char *file; /* the text of its plan file; NULL: a textbook plan */
};
/* Time and cost divided by progress; by_time: as they are. */
struct search_plan sweep_line_value(const struct sweep_line *x, bool by_time);

struct sweep_point {
    const int32_t *at; /* (n_axes) index of each axis's value */
    bool done;         /* false: stopped before its search began */
    const char *why;   /* no plan, for this reason; NULL: the fields below are valid */
    int64_t iteration_ns, lower_bound_ns; /* lower bound 0: unknown */
    struct outcome outcome;               /* gap: of the cost, if that is the objective */
    int32_t devices, devices_used;
    double lower_cost;    /* 0: unknown */
    const char *plan;     /* plan_describe */
    const char *file;     /* the text of its plan file */
    const char *baseline; /* the fastest textbook plan; NULL: none fits */
    int64_t baseline_ns;
    const char *strategy; /* that of the highest effective rate, "NAME: plan"; NULL: none is allowed, or has a plan */
    int64_t strategy_ns;
    bool hierarchical; /* some stage of the plan has hybrid_shard */
    int32_t n_lines;
    struct sweep_line *lines; /* (n_lines) of the strategies that have a plan within the limits, and of textbook plans */
    bool exact;
    const char *stopped;
    int64_t evaluated;
};
struct sweep_grid {
    int32_t n_axes;
    const struct axis *axes;
    int64_t n_points;
    struct sweep_point *points;
};

/* Parses the texts of --vary and lists the points. ERR_USAGE: an axis twice, or more than max_points points. */
MUST_CHECK enum status sweep_points(struct arena *a, const struct texts *vary, int64_t max_points,
                                    struct sweep_grid *out, struct error *err);

struct sweep_search {
    const struct job *job;
    const struct cluster *cluster;
    const struct profile *profile;
    const struct search_options *options; /* of every point; threads: of the sweep */
    uint32_t sets;                        /* of strategies that are allowed (tools/strategy/strategies.h) */
};
/* Checks every point's change, then searches. ERR_INPUT, before any search: job or cluster lack what an axis names. */
MUST_CHECK enum status sweep_run(struct arena *a, const struct sweep_search *q,
                                 struct sweep_grid *s, struct error *err);

#endif
