/* core/model/model.c - config.json → struct model, and back.
 *
 * Hugging Face's files carry many keys that do not concern the shape of the training step; those
 * are ignored. Keys that would change the computation in a way this program does not build
 * (quantised weights, other activations, other rotary scalings, layers that differ in their window)
 * are errors: a model that is only nearly the one asked for is a wrong answer. Where a key is
 * absent the default is the one of the family's configuration class in the transformers library.
 */
#include "core/model/model.h"

#include "core/base/arena.h"
#include "core/base/text.h"
#include "core/document/json.h"
#include "core/model/bert.h"
#include "core/model/experts.h"
#include "core/model/images.h"
#include "core/model/measured.h"
#include "core/model/read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
/*    family, reader */
#define FAMILIES(X) \
    X(gpt2, read_gpt2) X(llama, read_llama) X(mistral, read_llama) X(qwen2, read_llama) X(qwen3, read_llama) \
    X(mixtral, read_llama) X(qwen3_moe, read_llama) X(bert, model_read_bert) \
    X(vit, model_read_vit) X(vgg, model_read_vgg) \
    X(measured_layers, NULL)
/* clang-format on */

int64_t model_pixels(const struct model *m) { return m->image_size * m->image_size * m->channels; }

static enum status refuse_what_is_not_built(const struct node *c, struct error *err)
{
    const struct node *n = model_given(c, "text_config");
    if (n)
        return node_error(n, err,
                          "a multimodal model with a nested language model; give the "
                          "content of text_config as the config");
    n = model_given(c, "quantization_config");
    if (n)
        return node_error(n, err,
                          "training of quantised weights is not supported; remove "
                          "quantization_config to plan the model in full precision");
    return OK;
}

/* --- gpt2 --- */

static const double PDROP = 0.1; /* where the keys are absent */

static enum status read_gpt2(const struct node *c, struct model *m, struct error *err)
{
    static const char *const activations[] = {"gelu_new", "gelu_pytorch_tanh", "gelu", NULL};
    int activation = 0;
    bool scales = true;
    TRY(model_need_int(c, "n_embd", MODEL_WIDTH_MAX, &m->hidden, err));
    TRY(model_need_int(c, "n_layer", MODEL_LAYERS_MAX, &m->layers, err));
    TRY(model_need_int(c, "n_head", MODEL_WIDTH_MAX, &m->heads, err));
    TRY(model_need_int(c, "n_positions", MODEL_POSITIONS_MAX, &m->max_positions, err));
    TRY(model_need_int(c, "vocab_size", MODEL_VOCABULARY_MAX, &m->vocabulary, err));
    m->intermediate = 4 * m->hidden;
    TRY(model_get_int(c, "n_inner", 1, MODEL_INTERMEDIATE_MAX, &m->intermediate, err));
    if (m->hidden % m->heads)
        return node_error(node_get(c, "n_head"), err, "%lld heads do not divide n_embd %lld",
                          (long long)m->heads, (long long)m->hidden);
    m->kv_heads = m->heads;
    m->head_dim = m->hidden / m->heads;
    m->norm_eps = 1e-5;
    TRY(model_get_double(c, "layer_norm_epsilon", 0, 1, &m->norm_eps, err));
    TRY(model_choose(c, "activation_function", activations, &activation, err));
    m->gelu_erf = activation == 2;
    m->tied = m->attention_bias = m->mlp_bias = true;
    m->config_hidden_dropout = m->config_embedding_dropout = PDROP;
    TRY(model_get_double(c, "resid_pdrop", 0, 0.999, &m->config_hidden_dropout, err));
    TRY(model_get_double(c, "embd_pdrop", 0, 0.999, &m->config_embedding_dropout, err));
    TRY(node_get_bool(c, "tie_word_embeddings", &m->tied, err));
    TRY(node_get_bool(c, "scale_attn_weights", &scales, err));
    if (!scales)
        return node_error(node_get(c, "scale_attn_weights"), err,
                          "attention without the factor 1/sqrt(head_dim) is not supported");
    TRY(model_refuse_true(c, "scale_attn_by_inverse_layer_idx",
                          "attention scaled by the layer index is not supported", err));
    return model_refuse_true(c, "add_cross_attention", "cross attention is not supported", err);
}

/* --- llama and its relatives --- */

