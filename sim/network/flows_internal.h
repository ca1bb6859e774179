/* sim/network/flows_internal.h - the tables of sim/network/flows; for sim/network/flows*.c alone.
 *
 * Two representations of the same rates. Few flows (f->many is false): every route that has flows holds a *seat*, one of 64,
 * and sets of seats are one word (flows_few.c). Many flows: groups, as follows (flows_group.c, flows_share.c, flows_keep.c,
 * flows_cross.c). flows_turn.c converts between the two.
 *
 * A resource that is some route's bottleneck is a *group*: its members are those routes. served_bytes is what one flow of
 * the group would have received since the group began, up to since_ns; a route's own count is served + offset.
 * Members are a heap by `key`: the group's count at which the route's next flow ends.
 */
#ifndef SIM_NETWORK_FLOWS_INTERNAL_H
#define SIM_NETWORK_FLOWS_INTERNAL_H

#include "sim/network/flows.h"

#include <math.h>
#include <stddef.h>

struct flow {
    double mark_bytes; /* ends when its route's count reaches it */
    double start_ns;
    uint64_t seq; /* of the start: breaks ties */
    int64_t owner;
};

struct flow_store { /* storage of flows; owned by a route while it has flows */
    struct flow *flows;
    size_t capacity;
};

struct flow_route { /* fields of the few-flows representation first: one cache line */
    int32_t n_resources;
    int32_t seat; /* -1 */
    int32_t *resources;
    double cap_Bpns; /* smallest of its capacities ÷ weights: upper bound of all its flows together */
    struct flow_store store; /* heap by (mark, seq) */
    int32_t n_flows;
    int32_t *weight; /* (n_resources) flows of each resource that one of the route stands for; NULL: 1 */
    /* of many flows */
    int32_t narrow; /* its resource with the smallest capacity ÷ weight, the first among equals */
    /* (n_resources): index among the resource's users, while it has flows */
    int32_t *place;
    int32_t group, at;   /* -1: no level yet; index in the group's heap */
    double before_bytes; /* bytes its flows received before it had a group */
    double offset_bytes, key_bytes;
    /* of one search */
    int32_t n_bounding;
    int32_t *bounding; /* (n_bounding <= n_resources): indices of those of its resources that are contended */
    uint64_t taken;    /* = flows.search: its rate is being computed */
    bool listed;       /* in flows.fresh */
    int32_t new_group;
    double new_level;
};

struct flow_user {        /* one route on a resource */
    int32_t route, index; /* resources[index] of the route is this one */
};

/* Flows that cross a resource and have their bottleneck in `group`, which may be the resource itself. */
struct flow_crossing {
    int32_t group;
    int32_t back; /* its index in the group's reach */
    int64_t n_flows;
};
struct flow_reach { /* the same seen from the group */
    int32_t resource;
    int32_t back; /* its index among the resource's crossings */
};

struct flow_resource {
    double capacity_Bpns;
    int64_t n_flows;
    double demand_Bpns; /* sum of the caps of its routes with flows: their largest possible demand */
    int32_t n_users, n_narrow; /* n_narrow: users whose narrowest resource it is */
    size_t user_capacity;
    struct flow_user *users;
    bool tracked; /* crossings are kept */
    int32_t n_crossings;
    size_t crossing_capacity;
    struct flow_crossing *crossings;
    /* as a group */
    double level_Bpns, served_bytes, since_ns, end_ns;
    int32_t n_members, end_at; /* end_at: index in flows.ends; -1 */
    size_t member_capacity;
    int32_t *members;
    int32_t n_reach;
    size_t reach_capacity;
    struct flow_reach *reach;
    /* of one search */
    uint64_t touched, opened; /* = flows.search */
    bool listed;              /* in flows.dirty */
    bool changed;             /* members or level: its end must be recomputed */
    int64_t count;            /* flows without a rate so far */
    double new_level;
    double left_Bpns, share_Bpns;
};

struct flow_bound { /* a resource in the heap of a search, by its share when it was put there */
    double share_Bpns;
    int32_t resource;
};

/* --- few flows --- */

enum {
    FLOWS_SEATS = 64,
    FLOWS_GATES = 64,
    FLOWS_BLOCK = 4, /* seats whose ends are compared together */
    /* Above FLOWS_MANY flows groups are faster, below FLOWS_FEW seats; in between the representation stays (hysteresis). */
    FLOWS_MANY = 128,
    FLOWS_FEW = 32
};

struct flow_seat {
    double level_Bpns, served_bytes, since_ns, mark_bytes;
    double cap_Bpns; /* of one of its flows */
    uint64_t seq;    /* of the first of its flows */
    int32_t route;
    int32_t gate; /* its bottleneck; -1: its own cap */
    /* of one search */
    double new_level;
    int32_t new_gate;
};

/* A resource in the few-flows representation. A resource whose demand exceeds its capacity is a *gate*: only gates can be the
 * bottleneck of more than a lone route, so the search considers gates only. */
struct flow_door {
    uint64_t users, members; /* seats that use it; seats whose bottleneck it is */
    double demand_Bpns, n_flows;
    double *weight; /* (FLOWS_SEATS) of each of its users; NULL: all 1 */
    double capacity_Bpns,
        room_Bpns; /* largest demand at which it is not yet a gate */
    int32_t gate;  /* its number; -1 */
    /* of one search */
    double count, left_Bpns, share_Bpns;
};

