/* core/model/model.h - Hugging Face config.json → forward graph.
 *
 * Families: gpt2; llama, mistral, qwen2, qwen3, gemma2, gemma3_text, olmo2, phi3, glm4 (core/model/decoder.h); mixtral, qwen3_moe (experts); bert (masked language modelling, dense or
 * with experts); and measured_layers, a table of layers without operators
 * (core/model/measured.h). Unknown model_type: ERR_INPUT with the known ones.
 * A config with a text_config is that of its language model. vit (ViTForImageClassification) and vgg are image models: inputs pixels (b,c,h,w) and labels (b); global batch and microbatch
 * count images; the sequence length is that of one image: patches and the class token (vit), 1 (vgg).
 * The graph is built for one microbatch: inputs tokens, positions (learned positions only), targets (b,T); bert also segments.
 *
 * Experts. The router's projection has its Hugging Face name (block_sparse_moe.gate, mlp.gate); the weights of a layer's experts
 * are one parameter for each projection, (experts, out, in), stacked by expert index: Hugging Face's
 * experts.3.w1.weight is row 3 of experts.w1.weight. Keys beyond Hugging Face's:
 *   capacity_factor       c: an expert takes at most ceil(c·k·T/E) rows of a sequence, by position; the others skip it (their
 *                         gate for it counts as 0). null: all T of them, none is dropped, as in the original models;
 *                         the default except for bert, with 1.25 (Switch Transformers, Fedus et al. 2022). Without a factor, every
 *                         expert has slots for all T rows, E/k times the memory of the actual rows, or for the load that the
 *                         job states (expert_imbalance), as dropless frameworks size their buffers
 *   bert: num_experts, num_experts_per_tok (2), encoder_sparse_step (2: every second block, from the second on); its modules
 *                         are moe.gate, moe.experts.intermediate and moe.experts.output
 * Experts have no biases. The load-balancing loss (router_aux_loss_coef) is read and kept, but not trained, because over a
 * batch it is not a sum over sequences.
 * vgg keys: image_size (224), num_channels (3), num_labels (1000); features, a list of channels of 3 x 3 convolutions
 * with M and A for maximum and average pooling by 2 (configuration E of Simonyan and Zisserman 2014, VGG19); classifier,
 * the widths of its hidden layers ([4096, 4096]); norm_groups (0), above 0 a group norm after each convolution, norm_eps;
 * dropout (0.5) of the classifier. Parameters have torchvision's names.
 *
 * Dropout applies to hidden states and embeddings as in the model's paper, if the job requests it (core/model/job.h);
 * attention probabilities have none.
 */
#ifndef CORE_MODEL_MODEL_H
#define CORE_MODEL_MODEL_H

#include "core/base/error.h"
#include "core/document/document.h"
#include "core/graph/graph.h"

enum {
    MODEL_DENSE_MAX = 64,
    MODEL_FEATURES_MAX = 64,
    MODEL_CLASSIFIER_MAX = 8,
    FEATURE_MAX_POOL = 0,
    FEATURE_AVG_POOL = -1
};

/* The experts of a transformer block, of a plan (core/plan/plan.h): their order in the parameters of the program, and the popularity that
 * its times assume. */
struct expert_block {
    int32_t block;        /* from 0 */
    const int32_t *order; /* (experts) expert at each place, a permutation; NULL: 0, 1, 2 … */
    const int64_t *tokens; /* (experts) by expert: routed tokens, of which only the ratios matter; NULL: equal shares */
};

