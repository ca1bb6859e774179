/* core/model/decoder.c - llama and its relatives (core/model/decoder.h). */
#include "core/model/decoder.h"

#include "core/model/experts.h"
#include "core/model/read.h"

#include <math.h>
#include <string.h>

/* Which layers have a window: none, all, all or those of layer_types if use_sliding_window (qwen), all but every n-th. */
enum windows { WINDOW_NONE, WINDOW_ALL, WINDOW_QWEN, WINDOW_PATTERN };
enum query_norm { QUERY_NORM_NONE, QUERY_NORM_HEADS, QUERY_NORM_WHOLE };

struct decoder { /* 0: as in llama */
    const char *family;
    int64_t positions, head_dim; /* where the keys are absent; head_dim 0: hidden / heads */
    int64_t heads, kv_heads;     /* the same; 0: heads must be stated, as many for keys and values */
    double eps, theta, rotary_share;
    enum windows windows;
    int64_t window, pattern; /* where the keys are absent */
    enum query_norm query_norm;
    const char *norms[4]; /* before and after attention, before and after the MLP; NULL: none */
    bool tied, gemma, bias, no_output_bias, interleaved;
    bool joins_qkv, joins_gate; /* on disk q, k, v, or gate, up are rows of one tensor (core/model/weight.h) */
};

#define NORMS_BEFORE {"input_layernorm", NULL, "post_attention_layernorm", NULL}
#define NORMS_GEMMA {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"}
/* clang-format off */
static const struct decoder decoders[] = {
    {"llama", .positions = 2048, .eps = 1e-6, .theta = 1e4, .norms = NORMS_BEFORE},
    {"mistral", .positions = 131072, .eps = 1e-6, .theta = 1e4, .windows = WINDOW_ALL, .window = 4096, .norms = NORMS_BEFORE},
    {"mixtral", .positions = 131072, .eps = 1e-5, .kv_heads = 8, .theta = 1e6, .windows = WINDOW_ALL, .norms = NORMS_BEFORE},
    {"qwen2", .positions = 32768, .eps = 1e-6, .theta = 1e4, .windows = WINDOW_QWEN, .window = 4096, .norms = NORMS_BEFORE,
     .no_output_bias = true},
    {"qwen3", .positions = 32768, .head_dim = 128, .eps = 1e-6, .theta = 1e4, .windows = WINDOW_QWEN, .window = 4096,
     .query_norm = QUERY_NORM_HEADS, .norms = NORMS_BEFORE},
    {"qwen3_moe", .positions = 32768, .eps = 1e-6, .theta = 1e4, .windows = WINDOW_QWEN, .window = 4096,
     .query_norm = QUERY_NORM_HEADS, .norms = NORMS_BEFORE},
    {"gemma2", .positions = 8192, .head_dim = 256, .heads = 8, .kv_heads = 4, .eps = 1e-6, .theta = 1e4, .windows = WINDOW_PATTERN, .window = 4096, .pattern = 2,
     .norms = NORMS_GEMMA, .tied = true, .gemma = true},
    {"gemma3_text", .positions = 131072, .head_dim = 256, .heads = 8, .kv_heads = 4, .eps = 1e-6, .theta = 1e6, .windows = WINDOW_PATTERN, .window = 4096,
     .pattern = 6, .query_norm = QUERY_NORM_HEADS, .norms = NORMS_GEMMA, .tied = true, .gemma = true},
    {"olmo2", .positions = 2048, .eps = 1e-5, .theta = 1e4, .query_norm = QUERY_NORM_WHOLE,
     .norms = {NULL, "post_attention_layernorm", NULL, "post_feedforward_layernorm"}},
    {"phi3", .positions = 4096, .eps = 1e-5, .theta = 1e4, .windows = WINDOW_ALL, .norms = NORMS_BEFORE, .joins_qkv = true, .joins_gate = true},
    {"glm4", .positions = 131072, .head_dim = 128, .eps = 1.5625e-7, .theta = 1e4, .rotary_share = 0.5,
     .norms = {"input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"},
     .bias = true, .no_output_bias = true, .interleaved = true, .joins_gate = true},
};
/* clang-format on */

static const struct decoder *decoder_of(const struct model *m)
{
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++)
        if (model_is(m, decoders[i].family)) return &decoders[i];
    BUG("no decoder '%s'", m->family);
}

