/* core/model.h - Hugging Face config.json → forward graph.
 *
 * Families: gpt2, llama, mistral, qwen2, qwen3 (dense); and measured_layers, a table of layers whose operators nobody
 * knows (core/model_measured.h). Unknown model_type: ERR_INPUT that lists them.
 * The graph is built for one microbatch: inputs tokens, positions (learned positions only), targets (b,T).
 */
#ifndef CORE_MODEL_H
#define CORE_MODEL_H

#include "core/document.h"
#include "core/error.h"
#include "core/graph.h"

struct model {
    const char *name;   /* from the path or config's _name_or_path; for people */
    const char *family; /* model_type */
    int64_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocabulary, max_positions;
    int64_t window; /* sliding window, 0 = none */
    bool tied, attention_bias, mlp_bias, qk_norm, gelu_erf;
    const struct measured_model *measured; /* family measured_layers, else NULL */
    double norm_eps, rope_theta, init_std;
    struct rope_scaling rope;
};

MUST_CHECK enum status model_read(const struct node *config, const char *name, struct model *out,
                                  struct error *err);
/* The same, measured_layers too, whose table is the arena's. */
MUST_CHECK enum status model_parse(struct arena *a, const struct node *config, const char *name,
                                   struct model *out, struct error *err);
/* config.json text that model_read reads back to the same model, as YAML flow or JSON on one line (for plan.yaml). */
const char *model_write(struct arena *a, const struct model *m);
int64_t model_parameters(const struct model *m); /* from the graph's parameters, each once */
/* ERR_INPUT: sequence longer than max_positions. */
MUST_CHECK enum status model_graph(struct arena *a, const struct model *m, enum dtype dtype,
                                   int64_t microbatch, int64_t sequence_length, struct graph **out,
                                   struct error *err);

#endif