static enum status read_heads(const struct node *c, struct model *m, struct error *err)
{
    TRY(model_need_int(c, "num_attention_heads", MODEL_WIDTH_MAX, &m->heads, err));
    const struct node *heads = node_get(c, "num_attention_heads");
    m->kv_heads = model_is(m, "mixtral") && m->heads % 8 == 0 ? 8 : m->heads;
    TRY(model_get_int(c, "num_key_value_heads", 1, MODEL_WIDTH_MAX, &m->kv_heads, err));
    if (m->heads % m->kv_heads)
        return node_error(node_get(c, "num_key_value_heads"), err,
                          "%lld key-value heads do not divide %lld heads", (long long)m->kv_heads,
                          (long long)m->heads);
    m->head_dim = model_is(m, "qwen3") ? 128 : 0;
    TRY(model_get_int(c, "head_dim", 2, MODEL_WIDTH_MAX, &m->head_dim, err));
    if (!m->head_dim && m->hidden % m->heads)
        return node_error(heads, err, "%lld heads do not divide hidden_size %lld",
                          (long long)m->heads, (long long)m->hidden);
    if (!m->head_dim) m->head_dim = m->hidden / m->heads;
    if (m->head_dim % 2)
        return node_error(heads, err, "head_dim %lld is odd, but rotary embeddings need pairs",
                          (long long)m->head_dim);
    if (m->heads * m->head_dim > MODEL_WIDTH_MAX)
        return node_error(heads, err, "%lld heads of %lld features are more than %d together",
                          (long long)m->heads, (long long)m->head_dim, MODEL_WIDTH_MAX);
    return OK;
}

/* Both spellings: rope_scaling {type or rope_type, …}, and rope_parameters with rope_theta inside.
 */
static enum status read_rope(const struct node *c, struct model *m, struct error *err)
{
    static const char *const types[] = {"default", "llama3", NULL};
    const struct node *n = model_given(c, "rope_parameters");
    double whole = 1;
    if (!n) n = model_given(c, "rope_scaling");
    m->rope_theta = model_is(m, "mixtral") ? 1e6 : 10000;
    TRY(model_get_double(c, "rope_theta", 1, 1e12, &m->rope_theta, err));
    TRY(model_get_double(c, "partial_rotary_factor", 0, 1, &whole, err));
    if (whole < 1)
        return node_error(node_get(c, "partial_rotary_factor"), err,
                          "partial rotary embeddings are not supported");
    if (!n) return OK;
    TRY(node_is(n, NODE_MAP, err));
    TRY(model_get_double(n, "rope_theta", 1, 1e12, &m->rope_theta, err));
    const struct node *type = model_given(n, "rope_type");
    if (!type) type = model_given(n, "type");
    int which = 0;
    if (type) TRY(node_choice(type, types, &which, err));
    if (!type && model_given(n, "factor"))
        return node_error(n, err, "rope_type is missing (default or llama3)");
    if (which == 0) return OK;
    const struct {
        const char *key;
        double *out;
    } fields[] = {{"factor", &m->rope.factor},
                  {"low_freq_factor", &m->rope.low_freq_factor},
                  {"high_freq_factor", &m->rope.high_freq_factor},
                  {"original_max_position_embeddings", &m->rope.original_max_position}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const struct node *field;
        TRY(node_need(n, fields[i].key, &field, err));
        struct node number = model_unquoted(field);
        TRY(node_double(&number, i ? 1e-6 : 1, 1e12, fields[i].out, err));
    }
    if (m->rope.high_freq_factor <= m->rope.low_freq_factor)
        return node_error(n, err, "high_freq_factor must be above low_freq_factor");
    return OK;
}

/* mistral: one window everywhere, 4096 where the key is absent, none where it is null; mixtral: none either way.
 * qwen: layers from max_window_layers on, if use_sliding_window. llama has none. */
static enum status read_window(const struct node *c, struct model *m, struct error *err)
{
    if (model_is(m, "llama")) return OK;
    const struct node *n = node_get(c, "sliding_window");
    m->window = (n && n->kind == NODE_NULL) || model_is(m, "mixtral") ? 0 : 4096;
    TRY(model_get_int(c, "sliding_window", 1, MODEL_POSITIONS_MAX, &m->window, err));
    if (model_is(m, "mistral") || model_is(m, "mixtral")) return OK;
    bool used = false;
    int64_t from = 28;
    TRY(node_get_bool(c, "use_sliding_window", &used, err));
    TRY(model_get_int(c, "max_window_layers", 0, MODEL_LAYERS_MAX, &from, err));
    if (!used || from >= m->layers) m->window = 0;
    if (m->window && from > 0)
        return node_error(node_get(c, "use_sliding_window"), err,
                          "a sliding window for the layers after %lld only is not "
                          "supported; max_window_layers must be 0 or at least %lld",
                          (long long)from - 1, (long long)m->layers);
    return OK;
}