/* --- config.json --- */

static bool is_mixtral_or_mistral(const struct model *m)
{
    return model_is(m, "mistral") || model_is(m, "mixtral");
}

static enum status read_heads(const struct node *c, const struct decoder *d, struct model *m,
                              struct error *err)
{
    const struct node *heads = model_given(c, "num_attention_heads");
    if (heads || !d->heads)
        TRY(model_need_int(c, "num_attention_heads", MODEL_WIDTH_MAX, &m->heads, err));
    else
        m->heads = d->heads, heads = c;
    m->kv_heads = d->kv_heads && m->heads % d->kv_heads == 0 ? d->kv_heads : m->heads;
    TRY(model_get_int(c, "num_key_value_heads", 1, MODEL_WIDTH_MAX, &m->kv_heads, err));
    if (m->heads % m->kv_heads)
        return node_error(node_get(c, "num_key_value_heads"), err,
                          "%lld key-value heads do not divide %lld heads", (long long)m->kv_heads,
                          (long long)m->heads);
    m->head_dim = d->head_dim;
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

/* {rope_type or type, factor …} */
static enum status read_rope_scaling(const struct node *n, struct model *m, struct error *err)
{
    static const char *const types[] = {"default", "linear", "llama3", NULL};
    int which = 0;
    TRY(model_get_double(n, "rope_theta", 1, 1e12, &m->rope_theta, err));
    const struct node *type = model_given(n, "rope_type");
    if (!type) type = model_given(n, "type");
    if (type) TRY(node_choice(type, types, &which, err));
    if (!type && model_given(n, "factor"))
        return node_error(n, err, "rope_type is missing (default, linear or llama3)");
    const struct {
        const char *key;
        double *out;
    } fields[] = {{"factor", &m->rope.factor},
                  {"low_freq_factor", &m->rope.low_freq_factor},
                  {"high_freq_factor", &m->rope.high_freq_factor},
                  {"original_max_position_embeddings", &m->rope.original_max_position}};
    size_t n_fields = which == 0 ? 0 : which == 1 ? 1 : sizeof fields / sizeof *fields;
    for (size_t i = 0; i < n_fields; i++) {
        const struct node *field;
        TRY(node_need(n, fields[i].key, &field, err));
        struct node number = model_unquoted(field);
        TRY(node_double(&number, i ? 1e-6 : 1, 1e12, fields[i].out, err));
    }
    if (which == 2 && m->rope.high_freq_factor <= m->rope.low_freq_factor)
        return node_error(n, err, "high_freq_factor must be above low_freq_factor");
    return OK;
}

/* Both spellings: rope_scaling {type or rope_type, …}, and rope_parameters with rope_theta inside, which gemma3_text has for each type of
 * layers. */
static enum status read_rope(const struct node *c, const struct decoder *d, struct model *m,
                             struct error *err)
{
    const struct node *n = model_given(c, "rope_parameters"), *share = node_get(c, "partial_rotary_factor");
    double part = d->rotary_share > 0 ? d->rotary_share : 1;
    bool local = d->gemma && d->query_norm == QUERY_NORM_HEADS;
    if (!n) n = model_given(c, "rope_scaling");
    m->rope_theta = d->theta, m->local_theta = local ? 10000 : 0;
    TRY(model_get_double(c, "rope_theta", 1, 1e12, &m->rope_theta, err));
    if (local) TRY(model_get_double(c, "rope_local_base_freq", 1, 1e12, &m->local_theta, err));
    if (n) TRY(node_is(n, NODE_MAP, err));
    const struct node *windowed = n && local ? model_given(n, "sliding_attention") : NULL;
    if (windowed) TRY(model_get_double(windowed, "rope_theta", 1, 1e12, &m->local_theta, err));
    if (n && local && model_given(n, "full_attention")) n = model_given(n, "full_attention");
    if (n && model_given(n, "partial_rotary_factor")) share = node_get(n, "partial_rotary_factor");
    if (share && share->kind != NODE_NULL) {
        struct node number = model_unquoted(share);
        TRY(node_double(&number, 0, 1, &part, err));
    }
    if (part < 1 && !model_is(m, "phi3") && !model_is(m, "glm4"))
        return node_error(share, err, "partial rotary embeddings are those of phi3 and glm4");
    int64_t features = (int64_t)((double)m->head_dim * part);
    if (features < 2 || features % 2)
        return node_error(share ? share : c, err, "partial_rotary_factor %g of %lld features is not an even number of them",
                          part, (long long)m->head_dim);
    m->rotary_dim = features == m->head_dim ? 0 : features;
    return n ? read_rope_scaling(n, m, err) : OK;
}

/* layer_types: "sliding_attention" but for every n-th layer, "full_attention". */
static enum status read_layer_types(const struct node *n, struct model *m, struct error *err)
{
    static const char *const types[] = {"full_attention", "sliding_attention", NULL};
    int type;
    m->window_pattern = 0;
    TRY(node_is(n, NODE_LIST, err));
    if ((int64_t)n->count != m->layers)
        return node_error(n, err, "%zu entries for %lld layers", n->count, (long long)m->layers);
    for (size_t i = 0; i < n->count; i++) {
        TRY(node_choice(n->members[i], types, &type, err));
        if (!type && !m->window_pattern) m->window_pattern = (int64_t)i + 1;
        if ((m->window_pattern && (int64_t)(i + 1) % m->window_pattern == 0) != !type)
            return node_error(n->members[i], err,
                              "layer %zu breaks the pattern; full_attention must be every n-th layer", i);
    }
    return OK;
}

/* mistral: one window for all layers, 4096 if the key is absent, none if it is null; mixtral and phi3: none in both cases.
 * qwen: layers from max_window_layers on, if use_sliding_window. */
static enum status read_window(const struct node *c, const struct decoder *d, struct model *m,
                               struct error *err)
{
    if (d->windows == WINDOW_NONE) return OK;
    const struct node *n = node_get(c, "sliding_window");
    m->window = n && n->kind == NODE_NULL ? 0 : d->window;
    TRY(model_get_int(c, "sliding_window", 1, MODEL_POSITIONS_MAX, &m->window, err));
    if (d->windows == WINDOW_PATTERN) {
        m->window_pattern = d->pattern;
        TRY(model_get_int(c, "sliding_window_pattern", 1, MODEL_LAYERS_MAX, &m->window_pattern, err));
        if (model_given(c, "layer_types")) TRY(read_layer_types(model_given(c, "layer_types"), m, err));
        if (m->window_pattern == 1) m->window = 0;
    }
    if (d->windows != WINDOW_QWEN) return OK;
    bool used = false;
    int64_t from = 28;
    TRY(node_get_bool(c, "use_sliding_window", &used, err));
    TRY(model_get_int(c, "max_window_layers", 0, MODEL_LAYERS_MAX, &from, err));
    const struct node *types = used ? model_given(c, "layer_types") : NULL;
    if (types) { /* it decides, not max_window_layers */
        TRY(read_layer_types(types, m, err));
        if (m->window_pattern == 1) m->window = 0;
        return OK;
    }
    if (!used || from >= m->layers) m->window = 0;
    if (m->window && from > 0)
        return node_error(node_get(c, "use_sliding_window"), err,
                          "a sliding window for the layers after %lld only is not "
                          "supported; max_window_layers must be 0 or at least %lld",
                          (long long)from - 1, (long long)m->layers);
    return OK;
}

/* 0: none, also if the key is null */
static enum status read_softcap(const struct node *c, const char *key, double absent, double *out,
                                struct error *err)
{
    const struct node *n = node_get(c, key);
    *out = n ? 0 : absent;
    return model_get_double(c, key, 1e-6, 1e6, out, err);
}

static enum status read_gemma(const struct node *c, struct model *m, struct error *err)
{
    bool second = model_is(m, "gemma2"), both = false;
    m->query_scalar = 256;
    TRY(model_get_double(c, "query_pre_attn_scalar", 1, MODEL_WIDTH_MAX, &m->query_scalar, err));
    TRY(node_get_bool(c, "use_bidirectional_attention", &both, err));
    if (both)
        return node_error(node_get(c, "use_bidirectional_attention"), err, "bidirectional attention is not supported");
    TRY(read_softcap(c, "attn_logit_softcapping", second ? 50 : 0, &m->attention_softcap, err));
    if (!second && m->attention_softcap > 0)
        return node_error(node_get(c, "attn_logit_softcapping"), err, "gemma3_text does not cap the scores of attention: expected null");
    return read_softcap(c, "final_logit_softcapping", second ? 30 : 0, &m->logit_softcap, err);
}

static enum status read_activation(const struct node *c, const struct decoder *d, struct error *err)
{
    static const char *const silu[] = {"silu", "swish", NULL};
    static const char *const gelu[] = {"gelu_pytorch_tanh", NULL};
    int which;
    const char *key = d->gemma && !model_given(c, "hidden_act") ? "hidden_activation" : "hidden_act";
    return model_choose(c, key, d->gemma ? gelu : silu, &which, err);
}

enum status decoder_read(const struct node *c, struct model *m, struct error *err)
{
    const struct decoder *d = decoder_of(m);
    TRY(model_need_int(c, "hidden_size", MODEL_WIDTH_MAX, &m->hidden, err));
    TRY(model_need_int(c, "intermediate_size", MODEL_INTERMEDIATE_MAX, &m->intermediate, err));
    TRY(model_need_int(c, "num_hidden_layers", MODEL_LAYERS_MAX, &m->layers, err));
    m->vocabulary = d->gemma && d->query_norm ? 262208 : d->gemma ? 256000 : 0;
    if (!m->vocabulary || model_given(c, "vocab_size"))
        TRY(model_need_int(c, "vocab_size", MODEL_VOCABULARY_MAX, &m->vocabulary, err));
    TRY(read_heads(c, d, m, err));
    m->max_positions = d->positions;
    TRY(model_get_int(c, "max_position_embeddings", 1, MODEL_POSITIONS_MAX, &m->max_positions,
                      err));
    m->norm_eps = d->eps, m->tied = d->tied, m->attention_bias = d->bias;
    TRY(model_get_double(c, "rms_norm_eps", 0, 1, &m->norm_eps, err));
    TRY(read_activation(c, d, err));
    TRY(node_get_bool(c, "tie_word_embeddings", &m->tied, err));
    if (model_is(m, "qwen2"))
        m->attention_bias = true; /* on q, k and v; without a key for it */
    else if (!is_mixtral_or_mistral(m) && !model_is(m, "phi3"))
        TRY(node_get_bool(c, "attention_bias", &m->attention_bias, err));
    if (model_is(m, "llama")) TRY(node_get_bool(c, "mlp_bias", &m->mlp_bias, err));
    if (d->gemma) TRY(read_gemma(c, m, err));
    if (model_is(m, "phi3")) {
        TRY(model_get_double(c, "resid_pdrop", 0, 0.999, &m->config_hidden_dropout, err));
        TRY(model_get_double(c, "embd_pdrop", 0, 0.999, &m->config_embedding_dropout, err));
    }
    TRY(model_read_experts(c, m, err));
    TRY(read_rope(c, d, m, err));
    return read_window(c, d, m, err);
}

static void write_rope(struct json *j, const struct model *m)
{
    const struct rope_scaling *r = &m->rope;
    model_put_double(j, "rope_theta", m->rope_theta);
    if (m->local_theta > 0) model_put_double(j, "rope_local_base_freq", m->local_theta);
    if (m->rotary_dim || model_is(m, "glm4"))
        model_put_double(j, "partial_rotary_factor", m->rotary_dim ? (double)m->rotary_dim / (double)m->head_dim : 1);
    if (r->factor <= 0) return;
    json_put_object(j, "rope_scaling");
    json_put_text(j, "rope_type", r->high_freq_factor > 0 ? "llama3" : "linear");
    model_put_double(j, "factor", r->factor);
    if (r->high_freq_factor > 0) {
        model_put_double(j, "low_freq_factor", r->low_freq_factor);
        model_put_double(j, "high_freq_factor", r->high_freq_factor);
        json_put_double(j, "original_max_position_embeddings", r->original_max_position);
    }
    json_close(j);
}

static void write_number_or_null(struct json *j, const char *key, double value)
{
    if (value > 0)
        model_put_double(j, key, value);
    else
        json_put_null(j, key);
}

static void write_gemma(struct json *j, const struct model *m)
{
    json_put_text(j, "hidden_activation", "gelu_pytorch_tanh");
    json_put_double(j, "query_pre_attn_scalar", m->query_scalar); /* an integer in transformers */
    write_number_or_null(j, "attn_logit_softcapping", m->attention_softcap);
    write_number_or_null(j, "final_logit_softcapping", m->logit_softcap);
    json_put_int(j, "sliding_window_pattern", m->window ? m->window_pattern ? m->window_pattern : m->layers + 1 : 1);
}

void decoder_write(struct json *j, const struct model *m)
{
    const struct decoder *d = decoder_of(m);
    json_put_int(j, "hidden_size", m->hidden);
    json_put_int(j, "intermediate_size", m->intermediate);
    json_put_int(j, "num_hidden_layers", m->layers);
    json_put_int(j, "num_attention_heads", m->heads);
    json_put_int(j, "num_key_value_heads", m->kv_heads);
    json_put_int(j, "head_dim", m->head_dim);
    json_put_int(j, "max_position_embeddings", m->max_positions);
    if (!d->gemma) json_put_text(j, "hidden_act", "silu");
    model_put_double(j, "rms_norm_eps", m->norm_eps);
    if (!model_is(m, "qwen2") && !is_mixtral_or_mistral(m) && !model_is(m, "phi3"))
        json_put_bool(j, "attention_bias", m->attention_bias);
    if (model_is(m, "llama")) json_put_bool(j, "mlp_bias", m->mlp_bias);
    if (d->gemma) write_gemma(j, m);
    if (m->config_hidden_dropout > 0) model_put_double(j, "resid_pdrop", m->config_hidden_dropout);
    if (m->config_embedding_dropout > 0) model_put_double(j, "embd_pdrop", m->config_embedding_dropout);
    write_rope(j, m);
    model_write_experts(j, m);
    if (d->windows == WINDOW_NONE) return;
    if (m->window)
        json_put_int(j, "sliding_window", m->window);
    else
        json_put_null(j, "sliding_window");
    if (d->windows != WINDOW_QWEN) return;
    json_put_bool(j, "use_sliding_window", m->window > 0);
    json_put_int(j, "max_window_layers", m->window ? 0 : m->layers);
    if (!m->window || !m->window_pattern) return;
    json_put_list_line(j, "layer_types");
    for (int64_t i = 0; i < m->layers; i++)
        json_put_text(j, NULL, (i + 1) % m->window_pattern ? "sliding_attention" : "full_attention");
    json_close(j);
}

/* --- graph --- */

static bool has_window(const struct build *b)
{
    return b->m->window && (!b->m->window_pattern || (b->layer + 1) % b->m->window_pattern);
}

static int32_t norm(struct build *b, const char *name, int32_t x, int64_t n)
{
    return build_rms_norm(b, name, x, n, decoder_of(b->m)->gemma);
}

static const char *weight_of(struct build *b, const char *module, bool joins, const char *whole, int part)
{
    static const char *const number[] = {"0", "1", "2"};
    return joins ? build_join(b, whole, ".weight.", number[part]) : build_join(b, module, ".weight", "");
}

/* part: 0 queries, 1 keys, 2 values */
static int32_t project(struct build *b, const char *module, int part, int32_t x, int64_t heads)
{
    const struct model *m = b->m;
    return build_linear_of(b, module, weight_of(b, module, decoder_of(m)->joins_qkv, "self_attn.qkv_proj", part), x,
                           m->hidden, heads * m->head_dim, m->attention_bias);
}

/* A query or key: projection, norm, rotation. which: "q" or "k". */
static int32_t rotated(struct build *b, const char *which, int32_t x, int64_t heads)
{
    const struct model *m = b->m;
    const struct decoder *d = decoder_of(m);
    bool local = m->local_theta > 0 && has_window(b);
    struct op_attrs rotary = {.heads = (int32_t)heads,
                              .head_dim = (int32_t)m->head_dim,
                              .rotary_dim = (int32_t)m->rotary_dim,
                              .interleaved = d->interleaved,
                              .theta = local ? m->local_theta : m->rope_theta};
    if (!local) rotary.rope = m->rope;
    x = project(b, build_join(b, "self_attn.", which, "_proj"), *which == 'q' ? 0 : 1, x, heads);
    if (d->query_norm)
        x = norm(b, build_join(b, "self_attn.", which, "_norm"), x,
                 d->query_norm == QUERY_NORM_HEADS ? m->head_dim : heads * m->head_dim);
    return build_apply1(b, OP_rotary, build_join(b, "self_attn.", which, "_rotary"), &rotary, x);
}

static int32_t attend(struct build *b, int32_t x)
{
    const struct model *m = b->m;
    struct op_attrs attention = build_attention_attrs(b);
    attention.window = has_window(b) ? (int32_t)m->window : 0;
    attention.softcap = m->attention_softcap;
    int32_t q = rotated(b, "q", x, m->heads);
    int32_t k = rotated(b, "k", x, m->kv_heads);
    int32_t v = project(b, "self_attn.v_proj", 2, x, m->kv_heads);
    /* attention divides by √head_dim */
    if (m->query_scalar > 0 && m->query_scalar != (double)m->head_dim)
        q = build_apply1(b, OP_scale, "self_attn.q_scale",
                         &(struct op_attrs){.scale = sqrt((double)m->head_dim / m->query_scalar)}, q);
    int32_t o = build_apply(b, OP_attention, "self_attn.attention", &attention,
                            (const int32_t[]){q, k, v}, 3);
    return build_linear(b, "self_attn.o_proj", o, m->heads * m->head_dim, m->hidden,
                        m->attention_bias && !decoder_of(m)->no_output_bias);
}

static int32_t feed_forward(struct build *b, int32_t y)
{
    static const struct expert_names mixtral = {"block_sparse_moe.gate", "block_sparse_moe.experts",
                                                "w1", "w3", "w2"};
    static const struct expert_names qwen3 = {"mlp.gate", "mlp.experts", "gate_proj", "up_proj",
                                              "down_proj"};
    const struct model *m = b->m;
    int64_t d = m->hidden, f = m->intermediate;
    if (model_has_experts(m, b->layer))
        return experts_build(b, model_is(m, "mixtral") ? &mixtral : &qwen3, y);
    bool joins = decoder_of(m)->joins_gate;
    int32_t gate = build_linear_of(b, "mlp.gate_proj", weight_of(b, "mlp.gate_proj", joins, "mlp.gate_up_proj", 0), y, d, f, m->mlp_bias);
    int32_t up = build_linear_of(b, "mlp.up_proj", weight_of(b, "mlp.up_proj", joins, "mlp.gate_up_proj", 1), y, d, f, m->mlp_bias);
    gate = decoder_of(m)->gemma ? build_apply1(b, OP_gelu, "mlp.gelu", NULL, gate)
                                : build_apply1(b, OP_silu, "mlp.silu", NULL, gate);
    y = build_apply2(b, OP_multiply, "mlp.multiply", NULL, gate, up);
    return build_linear(b, "mlp.down_proj", y, f, d, m->mlp_bias);
}

/* One half of a block: norms around `inner`, and the residual stream. half: 0 attention, 1 MLP. */
static int32_t half_block(struct build *b, int32_t x, int half, const char *name,
                          int32_t (*inner)(struct build *, int32_t))
{
    const char *const *norms = decoder_of(b->m)->norms + 2 * half;
    int32_t y = norms[0] ? norm(b, norms[0], x, b->m->hidden) : x;
    y = inner(b, y);
    if (norms[1]) y = norm(b, norms[1], y, b->m->hidden);
    y = build_dropout(b, build_join(b, name, ".dropout", ""), y, b->m->hidden_dropout);
    return build_apply2(b, OP_add, build_join(b, name, ".residual", ""), NULL, x, y);
}

static int32_t block(struct build *b, int32_t x)
{
    x = half_block(b, x, 0, "self_attn", attend);
    return half_block(b, x, 1, "mlp", feed_forward);
}

void decoder_build(struct build *b)
{
    int32_t tokens = build_input(b, "tokens", INPUT_TOKENS);
    int32_t targets = build_input(b, "targets", INPUT_TARGETS);
    const struct model *m = b->m;
    int32_t table;
    b->base = "model.";
    int32_t x = build_embedding(b, "embed_tokens", m->vocabulary, tokens, &table);
    if (decoder_of(m)->gemma)
        x = build_apply1(b, OP_scale, "embed_tokens.scale",
                         &(struct op_attrs){.scale = sqrt((double)m->hidden)}, x);
    x = build_blocks(b, "layers", build_dropout(b, "embed_tokens.dropout", x, m->embedding_dropout),
                     block);
    build_head_and_loss(b, norm(b, "norm", x, m->hidden), table, targets);
}
