/* sim/flows_internal.h - the tables of sim/flows; for sim/flows*.c alone.
 *
 * A resource that is some route's bottleneck is a *group*: its members are those routes. served_bytes is what one flow of
 * the group would have been served since the group began, up to since_ns; a route's own count is served + offset.
 * Members are a heap by `key`: the group's count at which the route's next flow ends.
 */
#ifndef SIM_FLOWS_INTERNAL_H
#define SIM_FLOWS_INTERNAL_H

#include "sim/flows.h"

#include <math.h>
#include <stddef.h>

struct flow {
    double mark_bytes; /* ends when its route's count is there */
    double start_ns;
    uint64_t seq; /* of the start: breaks ties */
    int64_t owner;
};

struct flow_route {
    int32_t n_resources;
    int32_t *resources;
    /* (n_resources): where it stands among the resource's routes, while it has flows */
    int32_t *place;
    int32_t narrow;  /* of its resources the one with the least capacity, the first among equals */
    double cap_Bpns; /* that capacity: all its flows together never have more */
    int32_t n_flows; /* flows[]: heap by (mark, seq) */
    size_t capacity;
    struct flow *flows;
    int32_t group, at; /* -1: no level yet; its place in the group's heap */
    double offset_bytes, key_bytes;
    double carried_Bpns; /* all its flows together, as of the last search */
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
    double load_Bpns;   /* where it is contended: sum of what its routes carried */
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

struct flows {
    struct arena *arena;
    int32_t n_resources, n_routes;
    size_t resource_capacity, route_capacity;
    struct flow_resource *resources;
    struct flow_route *routes;
    int64_t alive;
    double now_ns;
    uint64_t starts, search;
    bool many; /* crossings are kept and flows_keep is asked */
    /* groups by their next end: heap of resources */
    int32_t *ends, n_ends;
    /* what has changed since rates were found */
    bool stale;
    int32_t *dirty, n_dirty; /* groups that lost or got a flow */
    int32_t *fresh, n_fresh; /* routes that got a flow */
    /* of one search */
    int32_t *taken, n_taken;
    int32_t *touched, n_touched;
    struct flow_bound *bounds;
    int32_t n_bounds;
};

/* More than it has is asked of it, so it may be somebody's bottleneck beside being the narrowest of a lone route. The
 * margin is the noise of adding and subtracting caps. */
static inline bool flows_contended(const struct flow_resource *r)
{
    return r->demand_Bpns > r->capacity_Bpns * (1 + 1e-12);
}
static inline double flows_served(const struct flow_resource *r, double now_ns)
{
    return r->served_bytes + r->level_Bpns * (now_ns - r->since_ns);
}

/* flows_cross.c: crossings of one route, or of all routes of one resource */
void flows_cross(struct flows *f, int32_t route, int64_t n_flows); /* more, or less, in its group */
void flows_track(struct flows *f, int32_t resource); /* begins or ends, as its users ask for it */
void flows_track_all(struct flows *f);               /* as the number of flows asks for it */

/* flows_share.c: the load of one resource, added up anew. */
void flows_load(struct flows *f, int32_t resource);

/* flows.c: groups */
void flows_join_group(struct flows *f, int32_t route, int32_t resource);
void flows_leave_group(struct flows *f, int32_t route);
void flows_new_key(struct flows *f, int32_t route); /* its next flow is another one */
void flows_new_end(struct flows *f, int32_t resource);
/* flows_share.c: rates of everything that the changes since the last search can have reached. */
void flows_share(struct flows *f);
/* flows_keep.c: the same where all bottlenecks may stay as they are; false (and no level changed) where not. */
bool flows_keep(struct flows *f);

#endif
