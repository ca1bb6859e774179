/* core/model/bert.c - BERT with its masked language model head (Devlin et al. 2019), dense or with experts in every second
 * block as in HAP's BERT-MoE (EuroSys 2024). Norms come after the residual sums. */
#include "core/model/bert.h"

#include "core/model/experts.h"
#include "core/model/read.h"

#include <string.h>

static const char *const activations[] = {"gelu", "gelu_new", "gelu_pytorch_tanh", NULL};

enum status model_read_bert(const struct node *c, struct model *m, struct error *err)
{
    int activation = 0, ignored;
    static const char *const positions[] = {"absolute", NULL};
    TRY(model_need_int(c, "vocab_size", MODEL_VOCABULARY_MAX, &m->vocabulary, err));
    TRY(model_need_encoder(c, m, err));
    m->max_positions = 512, m->segments = 2, m->norm_eps = 1e-12;
    TRY(model_get_int(c, "max_position_embeddings", 1, MODEL_POSITIONS_MAX, &m->max_positions,
                      err));
    TRY(model_get_int(c, "type_vocab_size", 1, MODEL_VOCABULARY_MAX, &m->segments, err));
    TRY(model_get_double(c, "layer_norm_eps", 0, 1, &m->norm_eps, err));
    TRY(model_choose(c, "hidden_act", activations, &activation, err));
    m->gelu_erf = activation == 0;
    TRY(model_choose(c, "position_embedding_type", positions, &ignored, err));
    m->tied = m->attention_bias = m->mlp_bias = true;
    TRY(node_get_bool(c, "tie_word_embeddings", &m->tied, err));
    m->config_hidden_dropout = 0.1;
    TRY(model_get_double(c, "hidden_dropout_prob", 0, 0.999, &m->config_hidden_dropout, err));
    m->config_embedding_dropout = m->config_hidden_dropout;
    TRY(model_refuse_true(c, "is_decoder", "bert with causal attention (is_decoder) is not supported", err));
    TRY(model_refuse_true(c, "add_cross_attention", "cross attention is not supported", err));
    return model_read_experts(c, m, err);
}

void model_write_bert(struct json *j, const struct model *m)
{
    json_put_int(j, "hidden_size", m->hidden);
    json_put_int(j, "intermediate_size", m->intermediate);
    json_put_int(j, "num_hidden_layers", m->layers);
    json_put_int(j, "num_attention_heads", m->heads);
    json_put_int(j, "max_position_embeddings", m->max_positions);
    json_put_int(j, "type_vocab_size", m->segments);
    json_put_text(j, "hidden_act", activations[m->gelu_erf ? 0 : 1]);
    model_put_double(j, "layer_norm_eps", m->norm_eps);
    model_put_double(j, "hidden_dropout_prob", m->config_hidden_dropout);
    model_write_experts(j, m);
}

static int32_t attention(struct build *b, int32_t x)
{
    int64_t d = b->m->hidden;
    struct op_attrs attrs = build_attention_attrs(b);
    attrs.bidirectional = true;
    int32_t q = build_linear(b, "attention.self.query", x, d, d, true);
    int32_t k = build_linear(b, "attention.self.key", x, d, d, true);
    int32_t v = build_linear(b, "attention.self.value", x, d, d, true);
    int32_t y = build_apply(b, OP_attention, "attention.self.attention", &attrs,
                            (const int32_t[]){q, k, v}, 3);
    return build_linear(b, "attention.output.dense", y, d, d, true);
}

static int32_t feed_forward(struct build *b, int32_t x)
{
    static const struct expert_names names = {
        .gate = "moe.gate", .experts = "moe.experts", .in = "intermediate", .out = "output"};
    int64_t d = b->m->hidden, f = b->m->intermediate;
    struct op_attrs gelu = {.gelu_erf = b->m->gelu_erf};
    if (model_has_experts(b->m, b->layer)) return experts_build(b, &names, x);
    int32_t y = build_linear(b, "intermediate.dense", x, d, f, true);
    y = build_apply1(b, OP_gelu, "intermediate.gelu", &gelu, y);
    return build_linear(b, "output.dense", y, f, d, true);
}

static int32_t block(struct build *b, int32_t x)
{
    int64_t d = b->m->hidden;
    double rate = b->m->hidden_dropout;
    int32_t y = build_dropout(b, "attention.output.dropout", attention(b, x), rate);
    x = build_apply2(b, OP_add, "attention.output.residual", NULL, x, y);
    x = build_layer_norm(b, "attention.output.LayerNorm", x, d);
    y = build_dropout(b, "output.dropout", feed_forward(b, x), rate);
    x = build_apply2(b, OP_add, "output.residual", NULL, x, y);
    return build_layer_norm(b, "output.LayerNorm", x, d);
}

/* The decoder is tied to the word embeddings, with a separate bias. */
static void head_and_loss(struct build *b, int32_t x, int32_t table, int32_t targets)
{
    const struct model *m = b->m;
    struct op_attrs gelu = {.gelu_erf = m->gelu_erf};
    struct op_attrs loss = {.counted = model_masked_positions(b->g->sequence_length)};
    b->base = "cls.";
    x = build_linear(b, "predictions.transform.dense", x, m->hidden, m->hidden, true);
    x = build_apply1(b, OP_gelu, "predictions.transform.gelu", &gelu, x);
    x = build_layer_norm(b, "predictions.transform.LayerNorm", x, m->hidden);
    if (!m->tied)
        table = build_parameter(b, "cls.predictions.decoder", ".weight",
                                build_mat(m->vocabulary, m->hidden), INIT_NORMAL, m->init_std);
    int32_t bias =
        build_parameter(b, "cls.predictions", ".bias", build_vec(m->vocabulary), INIT_ZEROS, 0);
    x = build_apply2(b, OP_matmul, "predictions.decoder", &(struct op_attrs){.trans_b = true}, x,
                     table);
    x = build_apply2(b, OP_bias, "predictions.bias", NULL, x, bias);
    build_apply2(b, OP_cross_entropy, "loss", &loss, x, targets);
}

void bert_build(struct build *b)
{
    const struct model *m = b->m;
    int32_t tokens = build_input(b, "tokens", INPUT_MASKED_TOKENS), table, other;
    int32_t targets = build_input(b, "targets", INPUT_MASKED_TARGETS);
    int32_t positions = build_input(b, "positions", INPUT_POSITIONS);
    int32_t segments = build_input(b, "segments", INPUT_SEGMENTS);
    b->base = "bert.";
    int32_t x = build_embedding(b, "embeddings.word_embeddings", m->vocabulary, tokens, &table);
    int32_t s =
        build_embedding(b, "embeddings.token_type_embeddings", m->segments, segments, &other);
    x = build_apply2(b, OP_add, "embeddings.segment_add", NULL, x, s);
    int32_t p =
        build_embedding(b, "embeddings.position_embeddings", m->max_positions, positions, &other);
    x = build_apply2(b, OP_add, "embeddings.position_add", NULL, x, p);
    x = build_layer_norm(b, "embeddings.LayerNorm", x, m->hidden);
    x = build_dropout(b, "embeddings.dropout", x, m->embedding_dropout);
    head_and_loss(b, build_blocks(b, "encoder.layer", x, block), table, targets);
}
