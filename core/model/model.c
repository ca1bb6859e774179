/* core/model/model.c - config.json → struct model, and back.
 *
 * Hugging Face's files have many keys that do not affect the training step; they
 * are ignored. Unsupported keys that would change the computation
 * (quantised weights, other activations, other rotary scalings)
 * are errors, because a model that is only nearly the requested one is a wrong answer. The default of
 * an absent key is that of the family's configuration class in the transformers library.
 */
#include "core/model/model.h"

#include "core/base/arena.h"
#include "core/base/text.h"
#include "core/document/json.h"
#include "core/model/bert.h"
#include "core/model/decoder.h"
#include "core/model/images.h"
#include "core/model/measured.h"
#include "core/model/read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
/*    family, reader, class in transformers */
#define FAMILIES(X) \
    X(gpt2, read_gpt2, "GPT2LMHeadModel") X(llama, decoder_read, "LlamaForCausalLM") X(mistral, decoder_read, "MistralForCausalLM") \
    X(qwen2, decoder_read, "Qwen2ForCausalLM") X(qwen3, decoder_read, "Qwen3ForCausalLM") \
    X(mixtral, decoder_read, "MixtralForCausalLM") X(qwen3_moe, decoder_read, "Qwen3MoeForCausalLM") \
    X(gemma2, decoder_read, "Gemma2ForCausalLM") X(gemma3_text, decoder_read, "Gemma3ForCausalLM") \
    X(olmo2, decoder_read, "Olmo2ForCausalLM") X(phi3, decoder_read, "Phi3ForCausalLM") X(glm4, decoder_read, "Glm4ForCausalLM") \
    X(bert, model_read_bert, "BertForMaskedLM") X(vit, model_read_vit, "ViTForImageClassification") X(vgg, model_read_vgg, NULL) \
    X(measured_layers, NULL, NULL)
/* clang-format on */

int64_t model_pixels(const struct model *m) { return m->image_size * m->image_size * m->channels; }

static enum status refuse_quantised(const struct node *c, struct error *err)
{
    const struct node *n = model_given(c, "quantization_config");
    return n ? node_error(n, err,
                          "training of quantised weights is not supported; remove "
                          "quantization_config to plan the model in full precision")
             : OK;
}

/* Keys of other models and of forks that change the computation, each with the value that does not. */
static enum status refuse_other_mathematics(const struct node *c, struct error *err)
{
    static const struct {
        const char *key;
        double neutral;
    } keys[] = {{"alibi", 0}, {"attention_chunk_size", 0}, {"attention_multiplier", 0}, {"attn_temperature_tuning", 0}, {"clip_qkv", 0},
                {"embedding_multiplier", 1}, {"kv_lora_rank", 0}, {"logit_scale", 1}, {"logits_scaling", 1}, {"n_shared_experts", 0},
                {"no_rope_layers", 0}, {"parallel_attn", 0}, {"qk_layernorm", 0}, {"residual_multiplier", 1}, {"rope_interleaved", 0},
                {"swiglu_limit", 0}, {"use_parallel_residual", 0}, {"use_qk_norm", 0}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct node *n = model_given(c, keys[i].key);
        struct error none;
        double value = 0;
        bool on = false;
        if (!n || (n->kind == NODE_LIST && !n->count)) continue;
        struct node number = model_unquoted(n);
        if (n->kind == NODE_SCALAR && node_bool(&number, &on, &none) == OK && !on) continue;
        if (n->kind == NODE_SCALAR && node_double(&number, -1e300, 1e300, &value, &none) == OK && !(value < keys[i].neutral) && !(value > keys[i].neutral)) continue;
        return node_error(n, err, "changes the computation, and the families known here do not have it; remove the key if the model does not use it");
    }
    return OK;
}

