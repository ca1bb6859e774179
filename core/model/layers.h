/* core/model/layers.h - where a model is cut into layers, the units of which stages consist.
 *
 * A job states `layers: coarse`, `fine` or a number; so do the jobs inside plans, which define the plan's layer numbers.
 * Cuts are chosen on the unfused forward graph of one sequence on one GPU, so they depend neither on microbatch
 * sizes nor on fused kinds.
 *   default  cuts of one activation (core/graph/graph): about two layers a block
 *   coarse   one layer a block, one before the first block, one after the last
 *   N        the same with k layers a block, 1 + k·blocks + 1 = N
 *   fine     the largest possible k; a run outside blocks with several matrix products is cut where
 *            default layers end
 * Blocks are found by structure, not by name: repeats of the graph's operators (core/model/repeats) with a matrix product. Two
 * operators are equal if kind, attributes, shapes and types agree and their operands come from equal positions: the same distance
 * back, or the same tensor. Without repeats the whole graph is cut into N, and coarse is the default.
 * The cuts in a block are those of HARP's operator clustering (arXiv 2509.24859; HARP's groups are Alpa's, OSDI 2022):
 *   G(q, r) = min over k of max(G(q−1, k), inbytes(k+1 … r)),  FLOPs(k+1 … r) < (1+ε)·FLOPs/Q,  ε = 0.5,
 * each group with a matrix product. inbytes counts all activations live before the group, because a stage that
 * begins there receives them all, to read or to forward. Ties of the maximum are broken by the
 * least sum, then by the later cuts: after an activation function rather than before it.
 */
#ifndef CORE_MODEL_LAYERS_H
#define CORE_MODEL_LAYERS_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct graph;

enum layers_by { LAYERS_DEFAULT, LAYERS_COARSE, LAYERS_FINE, LAYERS_NUMBER };
struct layers_choice {
    enum layers_by by;
    int32_t n; /* NUMBER: >= 1 */
};

/* Cuts a forward graph (one sequence, one device, unfused). ERR_INPUT with the possible numbers if this one is
 * not, and for measured layers. */
MUST_CHECK enum status layers_find(struct graph *g, const struct layers_choice *c,
                                   struct error *err);
/* The same layers in another graph of the same model, matched by the names of operators; operators that `like` lacks
 * belong to the layer of the preceding operator. */
void layers_like(struct graph *g, const struct graph *like);

/* Operators in order, to be divided into groups. */
struct layers_work {
    int32_t n;
    const int64_t *in_bytes; /* (n): live activations before operator i; < 0: no cut possible */
    const double *flops;     /* (n) */
    const bool *product;     /* (n): matrix products */
};
/* The best grouping into n_groups; last[q] is group q's last operator. false: none.
 * O(n_groups · n · operators of a group). */
bool layers_cluster(struct arena *a, const struct layers_work *w, int32_t n_groups, int32_t *last);

#endif
