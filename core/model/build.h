/* core/model/build.h - what model families' forward graphs are built of; for core/model/model*.c alone.
 *
 * A step that fails leaves the error in the builder and every later step does nothing, so a walk reads like its model.
 * Operators are called prefix + name, parameters base + prefix + name + ".weight" or ".bias". Steps return the operator's first
 * output, a tensor of the graph; 0 after an error (a valid tensor that nobody looks at).
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
    int64_t layer;      /* the block's number */
    int64_t tp;         /* that shard every operator; the graph is one's */
    int64_t dropouts;   /* so far */
    enum status status;
    struct error *err;
};

const char *build_join(struct build *b, const char *x, const char *y, const char *z);
struct shape build_vec(int64_t n);
struct shape build_mat(int64_t m, int64_t n);
/* (b, T) of int32 */
int32_t build_input(struct build *b, const char *name, enum tensor_input which);
/* suffix ".weight" or ".bias" of module (its whole name) */
int32_t build_parameter(struct build *b, const char *module, const char *suffix, struct shape shape,
                        enum tensor_init init, double std);
const char *build_module_of(struct build *b, const char *name);

int32_t build_apply(struct build *b, enum op_kind kind, const char *name,
                    const struct op_attrs *attrs, const int32_t *inputs, int32_t n_inputs);
int32_t build_apply1(struct build *b, enum op_kind kind, const char *name,
                     const struct op_attrs *attrs, int32_t x);
int32_t build_apply2(struct build *b, enum op_kind kind, const char *name,
                     const struct op_attrs *attrs, int32_t x, int32_t y);

/* What GPUs share (struct model): one GPU's part of n, x whole again of its partial values, all positions again. */
int64_t build_share(const struct build *b, int64_t n);
int32_t build_joined(struct build *b, const char *name, int32_t x);
int32_t build_gathered(struct build *b, const char *name, int32_t x);

int32_t build_embedding(struct build *b, const char *name, int64_t rows, int32_t ids,
                        int32_t *table);
int32_t build_add_bias(struct build *b, const char *name, int32_t y, int64_t n);
/* y = x·W + b, W (in, out), whose columns the GPUs share; or whose rows */
int32_t build_conv1d(struct build *b, const char *name, int32_t x, int64_t in, int64_t out,
                     double std);
int32_t build_conv1d_rows(struct build *b, const char *name, int32_t x, int64_t in, int64_t out,
                          double std);
/* y = x·Wᵀ (+ b), W (out, in), whose rows (outputs) the GPUs share; or whose columns (inputs) */
int32_t build_linear(struct build *b, const char *name, int32_t x, int64_t in, int64_t out,
                     bool bias);
int32_t build_linear_inputs(struct build *b, const char *name, int32_t x, int64_t in, int64_t out,
                            bool bias);
/* divided: every GPU works on with its own columns */
int32_t build_rms_norm(struct build *b, const char *name, int32_t x, int64_t n, bool divided);
int32_t build_layer_norm(struct build *b, const char *name, int32_t x, int64_t n, bool divided);
/* x itself where rate is 0 */
int32_t build_dropout(struct build *b, const char *name, int32_t x, double rate);
struct op_attrs build_attention_attrs(const struct build *b);
/* All blocks of the model, called list.0. … */
int32_t build_blocks(struct build *b, const char *list, int32_t x,
                     int32_t (*block)(struct build *, int32_t));

#endif
