/* sim/network/flows.h - max-min fair sharing of many resources by many flows, kept up to date as flows start and end.
 *
 * A resource has a capacity. A route is a set of resources, and a flow moves a number of bytes along one route; all of its
 * resources carry it at the same rate at the same time (a fluid). Rates are max-min fair (Bertsekas and Gallager, Data
 * Networks, 2nd ed., 6.5.2): no flow can have more without taking from one that has no more than it. Equivalently every
 * flow has a *bottleneck*: a full resource on which no other flow has a higher rate. All flows with one bottleneck have
 * one rate, the *level* of that resource.
 *
 * Rates change only when a flow starts or ends, so time advances from one such instant to the next. The caller owns the clock.
 * It queries the next end, starts the flows that begin before it, and takes the ends:
 *
 *     while (flows_next_ns(f) <= start of the next one) flows_end(f, …);
 *     flows_start(f, start, …);
 *
 * Up to about a hundred flows over up to 64 routes at once: routes and contended resources are bits of a word, and the next
 * end is found by a scan over all of them (flows_few.c). Many flows are cheap because of three measures (flows_share.c
 * recomputes rates):
 *   - flows of one route share one rate. A route counts the bytes that each of its flows has received; a flow ends when
 *     that count reaches its mark, and the marks of a route are a heap: a change of rate costs a route nothing.
 *   - routes with one bottleneck share one level, so the count is kept there, once for all of them, and each route holds
 *     its offset from it: a change of level costs O(1) for any number of flows.
 *   - rates are computed lazily, on a query, so that all events of one instant cost one search.
 * Discarded: rates of every flow recomputed at every event (quadratic); a system of equations for each event.
 *
 * Units: bytes, bytes per second, nanoseconds as double since an origin of the caller's choice. Nothing is rounded here:
 * callers that need whole nanoseconds round the result of flows_end, once. Ends less than FLOWS_GRAIN_NS apart are one
 * instant, because rounding errors of sums of doubles would otherwise split one end into many. Keep instants below 2^43
 * (flows_rebase), so that a double still resolves them.
 * Order of ends in one instant: few flows by their computed end, equal ones by bottleneck, then by start; many by
 * bottleneck as it was found, inside it by mark, equal marks by start. Same calls, same answers.
 * Cost: start and end O(log flows of the route + resources of the route) and the share of a search; about 650 instructions
 * each for 32 flows in a tree whose hosts alone are contended. Memory: O(flows at once + sizes of the routes), in the arena.
 */
#ifndef SIM_NETWORK_FLOWS_H
#define SIM_NETWORK_FLOWS_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define FLOWS_GRAIN_NS 0x1p-10 /* a thousandth of the simulated clock's resolution */

struct arena;
struct flows; /* opaque */

struct flow_end {
    int64_t owner; /* as passed to flows_start */
    double start_ns, end_ns;
};

struct flows *flows_new(struct arena *a);
/* A new resource; *out counts from 0. ERR_INPUT: a capacity that is not above 0 and finite; name is used in the message. */
MUST_CHECK enum status flows_resource(struct flows *f, const char *name, double capacity_Bps,
                                      int32_t *out, struct error *err);
/* A route over n >= 1 resources, in any order; one that is named twice counts once. Counts from 0. O(n). */
int32_t flows_route(struct flows *f, const int32_t *resources, int32_t n);
/* The same, but on resources[i] one flow of the route stands for weights[i] >= 1 equal flows, each of the flow's bytes (symmetry
 * reduction: sim/engine/fold.h). NULL: 1. */
int32_t flows_weighted_route(struct flows *f, const int32_t *resources, const int32_t *weights,
                             int32_t n);
/* bytes >= 0. now_ns: not before the last end taken and not after the next one (an earlier now_ns is replaced by the last
 * end, because rounding may place an end after the start that depends on it). */
void flows_start(struct flows *f, double now_ns, int32_t route, double bytes, int64_t owner);
/* Removes the only flow of the route, now (as in flows_start), and returns the bytes that it still had to receive. */
double flows_withdraw(struct flows *f, double now_ns, int32_t route);
/* Flows on the resource, those of one route counted once. */
int32_t flows_routes_on(const struct flows *f, int32_t resource);
/* Bytes per nanosecond of a flow that has all resources of the route to itself. */
double flows_alone_Bpns(const struct flows *f, int32_t route);
int64_t flows_owner(const struct flows *f, int32_t route); /* of the route's only flow; -1: it has none, or several */
const int32_t *flows_path(const struct flows *f, int32_t route, int32_t *n); /* the route's resources, each once */
/* The next end if nothing else starts; INFINITY if there is none */
double flows_next_ns(struct flows *f);
/* Takes the next end if it is not after limit_ns; else false. */
bool flows_end(struct flows *f, double limit_ns, struct flow_end *out);
int64_t flows_alive(const struct flows *f);
/* Bytes per second of each of the route's flows; 0 if it has none. */
double flows_rate(struct flows *f, int32_t route);
/* All instants from here on count from an origin that is shift_ns later. O(bottlenecks + flows). */
void flows_rebase(struct flows *f, double shift_ns);

#endif