static enum status read_llama(const struct node *c, struct model *m, struct error *err)
{
    static const char *const activations[] = {"silu", "swish", NULL};
    bool mistral = model_is(m, "mistral") || model_is(m, "mixtral");
    int activation = 0;
    TRY(model_need_int(c, "hidden_size", MODEL_WIDTH_MAX, &m->hidden, err));
    TRY(model_need_int(c, "intermediate_size", MODEL_INTERMEDIATE_MAX, &m->intermediate, err));
    TRY(model_need_int(c, "num_hidden_layers", MODEL_LAYERS_MAX, &m->layers, err));
    TRY(model_need_int(c, "vocab_size", MODEL_VOCABULARY_MAX, &m->vocabulary, err));
    TRY(read_heads(c, m, err));
    m->max_positions = model_is(m, "llama") ? 2048 : mistral ? 131072 : 32768;
    TRY(model_get_int(c, "max_position_embeddings", 1, MODEL_POSITIONS_MAX, &m->max_positions,
                      err));
    m->norm_eps = model_is(m, "mixtral") ? 1e-5 : 1e-6;
    TRY(model_get_double(c, "rms_norm_eps", 0, 1, &m->norm_eps, err));
    TRY(model_choose(c, "hidden_act", activations, &activation, err));
    TRY(node_get_bool(c, "tie_word_embeddings", &m->tied, err));
    if (model_is(m, "qwen2"))
        m->attention_bias = true; /* on q, k and v; no key says so */
    else if (!model_is(m, "mistral") && !model_is(m, "mixtral"))
        TRY(node_get_bool(c, "attention_bias", &m->attention_bias, err));
    if (model_is(m, "llama")) TRY(node_get_bool(c, "mlp_bias", &m->mlp_bias, err));
    m->qk_norm = model_is(m, "qwen3") || model_is(m, "qwen3_moe");
    TRY(model_read_experts(c, m, err));
    TRY(read_rope(c, m, err));
    return read_window(c, m, err);
}

static enum status read_name(const struct node *c, const char *name, struct model *m,
                             struct error *err)
{
    const char *path = "";
    TRY(node_get_text(c, "_name_or_path", &path, err));
    const char *slash = strrchr(path, '/');
    if (slash) path = slash + 1;
    m->name = *path ? path : name ? name : m->family;
    return OK;
}

/* Implementations but eager keep no scores in memory and cost alike here. */
static enum status read_attention(const struct node *c, struct model *m, struct error *err)
{
    const char *text = "";
    if (model_given(c, "attn_implementation"))
        TRY(node_get_text(c, "attn_implementation", &text, err));
    m->eager = !strcmp(text, "eager");
    return OK;
}

enum status model_read(const struct node *c, const char *name, struct model *out, struct error *err)
{
    static const char *const names[] = {
#define X(family, reader) #family,
        FAMILIES(X)
#undef X
            NULL};
    static enum status (*const readers[])(const struct node *, struct model *, struct error *) = {
#define X(family, reader) reader,
        FAMILIES(X)
#undef X
    };
    struct model m = {.init_std = 0.02};
    const struct node *type;
    int family;
    TRY(node_is(c, NODE_MAP, err));
    TRY(refuse_what_is_not_built(c, err));
    TRY(node_need(c, "model_type", &type, err));
    TRY(node_choice(type, names, &family, err));
    m.family = names[family];
    TRY(read_name(c, name, &m, err));
    if (!readers[family])
        return node_error(type, err, "a table of measured layers can only be the model of a job");
    TRY(read_attention(c, &m, err));
    TRY(model_get_double(c, "initializer_range", 0, 10, &m.init_std, err));
    TRY(readers[family](c, &m, err));
    *out = m;
    return OK;
}

