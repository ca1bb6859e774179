/* core/model/weight.h - names and shapes of a model's weights on disk: those of Hugging Face's transformers.
 *
 * Parameters of a graph have these names and layouts already (core/model/model_graph.c, decoder.c): gpt2 (in, out), the others (out, in).
 * One table in weight.c has what differs:
 *   - experts: the graph's parameter (experts, out, in) is one tensor (out, in) for each expert on disk, "experts.3.w1.weight" for row 3 of
 *     "experts.w1.weight" (mixtral, qwen3_moe), so its bytes are the tensors of the experts one after the other
 *   - phi3, glm4: q, k, v and gate, up are parameters of their own in the graph, "qkv_proj.weight.0" …, and rows of one tensor on disk
 *   - vit: class token and position embeddings have dimensions of 1 in front
 * and, for reading, other spellings of published files, buffers and heads that are no parameters, and tensors that repeat a tied one.
 * Parameters of other models keep name and shape. */
#ifndef CORE_MODEL_WEIGHT_H
#define CORE_MODEL_WEIGHT_H

#include "core/graph/op.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

/* Tensors on disk of a parameter: 1, or its experts. */
int64_t weight_parts(const char *parameter, const struct shape *shape);
/* Name and shape of the i-th. false: the name is longer than n - 1 bytes, or the shape has no room. */
bool weight_part(const char *parameter, const struct shape *shape, int64_t i, char *name, size_t n, struct shape *part);

/* Part 0, 1 … of a tensor on disk, whose name is the first name_bytes bytes of the parameter's. Parts but the first have equal numbers of rows. */
struct weight_join {
    int32_t name_bytes, part, parts;
};
bool weight_joined(const char *parameter, struct weight_join *out); /* false: the parameter has tensors of its own */
bool weight_is_part_of(const char *parameter, const struct weight_join *join, const char *stored);

/* Spellings of a name in published files: "h.0.ln_1.weight" is "transformer.h.0.ln_1.weight" (gpt2), "LayerNorm.gamma" is
 * "LayerNorm.weight" (bert). The i-th other name, from 0; NULL: no more. */
const char *weight_other_name(struct arena *a, const char *stored, int i);
/* A buffer, or a head that the model does not have: "h.0.attn.bias", "bert.pooler.dense.weight". */
bool weight_ignored(const char *stored);
/* The i-th tensor, from 0, that a tensor on disk may repeat in a model with tied embeddings; NULL: no more. */
const char *weight_repeats(const char *stored, int i);

#endif
