/* core/model/build.h - building blocks of the model families' forward graphs; private to core/model/model*.c.
 *
 * A failed step leaves its error in the builder, and all later steps do nothing, so the code reads like the model.
 * Operators are named prefix + name, parameters base + prefix + name + ".weight" or ".bias". Steps return the operator's first
 * output, a tensor of the graph; 0 after an error (a valid index that is not used).
 */
#ifndef CORE_MODEL_BUILD_H
#define CORE_MODEL_BUILD_H

#include "core/graph/graph.h"
#include "core/model/model.h"

struct build {
    struct graph *g;
    const struct model *m;
    const char *prefix; /* of the block's operators: "h.0." */
    const char *base;   /* of parameters: "transformer." or "model." */
    int64_t layer;      /* index of the block */
    int64_t dropouts;   /* number of dropouts so far */
    enum status status;
    struct error *err;
};

const char *build_join(struct build *b, const char *x, const char *y, const char *z);
struct shape build_vec(int64_t n);
struct shape build_mat(int64_t m, int64_t n);
/* (b, T) int32 */
int32_t build_input(struct build *b, const char *name, enum tensor_input which);
/* suffix ".weight" or ".bias" of module (its full name) */
int32_t build_parameter(struct build *b, const char *module, const char *suffix, struct shape shape,
                        enum tensor_init init, double std);
const char *build_module_of(struct build *b, const char *name);

int32_t build_apply(struct build *b, enum op_kind kind, const char *name,
                    const struct op_attrs *attrs, const int32_t *inputs, int32_t n_inputs);
int32_t build_apply1(struct build *b, enum op_kind kind, const char *name,
                     const struct op_attrs *attrs, int32_t x);
int32_t build_apply2(struct build *b, enum op_kind kind, const char *name,
                     const struct op_attrs *attrs, int32_t x, int32_t y);

int32_t build_embedding(struct build *b, const char *name, int64_t rows, int32_t ids,
                        int32_t *table);
int32_t build_add_bias(struct build *b, const char *name, int32_t y, int64_t n);
/* y = x·W + b, W (in, out) */
int32_t build_conv1d(struct build *b, const char *name, int32_t x, int64_t in, int64_t out,
                     double std);
/* y = x·Wᵀ (+ b), W (out, in) */
int32_t build_linear(struct build *b, const char *name, int32_t x, int64_t in, int64_t out,
                     bool bias);
/* weight: the name of its parameter behind the prefix */
int32_t build_linear_of(struct build *b, const char *name, const char *weight, int32_t x, int64_t in,
                        int64_t out, bool bias);
/* unit_offset: the factor is 1 + weight */
int32_t build_rms_norm(struct build *b, const char *name, int32_t x, int64_t n, bool unit_offset);
int32_t build_layer_norm(struct build *b, const char *name, int32_t x, int64_t n);
/* x itself if rate is 0 */
int32_t build_dropout(struct build *b, const char *name, int32_t x, double rate);
struct op_attrs build_attention_attrs(const struct build *b);
/* All blocks of the model, named list.0. … */
int32_t build_blocks(struct build *b, const char *list, int32_t x,
                     int32_t (*block)(struct build *, int32_t));
/* Logits and the loss. table: the embedding, of tied heads; untied heads have a weight of their own, (vocabulary, hidden) in every family. */
void build_head_and_loss(struct build *b, int32_t x, int32_t table, int32_t targets);

#endif
