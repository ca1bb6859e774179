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

enum {
    MODEL_FEATURES_MOST = 64,
    MODEL_CLASSIFIER_MOST = 8,
    FEATURE_MAX_POOL = 0,
    FEATURE_AVG_POOL = -1
};

struct model {
    const char *name;   /* from the path or config's _name_or_path; for people */
    const char *family; /* model_type */
    int64_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocabulary, max_positions;
    int64_t window; /* sliding window, 0 = none */
    bool tied, attention_bias, mlp_bias, qk_norm, gelu_erf;
    bool eager; /* attn_implementation: eager, whose scores stand in memory; else they never do */
    const struct measured_model *measured; /* family measured_layers, else NULL */
    /* Pictures: (channels, image_size, image_size), 0: text; then vocabulary is the number of classes. patch: of vit. */
    int64_t image_size, channels, patch;
    /* vgg: channels of each convolution in order, or FEATURE_*_POOL; widths of the classifier's hidden layers; groups of a
     * group norm behind each convolution, 0: none */
    int32_t n_features, n_classifier, norm_groups;
    int64_t features[MODEL_FEATURES_MOST], classifier[MODEL_CLASSIFIER_MOST];
    bool relu; /* hidden_act of vit: relu; else gelu */
    double norm_eps, rope_theta, init_std;
    struct rope_scaling rope;
    /* How many cards of one device share every operator, and whether also the positions of what is whole on each
     * (sequence parallelism). Not the model's: plan_share sets them from the cluster; 0 and 1 are one card. */
    int32_t tensor_parallel;
    bool sequence_parallel;
};

MUST_CHECK enum status model_read(const struct node *config, const char *name, struct model *out,
                                  struct error *err);
/* The same, measured_layers too, whose table is the arena's. */
MUST_CHECK enum status model_parse(struct arena *a, const struct node *config, const char *name,
                                   struct model *out, struct error *err);
/* config.json text that model_read reads back to the same model, as YAML flow or JSON on one line (for plan.yaml). */
const char *model_write(struct arena *a, const struct model *m);
int64_t model_pixels(const struct model *m);     /* of one picture, all channels; 0: text */
int64_t model_parameters(const struct model *m); /* from the graph's parameters, each once */
/* One card's share where tensor_parallel > 1 (Shoeybi et al. 2019): heads, ffn and vocabulary (padded up) are divided, norms
 * and residuals whole, an all_reduce behind each half of a block and before its gradient; with sequence_parallel
 * (Korthikanti et al. 2023) norms and residuals have a share of the positions, between all_gather and reduce_scatter.
 * The few numbers a row that a divided loss sums are left out.
 * ERR_INPUT: sequence longer than max_positions; heads, ffn or positions that the cards do not divide. */
MUST_CHECK enum status model_graph(struct arena *a, const struct model *m, enum dtype dtype,
                                   int64_t microbatch, int64_t sequence_length, struct graph **out,
                                   struct error *err);

#endif