/* A multimodal model's config has that of its language model inside; the vision part is left out. */
static const struct node *text_part(const struct node *c)
{
    const struct node *n = c->kind == NODE_MAP ? model_given(c, "text_config") : NULL;
    return n && n->kind == NODE_MAP ? n : c;
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

/* All implementations except eager do not materialise scores and cost the same here. */
static enum status read_attention(const struct node *c, struct model *m, struct error *err)
{
    const char *text = "";
    if (model_given(c, "attn_implementation"))
        TRY(node_get_text(c, "attn_implementation", &text, err));
    m->eager = !strcmp(text, "eager");
    return OK;
}

/* model_type, or that of the family whose language model is the same: positions of text alone are equal on all of Qwen3-VL's axes. */
static const char *same_mathematics(const struct node *type)
{
    static const char *const same[][2] = {{"qwen3_vl_text", "qwen3"}, {"qwen3_vl_moe_text", "qwen3_moe"}};
    for (size_t i = 0; type->kind == NODE_SCALAR && i < sizeof same / sizeof *same; i++)
        if (!strcmp(type->text, same[i][0])) return same[i][1];
    return type->text;
}

enum status model_read(const struct node *c, const char *name, struct model *out, struct error *err)
{
    static const char *const names[] = {
#define X(family, reader, architecture) #family,
        FAMILIES(X)
#undef X
            NULL};
    static enum status (*const readers[])(const struct node *, struct model *, struct error *) = {
#define X(family, reader, architecture) reader,
        FAMILIES(X)
#undef X
    };
    struct model m = {.init_std = 0.02};
    const struct node *type;
    int family;
    const struct node *whole = c;
    TRY(node_is(c, NODE_MAP, err));
    TRY(refuse_quantised(c, err));
    c = text_part(c);
    TRY(refuse_other_mathematics(c, err));
    TRY(node_need(c, "model_type", &type, err));
    struct node known = *type;
    known.text = same_mathematics(type);
    TRY(node_choice(&known, names, &family, err));
    m.family = names[family];
    TRY(read_name(c, name, &m, err));
    if (!readers[family])
        return node_error(type, err, "a table of measured layers can only be the model of a job");
    TRY(read_attention(c, &m, err));
    TRY(model_get_double(c, "initializer_range", 0, 10, &m.init_std, err));
    TRY(readers[family](c, &m, err));
    if (whole != c && !model_given(c, "tie_word_embeddings")) TRY(node_get_bool(whole, "tie_word_embeddings", &m.tied, err));
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
    model_put_double(j, "layer_norm_epsilon", m->norm_eps);
    json_put_text(j, "activation_function", m->gelu_erf ? "gelu" : "gelu_new");
    if (m->config_hidden_dropout != PDROP)
        model_put_double(j, "resid_pdrop", m->config_hidden_dropout);
    if (m->config_embedding_dropout != PDROP)
        model_put_double(j, "embd_pdrop", m->config_embedding_dropout);
}

static void write_family(struct json *j, const struct model *m)
{
    json_put_text(j, "_name_or_path", m->name);
    json_put_text(j, "model_type", m->family);
    if (!model_pixels(m)) json_put_int(j, "vocab_size", m->vocabulary);
    if (!model_pixels(m)) json_put_bool(j, "tie_word_embeddings", m->tied);
    if (m->eager) json_put_text(j, "attn_implementation", "eager");
    model_put_double(j, "initializer_range", m->init_std);
    if (model_is(m, "gpt2"))
        write_gpt2(j, m);
    else if (model_is(m, "bert"))
        model_write_bert(j, m);
    else if (model_is(m, "vit"))
        model_write_vit(j, m);
    else if (model_is(m, "vgg"))
        model_write_vgg(j, m);
    else
        decoder_write(j, m);
}

const char *model_architecture(const struct model *m)
{
    static const struct {
        const char *family, *architecture;
    } known[] = {
#define X(family, reader, architecture) {#family, architecture},
        FAMILIES(X)
#undef X
    };
    if (model_is(m, "bert") && m->experts) return NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (model_is(m, known[i].family)) return known[i].architecture;
    return NULL;
}

static char *write_text(struct arena *a, const struct model *m, enum json_layout layout, const char *architecture)
{
    struct text made;
    struct json j;
    json_begin(&j, text_begin(&made), layout);
    json_put_object(&j, NULL);
    if (architecture) {
        json_put_list_line(&j, "architectures");
        json_put_text(&j, NULL, architecture);
        json_close(&j);
    }
    if (m->measured)
        measured_model_write(&j, m);
    else
        write_family(&j, m);
    if (architecture) json_put_null(&j, "pad_token_id"); /* some classes' default is beyond a small vocabulary */
    json_close(&j);
    json_end(&j);
    return text_end(a, &made, NULL);
}

const char *model_config(struct arena *a, const struct model *m) { return write_text(a, m, JSON_INDENTED, model_architecture(m)); }

const char *model_write(struct arena *a, const struct model *m)
{
    char *text = write_text(a, m, JSON_LINE, NULL);
    text[strcspn(text, "\n")] = '\0';
    return text;
}
