/* planner/bound/groups.h - lower bound of the plans of equal pipelines, whose stages are whole layers on whole groups of equal GPUs.
 *
 * The class. D equal replicas; stage i of each has the same contiguous layers on as many GPUs of the same class, an *option*: n GPUs of one
 * node that shard every operator by the same rules. A stage recomputes nothing, all its blocks or itself; a part of its blocks is outside the class. Parameters and gradients are whole in
 * every replica, optimizer state is divided over the replicas or not (ZeRO 0 and 1, not hybrid_shard). Any D, any options and layers of the stages, any order
 * of the F, I and W (forward, input gradient, weight gradient) of whole microbatches. The M microbatches are shared equally, so the largest share is m = ceil(M / D).
 *
 * On an option a layer takes F, I, W and r (its recomputation) a microbatch, collectives included; on one GPU it has s bytes in every
 * replica, z of optimizer state, a of a microbatch from F to I, and w of one from I to W. Let P be the pass of a microbatch through all stages
 * forward and back (at most F + I of each) with its messages, and h the least pass from a stage to the last. In iterations of at most T a stage (sums over its layers):
 *   work     m (F + I + W + r) <= T
 *   memory   s + z / D + K a <= room for K = max(1, m h / T) microbatches (Little 1961)
 *   fill     The waits for other stages before its first F, after its last I, and between the last F and its I, are at least P - F - I together. Only I
 *            of the at most room / a microbatches before their I, and W of at most room / w, run in them (the last stage waits for no I,
 *            the first one also waits between its first F and I): the rest is added to its work
 *   sums     The copies of a stage, or all GPUs that hold the same parameters, add the gradients in rings. Of D members each sends 2 (D - 1)
 *            messages of 1 / D of the gradients, each after one that it receives, and none before its own last W begins (last B, if I and W
 *            are one). Let the last of these begin at t, in member d. The link i members behind d carries at least 2 (D - 1) - i messages
 *            after t. The receiver's next F waits for them, and its own last W began by t (the GPUs of a stage begin it together, because their
 *            collectives join them). Hence, with S the time of these messages, floor(M / D) (F + I + W + r) - (I + W + r) + S <= T.
 *            together  All copies are on one node: 2 (1 - 1 / D) g on the link behind d; a bus carries the 3/2 D (D - 1) messages of all
 *                      links in two directions. But D n GPUs of a node share the messages that D replicas send to other nodes.
 *            apart     The first link behind d to another node is at most c - 1 members away, c < D: members that a node has room for.
 *                      Hence (2 - (c + 1) / D) g.
 *            P contains what stage 0 does or awaits between its last I and next F, because the next F of all stages wait for it: W, or what
 *            is sent to every member after t, (1 - 1 / D) g or (1 - c / D) g, if longer than I.
 * So the longest stage of an option that ends at a layer is known, and dynamic programming over the layers gives the cheapest replica for
 * prices of a GPU of each class and of a nanosecond of P. If it costs more than all that a replica may have (N / D GPUs, and P), no plan of
 * these D and P takes T. Kelley's cutting planes (1960) find the prices; any prices give a valid bound. Cases of D and P are divided until each is
 * refuted (each term takes its least value in a case), or one is not; bisection gives T.
 * Not counted: links shared by several stages, P of each stage's place, updates.
 */
#ifndef PLANNER_BOUND_GROUPS_H
#define PLANNER_BOUND_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

struct bound_group_layer { /* of a microbatch, on one GPU */
    double forward_ns, input_ns, weight_ns, again_ns;
    double
        pass_ns; /* of F + I between the arrival and the departure of what crosses the layer's ends, at least */
    double whole_bytes, divided_bytes, kept_bytes, waiting_bytes; /* s, z, a, w */
    double near_sum_ns; /* g of one GPU to another of the node */
    double far_sum_ns;  /* g of all GPUs of a stage from the node to others */
};
struct bound_group_option {
    int32_t device_class, gpus;
    double room_bytes; /* of one GPU */
    double near_message_ns, far_message_ns; /* to a stage on the same node, and on another */
    double node_part;                       /* of a node's GPUs */
    double border_ns; /* forward and back, to convert what crosses one end of a stage */
    int32_t copies;   /* that a node has room for */
    int32_t holders;  /* GPUs of a stage that hold the same parameters, at least */
    bool bus;         /* GPUs of a node share one link */
    const struct bound_group_layer *layers; /* (n_layers) */
};
struct bound_groups {
    int32_t n_layers, n_classes, n_options;
    const int64_t *count; /* (n_classes) GPUs */
    const struct bound_group_option *options;
    int64_t microbatches; /* M */
    double far_ns; /* of all messages of a pass that their averages count too much, at most */
};
/* The longest time found in which no plan of the class is done, at most `most_ns`. 0: less than a quarter of most_ns. *binding: what
 * limits most of the stages there; unchanged if most_ns itself is refuted. O(cases of D and P · layers · options). */
double bound_groups_ns(const struct bound_groups *b, double most_ns, const char **binding);

#endif
