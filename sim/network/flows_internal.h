/* sim/network/flows_internal.h - the tables of sim/network/flows; for sim/network/flows*.c alone.
 *
 * Two ways to keep the same rates. Few flows (f->many is false): every route that has flows holds a *seat*, one of 64, and
 * sets of seats are one word (flows_few.c). Many flows: groups, as follows (flows_group.c, flows_share.c, flows_keep.c,
 * flows_cross.c). flows_turn.c goes from one to the other.
 *
 * A resource that is some route's bottleneck is a *group*: its members are those routes. served_bytes is what one flow of
 * the group would have been served since the group began, up to since_ns; a route's own count is served + offset.
 * Members are a heap by `key`: the group's count at which the route's next flow ends.
 */
#ifndef SIM_NETWORK_FLOWS_INTERNAL_H
#define SIM_NETWORK_FLOWS_INTERNAL_H

#include "sim/network/flows.h"

#include <math.h>
#include <stddef.h>

struct flow {
    double mark_bytes; /* ends when its route's count is there */
    double start_ns;
    uint64_t seq; /* of the start: breaks ties */
    int64_t owner;
};

struct flow_store { /* room for flows; a route has one while it has flows */
    struct flow *flows;
    size_t capacity;
};

struct flow_route { /* what few flows need comes first: one line of the cache */
    int32_t n_resources;
    int32_t seat; /* -1 */
    int32_t *resources;
    double cap_Bpns; /* the least of its capacities: all its flows together never have more */
    struct flow_store store; /* heap by (mark, seq) */
    int32_t n_flows;
    /* of many flows */
    int32_t narrow; /* of its resources the one with the least capacity, the first among equals */
    /* (n_resources): where it stands among the resource's routes, while it has flows */
    int32_t *place;
    int32_t group, at;   /* -1: no level yet; its place in the group's heap */
    double before_bytes; /* what its flows were served before it had a group */
    double offset_bytes, key_bytes;
    /* of one search */
    int32_t n_bounding;
    int32_t *bounding; /* (n_bounding <= n_resources): those of its resources that are contended */
    uint64_t taken;    /* = flows.search: its rate is looked for */
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
    int32_t back; /* its place in the group's reach */
    int64_t n_flows;
};
struct flow_reach { /* the same seen from the group */
    int32_t resource;
    int32_t back; /* its place among the resource's crossings */
};