enum status model_parse(struct arena *a, const struct node *c, const char *name, struct model *out,
                        struct error *err)
{
    const struct node *type = c->kind == NODE_MAP ? node_get(c, "model_type") : NULL;
    struct model m = {.family = "measured_layers"};
    if (!type || type->kind != NODE_SCALAR || strcmp(type->text, m.family) != 0)
        return model_read(c, name, out, err);
    TRY(read_name(c, name, &m, err));
    TRY(measured_model_read(a, c, &m, err));
    *out = m;
    return OK;
}

static void write_gpt2(struct json *j, const struct model *m)
{
    json_put_int(j, "n_embd", m->hidden);
    json_put_int(j, "n_layer", m->layers);
    json_put_int(j, "n_head", m->heads);
    json_put_int(j, "n_inner", m->intermediate);
    json_put_int(j, "n_positions", m->max_positions);
    json_put_double(j, "layer_norm_epsilon", m->norm_eps);
    json_put_text(j, "activation_function", m->gelu_erf ? "gelu" : "gelu_new");
    if (m->config_hidden_dropout != PDROP)
        json_put_double(j, "resid_pdrop", m->config_hidden_dropout);
    if (m->config_embedding_dropout != PDROP)
        json_put_double(j, "embd_pdrop", m->config_embedding_dropout);
}

static void write_rope(struct json *j, const struct model *m)
{
    json_put_double(j, "rope_theta", m->rope_theta);
    if (m->rope.factor <= 0) return;
    json_put_object(j, "rope_scaling");
    json_put_text(j, "rope_type", "llama3");
    json_put_double(j, "factor", m->rope.factor);
    json_put_double(j, "low_freq_factor", m->rope.low_freq_factor);
    json_put_double(j, "high_freq_factor", m->rope.high_freq_factor);
    json_put_double(j, "original_max_position_embeddings", m->rope.original_max_position);
    json_close(j);
}

static void write_llama(struct json *j, const struct model *m)
{
    json_put_int(j, "hidden_size", m->hidden);
    json_put_int(j, "intermediate_size", m->intermediate);
    json_put_int(j, "num_hidden_layers", m->layers);
    json_put_int(j, "num_attention_heads", m->heads);
    json_put_int(j, "num_key_value_heads", m->kv_heads);
    json_put_int(j, "head_dim", m->head_dim);
    json_put_int(j, "max_position_embeddings", m->max_positions);
    json_put_text(j, "hidden_act", "silu");
    json_put_double(j, "rms_norm_eps", m->norm_eps);
    if (model_is(m, "llama") || model_is(m, "qwen3") || model_is(m, "qwen3_moe"))
        json_put_bool(j, "attention_bias", m->attention_bias);
    if (model_is(m, "llama")) json_put_bool(j, "mlp_bias", m->mlp_bias);
    write_rope(j, m);
    model_write_experts(j, m);
    if (model_is(m, "llama")) return;
    if (m->window)
        json_put_int(j, "sliding_window", m->window);
    else
        json_put_null(j, "sliding_window");
    if (model_is(m, "mistral") || model_is(m, "mixtral")) return;
    json_put_bool(j, "use_sliding_window", m->window > 0);
    json_put_int(j, "max_window_layers", m->window ? 0 : m->layers);
}

static void write_family(struct json *j, const struct model *m)
{
    json_put_text(j, "_name_or_path", m->name);
    json_put_text(j, "model_type", m->family);
    if (!model_pixels(m)) json_put_int(j, "vocab_size", m->vocabulary);
    if (!model_pixels(m)) json_put_bool(j, "tie_word_embeddings", m->tied);
    if (m->eager) json_put_text(j, "attn_implementation", "eager");
    json_put_double(j, "initializer_range", m->init_std);
    if (model_is(m, "gpt2"))
        write_gpt2(j, m);
    else if (model_is(m, "bert"))
        model_write_bert(j, m);
    else if (model_is(m, "vit"))
        model_write_vit(j, m);
    else if (model_is(m, "vgg"))
        model_write_vgg(j, m);
    else
        write_llama(j, m);
}

const char *model_write(struct arena *a, const struct model *m)
{
    struct text made;
    struct json j;
    json_begin(&j, text_begin(&made), JSON_LINE);
    json_put_object(&j, NULL);
    if (m->measured)
        measured_model_write(&j, m);
    else
        write_family(&j, m);
    json_close(&j);
    json_end(&j);
    char *text = text_end(a, &made, NULL);
    text[strcspn(text, "\n")] = '\0';
    return text;
}
