/* core/model/measured.h - a model as a table of measured layers.
 *
 * If only the times of whole layers are known (per device type, microbatch and tensor-parallel degree),
 * the model consists of the sizes that a plan needs: a layer is one forward operator, one backward operator with both
 * gradients, and a parameter. Their prices are rows of a profile only (profiles/measured.h). Such a
 * model is planned and simulated; it has no kernels and cannot be run.
 *
 *   {"model_type": "measured_layers", "version": 1, "_name_or_path": "OPT-350", "sequence_length": 2048,
 *    "tensor_parallel": [1, 2, 4],
 *    "layers": [{"name": "embedding", "cost": "0", "output": 2097152,
 *                "parameters": [53608448, 27918336, 15073280], "kept": [0, 4608, 4608]}, …]}
 *
 * Sizes are elements (fp32) of one sequence. output: the activation passed to the next layer, replicated on every GPU; 0 for the
 * last, which computes the loss. parameters and kept (what the backward reads besides input and output gradient): of one
 * GPU, for each degree in tensor_parallel. Layers with one `cost` have equal times.
 */
#ifndef CORE_MODEL_MEASURED_H
#define CORE_MODEL_MEASURED_H

#include "core/base/error.h"
#include "core/document/document.h"
#include "core/document/json.h"
#include "core/graph/graph.h"
#include "core/model/model.h"

struct measured_layer {
    const char *name, *cost;
    int64_t output;
    struct shares parameters, kept;
};
struct measured_model {
    int64_t sequence_length;
    int32_t n_layers, n_tp;
    int32_t *tp; /* (n_tp), ascending */
    struct measured_layer *layers;
};

MUST_CHECK enum status measured_model_read(struct arena *a, const struct node *config,
                                           struct model *m, struct error *err);
void measured_model_write(struct json *j, const struct model *m);
/* Forward graph: one operator a layer. ERR_INPUT: precision other than fp32, or a sequence length that was not measured. */
MUST_CHECK enum status measured_model_graph(struct arena *a, const struct model *m,
                                            enum dtype dtype, int64_t microbatch,
                                            int64_t sequence_length, struct graph **out,
                                            struct error *err);

#endif
