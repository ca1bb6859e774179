/* core/model/layers.h - where a model is cut into layers, when the default cuts are not wanted.
 *
 * A job says `layers: coarse`, `fine` or a number; so do the jobs inside plans, and a plan's layer numbers mean what its
 * own job says. Places are chosen on the forward graph of one sequence on one GPU, unfused, so that neither microbatch
 * sizes nor GPUs in tensor parallelism nor fused kinds move them.
 *   default  cuts of one activation (core/graph/graph): about two layers a block
 *   coarse   one layer a block, all before the first one a layer, all behind the last one another
 *   N        the same with k layers a block, 1 + k·blocks + 1 = N
 *   fine     the largest k that there is; a stretch outside of blocks that has several matrix products is cut where
 *            default layers end
 * Blocks are found, not named: repeats of the graph's operators (core/model/repeats) that have a matrix product. Two operators are
 * equal where kind, attributes, shapes and types agree and their operands come from equal places: as far back, or from
 * the same tensor. Where nothing repeats, the whole graph is cut into N, and coarse is the default.
 * In a block the cuts are those of HARP's operator clustering (arXiv 2509.24859; harp's groups are Alpa's, OSDI 2022):
 *   G(q, r) = min over k of max(G(q−1, k), inbytes(k+1 … r)),  FLOPs(k+1 … r) < (1+ε)·FLOPs/Q,  ε = 0.5,
 * each group with a matrix product. inbytes are of all activations that live in front of the group, because a stage that
 * begins there receives them all, whether it reads them or hands them on. Of groupings equally good by the largest the
 * one with the least sum is taken, then that with the later cuts: behind an activation function rather than before it.
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

/* Cuts a forward graph (one sequence, one device, unfused). ERR_INPUT with the numbers that are possible where this one is
 * not, and where the layers were measured whole. */
MUST_CHECK enum status layers_find(struct graph *g, const struct layers_choice *c,
                                   struct error *err);
/* The same layers in another graph of the same model, found by the names of operators; one that `like` lacks (what
 * GPUs that share an operator add) belongs to the layer of the one before it. */
void layers_like(struct graph *g, const struct graph *like);

/* Operators in order, to be grouped. */
struct layers_work {
    int32_t n;
    const int64_t *in_bytes; /* (n): what lives in front of operator i; < 0: there can be no cut */
    const double *flops;     /* (n) */
    const bool *product;     /* (n): matrix products */
};
/* The best grouping into n_groups; last[q] is group q's last operator. false where there is none.
 * O(n_groups · n · operators of a group). */
bool layers_cluster(struct arena *a, const struct layers_work *w, int32_t n_groups, int32_t *last);

#endif