struct flow_resource {
    double capacity_Bpns;
    int64_t n_flows;
    double demand_Bpns; /* sum of the caps of its routes with flows: the most they can ask for */
    int32_t n_users, n_narrow; /* n_narrow: users whose narrowest resource it is */
    size_t user_capacity;
    struct flow_user *users;
    bool tracked; /* crossings are kept */
    int32_t n_crossings;
    size_t crossing_capacity;
    struct flow_crossing *crossings;
    /* as a group */
    double level_Bpns, served_bytes, since_ns, end_ns;
    int32_t n_members, end_at; /* end_at: place in flows.ends; -1 */
    size_t member_capacity;
    int32_t *members;
    int32_t n_reach;
    size_t reach_capacity;
    struct flow_reach *reach;
    /* of one search */
    uint64_t touched, opened; /* = flows.search */
    bool listed;              /* in flows.dirty */
    bool changed;             /* members or level: its end is to be found again */
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
    FLOWS_BLOCK = 4, /* seats whose ends are looked at together */
    /* Beyond so many flows groups are faster, below so few seats; in between it stays as it is. */
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

/* A resource as few flows see it. One of which more is asked than it has is a *gate*: only gates can be the bottleneck of
 * more than a lone route, so the search knows nothing else. */
struct flow_door {
    uint64_t users, members; /* seats on it; those that have their bottleneck here */
    double demand_Bpns, n_flows;
    double capacity_Bpns,
        room_Bpns; /* room: the most that may be asked of it while it is no gate */
    int32_t gate;  /* its number; -1 */
    /* of one search */
    double count, left_Bpns, share_Bpns;
};

struct flow_few {
    uint64_t used, numbers; /* seats and gates that are taken */
    uint64_t changed;       /* seats that the next search begins with */
    uint64_t due;           /* seats whose next flow ends in this instant, if rates stay */
    int32_t n_blocks;       /* of the ends: behind them all seats were free in the last search */
    double next_ns;         /* the next end of all, where no search is due */
    bool full;              /* more gates than there are numbers */
    double end_ns[FLOWS_SEATS];                 /* INFINITY: nobody's */
    double least_ns[FLOWS_SEATS / FLOWS_BLOCK]; /* of the ends of a block */
    /* Of each seat, side by side, for these are read most: the gates that its route crosses, the flows of its route (as what
     * they are used for) and what all of them get. */
    uint64_t gates[FLOWS_SEATS];
    double n_flows[FLOWS_SEATS], carried_Bpns[FLOWS_SEATS];
    struct flow_seat seats[FLOWS_SEATS];
    int32_t resource[FLOWS_GATES]; /* that a gate is */
};

struct flows {
    struct arena *arena;
    int32_t n_resources, n_routes;
    size_t resource_capacity, route_capacity;
    struct flow_resource *resources;
    struct flow_door *doors; /* (n_resources) */
    struct flow_route *routes;
    /* of routes that have no flows any more; the last one is taken first */
    struct flow_store *spare;
    int32_t n_spare;
    int64_t alive;
    double now_ns;
    uint64_t starts, search;
    bool stale; /* rates are to be found again */
    bool many;
    bool wide; /* so many resources are contended that groups stay for good */
    struct flow_few few;
    /* groups by their next end: heap of resources */
    int32_t *ends, n_ends;
    /* what has changed since rates were found */
    int32_t *dirty, n_dirty; /* groups that lost or got a flow */
    int32_t *fresh, n_fresh; /* routes that got a flow */
    /* of one search */
    int32_t *taken, n_taken;
    int32_t *touched, n_touched;
    struct flow_bound *bounds;
    int32_t n_bounds;
};

#define FLOWS_SAME (1 + 1e-12) /* levels that differ by less are one: noise of the sums */

/* More than it has is asked of it, so it may be somebody's bottleneck beside being the narrowest of a lone route. The
 * margin is the noise of adding and subtracting caps. */
static inline bool flows_contended(const struct flow_resource *r)
{
    return r->demand_Bpns > r->capacity_Bpns * FLOWS_SAME;
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

/* flows_few.c. A start needs a free seat where the route has none; after it, few.full tells whether it was one too many. */
void flows_few_start(struct flows *f, int32_t route, double bytes, int64_t owner);
bool flows_few_end(struct flows *f, double limit_ns, struct flow_end *out);
void flows_few_share(struct flows *f);
/* A route takes a seat; served_bytes: the count that the marks of its flows are relative to. */
void flows_sit(struct flows *f, int32_t route, double served_bytes);
double flows_stand(struct flows *f, int32_t route); /* and leaves it; its count */

/* flows_turn.c */
void flows_to_many(struct flows *f);
void flows_to_few(struct flows *f); /* where they are few by now */

/* flows_cross.c: crossings of one route, or of all routes of one resource */
void flows_cross(struct flows *f, int32_t route, int64_t n_flows); /* more, or less, in its group */
void flows_track(struct flows *f, int32_t resource); /* begins or ends, as its users ask for it */

/* flows_group.c: groups, and starts and ends of many flows */
void flows_join_group(struct flows *f, int32_t route, int32_t resource);
void flows_leave_group(struct flows *f, int32_t route);
void flows_new_end(struct flows *f, int32_t resource);
double flows_count(const struct flows *f, int32_t route); /* what one of its flows was served */
void flows_link(struct flows *f,
                int32_t route); /* a route that has flows now; it gets rates in the next search */
void flows_unlink(struct flows *f, int32_t route);
void flows_many_start(struct flows *f, int32_t route, double bytes, int64_t owner);
bool flows_many_end(struct flows *f, double limit_ns, struct flow_end *out);
/* flows_share.c: rates of everything that the changes since the last search can have reached. */
void flows_share(struct flows *f);
/* flows_keep.c: the same where all bottlenecks may stay as they are; false (and no level changed) where not. */
bool flows_keep(struct flows *f);

#endif