struct model {
    const char *name;   /* from the path or config's _name_or_path; for display */
    const char *family; /* model_type */
    int64_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocabulary, max_positions;
    int64_t window; /* sliding window, 0 = none */
    int64_t window_pattern; /* n > 0: layers n - 1, 2n - 1 … have none */
    int64_t rotary_dim;     /* features of a head that rotate; 0: all */
    bool tied, attention_bias, mlp_bias, gelu_erf;
    bool eager; /* attn_implementation: eager, which materialises scores */
    const struct measured_model *measured; /* family measured_layers, else NULL */
    /* Images: (channels, image_size, image_size), 0: text; then vocabulary is the number of classes. patch: vit only. */
    int64_t image_size, channels, patch;
    /* vgg: channels of each convolution in order, or FEATURE_*_POOL; widths of the classifier's hidden layers; groups of the
     * group norm after each convolution, 0: none */
    int32_t n_features, n_classifier, norm_groups;
    int64_t features[MODEL_FEATURES_MAX], classifier[MODEL_CLASSIFIER_MAX];
    bool relu; /* hidden_act of vit: relu; else gelu */
    double norm_eps, rope_theta, init_std;
    double local_theta;  /* rotary base of layers with a window, without `rope`; 0: rope_theta */
    double query_scalar; /* scores are divided by its square root; 0: head_dim */
    double attention_softcap, logit_softcap; /* 0: none */
    int64_t experts; /* of each layer with experts; 0: none */
    int64_t chosen;  /* experts per position (top-k) */
    int64_t expert_intermediate,
        sparse_step;        /* layers sparse_step - 1, 2·sparse_step - 1 … have experts */
    double capacity_factor; /* 0: no limit */
    double expert_imbalance; /* of the job: largest load of an expert over the even one; 0: not stated */
    bool renormalise;       /* the chosen gates sum to 1 */
    int32_t n_expert_blocks; /* of the plan, not of the config */
    const struct expert_block *expert_blocks; /* (n_expert_blocks) ascending blocks */
    int32_t n_dense_layers; /* layers without experts despite sparse_step (mlp_only_layers) */
    int32_t dense_layers[MODEL_DENSE_MAX];
    double aux_loss;  /* router_aux_loss_coef: kept, not trained */
    int64_t segments; /* bert: token types */
    /* Rates in the config, and those the job requests: of hidden states before they are added to the residual stream, and
     * of embeddings. */
    double config_hidden_dropout, config_embedding_dropout, hidden_dropout, embedding_dropout;
    double balance; /* coefficient of the load-balancing loss, from the job */
    struct rope_scaling rope;
};

MUST_CHECK enum status model_read(const struct node *config, const char *name, struct model *out,
                                  struct error *err);
/* The same, also for measured_layers, whose table is the arena's. */
MUST_CHECK enum status model_parse(struct arena *a, const struct node *config, const char *name,
                                   struct model *out, struct error *err);
/* config.json text that model_read reads back to the same model, as YAML flow or one line of JSON (for plan.yaml). */
const char *model_write(struct arena *a, const struct model *m);
/* Its class in transformers, "GPT2LMHeadModel"; NULL: transformers has none (vgg, bert with experts, measured layers). */
const char *model_architecture(const struct model *m);
/* The same text over several lines with `architectures`: config.json of a folder that transformers loads. */
const char *model_config(struct arena *a, const struct model *m);
int64_t model_pixels(const struct model *m);     /* of one image, all channels; 0: text */
int64_t model_parameters(const struct model *m); /* from the graph's parameters, each once */
/* Active parameters: those that one position passes through, with the chosen experts only. */
int64_t model_active_parameters(const struct model *m);
bool model_has_experts(const struct model *m, int64_t layer);
/* What the plan states about the experts of a block; NULL: nothing. */
const struct expert_block *model_expert_block(const struct model *m, int64_t block);
/* Capacity: slots of an expert for one sequence. */
int64_t model_capacity(const struct model *m, int64_t sequence_length);
/* What memory and time of layers with experts assume, for one line; NULL: no experts. */
const char *model_experts_assumed(struct arena *a, const struct model *m, int64_t sequence_length);
/* Masked language modelling: masked positions of a sequence, round(0.15·length), at least 1. */
int64_t model_masked_positions(int64_t sequence_length);
/* The forward graph of a microbatch. ERR_INPUT: a sequence longer than max_positions. */
MUST_CHECK enum status model_graph(struct arena *a, const struct model *m, enum dtype dtype,
                                   int64_t microbatch, int64_t sequence_length, struct graph **out,
                                   struct error *err);

#endif
