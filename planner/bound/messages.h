/* planner/bound/messages.h - messages between disjoint parts of a cluster: fewer layers on a part make more samples cross, more
 * layers make more gradients cross.
 *
 * Part n (a node, or nodes joined by faster links) with capacity C_n, all links that leave it, both directions together. In an
 * iteration the fraction s_n of the batch passes through the part, on layers with g_n bytes of gradients.
 *   activations  a sample that visits v parts crosses v - 1 times, as an activation and as its gradient, a bytes each at the
 *                narrowest cut between layers, and every crossing counts at both ends: 4 a B (Σ s_n - 1) in all
 *   gradients    a layer on k parts is summed over them and the result, or the parameters, return: at least 2 (k - 1) messages of
 *                its bytes (Patarasuk and Yuan 2009), so 4 (Σ g_n - G) in all
 *   work         prices of device time (the dual of the bound on compute, planner/bound/any.h) make a part worth Y_n of the
 *                cluster and a layer worth w_l ns; the part does at most T Y_n, and at most s_n W(g_n), where W(g) is the most
 *                work of layers with g bytes, a concave function; the parts together do W(G)
 * So each unit of work on part n costs at least u_n(T) = min (4 a B s + 4 g) / (s W(g)) bytes, where s <= 1, s W(g) <= T Y_n; T is
 * too short if the parts with the least u_n, filled up to T Y_n, exceed 4 a B + 4 G + T Σ C_n. u_n falls and all else grows
 * with T, so bisection gives the bound.
 */
#ifndef PLANNER_BOUND_MESSAGES_H
#define PLANNER_BOUND_MESSAGES_H

#include <stdint.h>

struct arena;

struct bound_layer_cost {
    double work_ns, bytes; /* w_l of the whole batch; gradients, or 0 */
};
struct bound_part_kind {
    double share;  /* Y_n of one part */
    double Bps;    /* C_n of one part */
    int64_t times; /* equal parts */
};
struct bound_messages {
    struct bound_layer_cost *layers; /* (n_layers) */
    struct bound_part_kind *parts;   /* (n_parts) */
    int32_t n_layers, n_parts;
    double crossing_bytes; /* a B */
};
/* The longest T in ns found to be too short, >= least_ns, which is a bound known before. The layers are reordered,
 * those without work are left out.
 * O(log(1 / accuracy) · parts · layers). */
double bound_messages_ns(struct arena *scratch, struct bound_messages *m, double least_ns);

#endif
