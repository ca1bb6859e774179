/* sim/network/flows.h - max-min fair sharing of many resources by many flows, kept up to date as flows start and end.
 *
 * A resource has a capacity. A route is a set of resources, and a flow moves so many bytes along one route; all of its
 * resources carry it at the same rate at the same time (a fluid). Rates are max-min fair (Bertsekas and Gallager, Data
 * Networks, 2nd ed., 6.5.2): no flow can have more without taking from one that has no more than it. Equivalently every
 * flow has a *bottleneck*: a resource that is full and where no other flow has more. All flows with one bottleneck have
 * one rate, the *level* of that resource.
 *
 * Rates change only when a flow starts or ends, so time goes from one such instant to the next. The owner of the clock
 * asks for the next end, starts what starts before it, and takes the ends:
 *
 *     while (flows_next_ns(f) <= start of the next one) flows_end(f, …);
 *     flows_start(f, start, …);
 *
 * Up to about a hundred flows over up to 64 routes at once: routes and contended resources are bits of a word, and who ends
 * next is found by going through all of them (flows_few.c). What makes many cheap (flows_share.c says how rates are found
 * again):
 *   - flows of one route share one rate. A route counts the bytes that one of its flows has been served; a flow ends when
 *     that count reaches a mark, and the marks of a route are a heap: a change of rate costs a route nothing.
 *   - routes with one bottleneck share one level, so the count is kept there, once for all of them, and each route holds
 *     its distance from it: a change of level costs O(1) however many flows it speeds up or slows down.
 *   - rates are found when somebody asks, so that all that happens in one instant costs one search.
 * Discarded: rates anew for every flow at every event (quadratic); a set of equations for each event.
 *
 * Units: bytes, bytes a second, nanoseconds as double since an origin of the caller's choice. Nothing is rounded here:
 * who needs whole nanoseconds rounds what flows_end says, once. Ends that lie less than FLOWS_GRAIN_NS apart are one
 * instant: the noise of adding up doubles would otherwise make many of one. Keep instants below 2^43 (flows_rebase), so
 * that a double still tells them apart that well.
 * Order of ends in one instant: few flows by the end as the sums gave it, equal ones by bottleneck, then by start; many by
 * bottleneck as it was found, inside it by mark, equal marks by start. Same calls, same answers.
 * Cost: start and end O(log flows of the route + resources of the route) and the share of a search; about 650 instructions
 * each for 32 flows in a tree whose hosts alone are contended. Memory: O(flows at once + sizes of the routes), in the arena.
 */
#ifndef SIM_NETWORK_FLOWS_H
#define SIM_NETWORK_FLOWS_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define FLOWS_GRAIN_NS 0x1p-10 /* a thousandth of what a simulated clock can show */

struct arena;
struct flows; /* opaque */

struct flow_end {
    int64_t owner; /* as it was started with */
    double start_ns, end_ns;
};

struct flows *flows_new(struct arena *a);
/* A new resource; *out counts from 0. ERR_INPUT: a capacity that is not above 0 and finite; name is for that message. */
MUST_CHECK enum status flows_resource(struct flows *f, const char *name, double capacity_Bps,
                                      int32_t *out, struct error *err);
/* A route over n >= 1 resources, in any order; one that is named twice counts once. Counts from 0. O(n). */
int32_t flows_route(struct flows *f, const int32_t *resources, int32_t n);
/* bytes >= 0. now_ns: not before what has ended already and not after what is still to end (an earlier one is taken as
 * the end before it: rounding may put an end behind the start that it allows). */
void flows_start(struct flows *f, double now_ns, int32_t route, double bytes, int64_t owner);
/* The next end if nothing else starts; INFINITY where none */
double flows_next_ns(struct flows *f);
/* The next end, where it is not after limit_ns; false where it is. */
bool flows_end(struct flows *f, double limit_ns, struct flow_end *out);
int64_t flows_alive(const struct flows *f);
/* Bytes a second of each of the route's flows; 0 where it has none. */
double flows_rate(struct flows *f, int32_t route);
/* All instants from here on count from an origin that is shift_ns later. O(bottlenecks + flows). */
void flows_rebase(struct flows *f, double shift_ns);

#endif
