/* planner/bound/memory.h - memory of a cluster: parameters, optimizer state and the activations in flight, or their recomputation.
 *
 * In plans with microbatches of b samples and iterations of at most T, B samples of a batch pass layer l in flight:
 *   state        every parameter with its gradient and optimizer state is stored at least once: s_l bytes, where its update is done
 *                (ZeRO divides one copy, Rajbhandari et al. 2020; replicas add copies)
 *   activations  a_l bytes per sample from the begin of the forward of the layer's stage to the end of its backward, hence for at
 *                least h_l = Σ_{k >= l} of the least F + I. Each stage has room for a whole number of microbatches all the time, so a
 *                replica with the share f of the batch holds at least a_l max(b, f B h_l / T) >= f a_l max(b, B h_l / T)
 *                (Little 1961)
 *   recomputed   a replica whose stage recomputes a layer holds nothing of it, and runs r_l device time a sample more
 *                (Chen et al. 2016)
 * With x_lg, y_lg, z_lg the parts of the batch that class g takes through layer l with and without its activations kept, and of the
 * layer's update, and n_l = max(b, B h_l / T):
 *   min P:  N_g P >= Σ_l B w_lg (x_lg + y_lg) + B r_lg y_lg + u_lg z_lg;   Σ_g x_lg + y_lg >= 1, Σ_g z_lg >= 1;
 *           Σ_l a_l n_l x_lg + s_l z_lg <= memory, summed over the classes of a pool
 * is at most the iteration of every such plan. n_l falls with T, so if P > T no plan takes T or less, and bisection gives the bound.
 * A class is a pool of its own if every stage is of one class, because then a class holds what it works on.
 */
#ifndef PLANNER_BOUND_MEMORY_H
#define PLANNER_BOUND_MEMORY_H

#include <stdint.h>

struct arena;

struct bound_memory_layer {
    double kept_bytes, state_bytes, hold_ns; /* a_l, s_l, h_l */
    const double *work_ns, *again_ns, *update_ns; /* (n_classes) w, r, u; INFINITY: the class cannot hold it */
};
struct bound_memory {
    int32_t n_layers, n_classes;
    const struct bound_memory_layer *layers; /* (n_layers) from the first to the last */
    const int64_t *count;                    /* (n_classes) devices */
    const double *bytes;                     /* (n_classes) of one device, for tensors */
    const int32_t *pool;                     /* (n_classes) 0 … n_classes - 1 */
    double batch, microbatch;                /* B, b */
};
/* The longest T in ns found to be too short, >= least_ns, which is a bound known before. INFINITY is never returned.
 * O(1 + log(1 / accuracy), if memory binds) linear programs of O(classes · distinct layers) columns. */
double bound_memory_ns(const struct bound_memory *m, double least_ns);

#endif