struct flow_few {
    uint64_t used, numbers; /* occupied seats and gates */
    uint64_t changed;       /* seats at which the next search begins */
    uint64_t due;           /* seats whose next flow ends in this instant if rates stay */
    int32_t n_blocks;       /* of the ends: all seats behind them were free in the last search */
    double next_ns;         /* the next end of all, unless a search is due */
    bool full;              /* more gates than gate numbers */
    double end_ns[FLOWS_SEATS];                 /* INFINITY: free seat */
    double least_ns[FLOWS_SEATS / FLOWS_BLOCK]; /* of the ends of a block */
    /* Per seat, in separate arrays because these are read most: the gates on its route, its number of flows (as a double, the
     * type of its uses) and the total rate of its flows. */
    uint64_t gates[FLOWS_SEATS];
    double n_flows[FLOWS_SEATS], carried_Bpns[FLOWS_SEATS];
    struct flow_seat seats[FLOWS_SEATS];
    int32_t resource[FLOWS_GATES]; /* of each gate */
};

struct flows {
    struct arena *arena;
    int32_t n_resources, n_routes;
    size_t resource_capacity, route_capacity;
    struct flow_resource *resources;
    struct flow_door *doors; /* (n_resources) */
    struct flow_route *routes;
    /* of routes without flows; a stack */
    struct flow_store *spare;
    int32_t n_spare;
    int64_t alive;
    double now_ns;
    uint64_t starts, search;
    bool stale; /* rates must be recomputed */
    bool many;
    bool wide; /* more contended resources than gates: groups stay for good */
    struct flow_few few;
    /* groups by their next end: heap of resources */
    int32_t *ends, n_ends;
    /* changes since rates were computed */
    int32_t *dirty, n_dirty; /* groups that lost or got a flow */
    int32_t *fresh, n_fresh; /* routes that got a flow */
    /* of one search */
    int32_t *taken, n_taken;
    int32_t *touched, n_touched;
    struct flow_bound *bounds;
    int32_t n_bounds;
};

#define FLOWS_SAME (1 + 1e-12) /* levels that differ by less are equal: rounding errors of the sums */

/* Its demand exceeds its capacity, so it may be a bottleneck, also of a route that is narrower elsewhere. The margin is the
 * rounding error of adding and subtracting caps. */
static inline bool flows_contended(const struct flow_resource *r)
{
    return r->demand_Bpns > r->capacity_Bpns * FLOWS_SAME;
}
static inline int32_t flows_weight(const struct flow_route *r, int32_t i)
{
    return r->weight ? r->weight[i] : 1;
}
static inline int32_t flows_lowest(uint64_t set) { return (int32_t)__builtin_ctzll(set); }
static inline uint64_t flows_bit(int32_t i) { return UINT64_C(1) << i; }
static inline double flows_served(const struct flow_resource *r, double now_ns)
{
    return r->served_bytes + r->level_Bpns * (now_ns - r->since_ns);
}

/* flows.c: flows of a route */
void flows_push(struct flows *f, int32_t route, double mark_bytes, int64_t owner);
struct flow flows_pop(struct flows *f, int32_t route);

/* flows_few.c. A start needs a free seat if the route has none; afterwards few.full reports an overflow of the gates. */
void flows_few_start(struct flows *f, int32_t route, double bytes, int64_t owner);
bool flows_few_end(struct flows *f, double limit_ns, struct flow_end *out);
void flows_few_share(struct flows *f);
/* A route takes a seat; served_bytes: the count to which the marks of its flows are relative. */
void flows_sit(struct flows *f, int32_t route, double served_bytes);
double flows_stand(struct flows *f, int32_t route); /* frees the seat; returns the route's count */

/* flows_turn.c */
void flows_to_many(struct flows *f);
void flows_to_few(struct flows *f); /* if few enough remain */

/* flows_cross.c: crossings of one route, or of all routes of one resource */
void flows_cross(struct flows *f, int32_t route, int64_t n_flows); /* more, or less, in its group */
void flows_track(struct flows *f, int32_t resource); /* starts or stops, according to its users */

/* flows_group.c: groups, and starts and ends of many flows */
void flows_join_group(struct flows *f, int32_t route, int32_t resource);
void flows_leave_group(struct flows *f, int32_t route);
void flows_new_end(struct flows *f, int32_t resource);
double flows_count(const struct flows *f, int32_t route); /* bytes that one of its flows has received */
void flows_link(struct flows *f,
                int32_t route); /* a route that now has flows; the next search computes its rates */
void flows_unlink(struct flows *f, int32_t route);
void flows_many_start(struct flows *f, int32_t route, double bytes, int64_t owner);
bool flows_many_end(struct flows *f, double limit_ns, struct flow_end *out);
void flows_many_withdraw(struct flows *f, int32_t route); /* its only flow */
/* flows_share.c: recomputes all rates that the changes since the last search can affect. */
void flows_share(struct flows *f);
/* flows_keep.c: the same if all bottlenecks stay as they are; otherwise false, and no level changes. */
bool flows_keep(struct flows *f);

#endif
