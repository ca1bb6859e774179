/* core/model_graph.c - struct model → forward graph of one microbatch.
 *
 * One builder walks the model as it is written down in its paper; a step that fails leaves the
 * error in the builder and every later step does nothing, so the walk reads like the model.
 * Parameters have Hugging Face's names and layouts: gpt2 stores (in, out), the others (out, in).
 * An operator is called by the module it belongs to; the last operator of each half of a block ends
 * in ".residual", which gives the layers their names ("h.0.attn", "h.0.mlp").
 */
#include "core/model.h"

#include "core/arena.h"
#include "core/model_measured.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct build {
    struct graph *g;
    const struct model *m;
    const char *prefix; /* of the block's operators: "h.0." */
    const char *base;   /* of parameters: "transformer." or "model." */
    int64_t cards;      /* that share every operator; the graph is one's */
    enum status status;
    struct error *err;
};

static const char *join(struct build *b, const char *x, const char *y, const char *z)
{
    size_t n = strlen(x) + strlen(y) + strlen(z) + 1;
    char *s = arena_alloc(b->g->arena, n, 1);
    snprintf(s, n, "%s%s%s", x, y, z);
    return s;
}

static struct shape vec(int64_t n) { return (struct shape){.rank = 1, .dim = {n}}; }
static struct shape mat(int64_t m, int64_t n) { return (struct shape){.rank = 2, .dim = {m, n}}; }

static int32_t input(struct build *b, const char *name, enum tensor_input which)
{
    return graph_add_tensor(b->g,
                            (struct tensor){.name = name,
                                            .role = TENSOR_INPUT,
                                            .dtype = DTYPE_int32,
                                            .shape = mat(b->g->microbatch, b->g->sequence_length),
                                            .input = which});
}

/* suffix ".weight" or ".bias" of module (its whole name). */
static int32_t parameter(struct build *b, const char *module, const char *suffix,
                         struct shape shape, enum tensor_init init, double std)
{
    return graph_add_tensor(b->g, (struct tensor){.name = join(b, module, suffix, ""),
                                                  .role = TENSOR_PARAMETER,
                                                  .dtype = b->g->dtype,
                                                  .shape = shape,
                                                  .init = init,
                                                  .init_std = std,
                                                  .decay = shape.rank >= 2});
}

/* The operator's first output; 0 after an error (a valid tensor that nobody looks at). */
static int32_t apply(struct build *b, enum op_kind kind, const char *name,
                     const struct op_attrs *attrs, const int32_t *inputs, int32_t n_inputs)
{
    int32_t outputs[OP_OPERANDS_MAX] = {0};
    if (b->status == OK)
        b->status = graph_add_op(b->g, kind, join(b, b->prefix, name, ""), attrs, inputs, n_inputs,
                                 outputs, b->err);
    return outputs[0];
}

static int32_t apply1(struct build *b, enum op_kind kind, const char *name,
                      const struct op_attrs *attrs, int32_t x)
{
    return apply(b, kind, name, attrs, &x, 1);
}

static int32_t apply2(struct build *b, enum op_kind kind, const char *name,
                      const struct op_attrs *attrs, int32_t x, int32_t y)
{
    return apply(b, kind, name, attrs, (const int32_t[]){x, y}, 2);
}

/* --- what cards share (struct model) --- */

static int64_t share(const struct build *b, int64_t n) { return (n + b->cards - 1) / b->cards; }

/* Whole again: each card has a term of x. */
static int32_t joined(struct build *b, const char *name, int32_t x)
{
    struct op_attrs attrs = {.ranks = (int32_t)b->cards};
    if (b->cards == 1) return x;
    return apply1(b, b->m->sequence_parallel ? OP_reduce_scatter : OP_all_reduce,
                  join(b, name, ".join", ""), &attrs, x);
}

/* All positions again, where each card has some. */
static int32_t gathered(struct build *b, const char *name, int32_t x)
{
    struct op_attrs attrs = {.ranks = (int32_t)b->cards};
    if (b->cards == 1 || !b->m->sequence_parallel) return x;
    return apply1(b, OP_all_gather, join(b, name, ".gather", ""), &attrs, x);
}

static const char *module_of(struct build *b, const char *name)
{
    return join(b, b->base, b->prefix, name);
}

static int32_t embedding(struct build *b, const char *name, int64_t rows, int32_t ids,
                         int32_t *table)
{
    *table = parameter(b, module_of(b, name), ".weight", mat(rows, b->m->hidden), INIT_NORMAL,
                       b->m->init_std);
    return apply2(b, OP_embedding, name, NULL, ids, *table);
}

static int32_t add_bias(struct build *b, const char *name, int32_t y, int64_t n)
{
    int32_t bias = parameter(b, module_of(b, name), ".bias", vec(n), INIT_ZEROS, 0);
    return apply2(b, OP_bias, join(b, name, ".bias", ""), NULL, y, bias);
}

/* y = x·W + b, W (in, out), whose columns the cards share */
static int32_t conv1d(struct build *b, const char *name, int32_t x, int64_t in, int64_t out,
                      double std)
{
    out = share(b, out);
    int32_t w = parameter(b, module_of(b, name), ".weight", mat(in, out), INIT_NORMAL, std);
    return add_bias(b, name, apply2(b, OP_matmul, name, NULL, x, w), out);
}

/* The same, whose rows the cards share. */
static int32_t conv1d_rows(struct build *b, const char *name, int32_t x, int64_t in, int64_t out,
                           double std)
{
    in = share(b, in);
    int32_t w = parameter(b, module_of(b, name), ".weight", mat(in, out), INIT_NORMAL, std);
    return add_bias(b, name, joined(b, name, apply2(b, OP_matmul, name, NULL, x, w)), out);
}

/* y = x·Wᵀ (+ b), W (out, in), whose rows (outputs) the cards share */
static int32_t linear(struct build *b, const char *name, int32_t x, int64_t in, int64_t out,
                      bool bias)
{
    out = share(b, out);
    int32_t w =
        parameter(b, module_of(b, name), ".weight", mat(out, in), INIT_NORMAL, b->m->init_std);
    int32_t y = apply2(b, OP_matmul, name, &(struct op_attrs){.trans_b = true}, x, w);
    return bias ? add_bias(b, name, y, out) : y;
}

/* The same, whose columns (inputs) the cards share. */
static int32_t linear_inputs(struct build *b, const char *name, int32_t x, int64_t in, int64_t out,
                             bool bias)
{
    int32_t w = parameter(b, module_of(b, name), ".weight", mat(out, share(b, in)), INIT_NORMAL,
                          b->m->init_std);
    int32_t y = apply2(b, OP_matmul, name, &(struct op_attrs){.trans_b = true}, x, w);
    y = joined(b, name, y);
    return bias ? add_bias(b, name, y, out) : y;
}

/* divided: every card works on with its own columns. */
static int32_t norm(struct build *b, const char *name, int32_t x, int64_t n, bool divided)
{
    bool layer_norm = !strcmp(b->m->family, "gpt2");
    struct op_attrs attrs = {.eps = b->m->norm_eps};
    if (divided && !b->m->sequence_parallel) attrs.ranks = (int32_t)b->cards;
    int32_t gamma = parameter(b, module_of(b, name), ".weight", vec(n), INIT_ONES, 0);
    if (!layer_norm) {
        x = apply2(b, OP_rms_norm, name, &attrs, x, gamma);
        return divided ? gathered(b, name, x) : x;
    }
    int32_t beta = parameter(b, module_of(b, name), ".bias", vec(n), INIT_ZEROS, 0);
    x = apply(b, OP_layer_norm, name, &attrs, (const int32_t[]){x, gamma, beta}, 3);
    return divided ? gathered(b, name, x) : x;
}

static struct op_attrs attention_attrs(const struct build *b)
{
    const struct model *m = b->m;
    return (struct op_attrs){.heads = (int32_t)share(b, m->heads),
                             .kv_heads = (int32_t)share(b, m->kv_heads),
                             .eager = m->eager,
                             .head_dim = (int32_t)m->head_dim,
                             .window = (int32_t)m->window};
}

/* Untied heads have a weight of their own, (vocabulary, hidden) in every family. */
static void head_and_loss(struct build *b, int32_t x, int32_t table, int32_t targets)
{
    if (!b->m->tied)
        table = parameter(b, "lm_head", ".weight", mat(share(b, b->m->vocabulary), b->m->hidden),
                          INIT_NORMAL, b->m->init_std);
    int32_t logits = apply2(b, OP_matmul, "lm_head", &(struct op_attrs){.trans_b = true}, x, table);
    apply2(b, OP_cross_entropy, "loss", NULL, logits, targets);
}

/* Radford et al. 2019: projections into the residual stream start 1/sqrt(2·layers) smaller. */
static int32_t gpt2_block(struct build *b, int32_t x)
{
    const struct model *m = b->m;
    int64_t d = m->hidden, f = m->intermediate;
    double std = m->init_std, into_residual = std / sqrt(2.0 * (double)m->layers);
    struct op_attrs attention = attention_attrs(b), gelu = {.gelu_erf = m->gelu_erf};
    int32_t y = norm(b, "ln_1", x, d, true);
    y = conv1d(b, "attn.c_attn", y, d, 3 * d, std);
    y = apply1(b, OP_attention, "attn.attention", &attention, y);
    y = conv1d_rows(b, "attn.c_proj", y, d, d, into_residual);
    x = apply2(b, OP_add, "attn.residual", NULL, x, y);
    y = norm(b, "ln_2", x, d, true);
    y = conv1d(b, "mlp.c_fc", y, d, f, std);
    y = apply1(b, OP_gelu, "mlp.gelu", &gelu, y);
    y = conv1d_rows(b, "mlp.c_proj", y, f, d, into_residual);
    return apply2(b, OP_add, "mlp.residual", NULL, x, y);
}

/* A query or key: projection, norm of each head (qwen3), rotation. which: "q" or "k". */
static int32_t rotated(struct build *b, const char *which, int32_t x, int64_t heads)
{
    const struct model *m = b->m;
    struct op_attrs rotary = {.heads = (int32_t)share(b, heads),
                              .head_dim = (int32_t)m->head_dim,
                              .theta = m->rope_theta,
                              .rope = m->rope};
    x = linear(b, join(b, "self_attn.", which, "_proj"), x, m->hidden, heads * m->head_dim,
               m->attention_bias);
    if (m->qk_norm) x = norm(b, join(b, "self_attn.", which, "_norm"), x, m->head_dim, false);
    return apply1(b, OP_rotary, join(b, "self_attn.", which, "_rotary"), &rotary, x);
}

static int32_t llama_attention(struct build *b, int32_t x)
{
    const struct model *m = b->m;
    struct op_attrs attention = attention_attrs(b);
    bool output_bias = m->attention_bias && strcmp(m->family, "qwen2") != 0;
    int32_t q = rotated(b, "q", x, m->heads);
    int32_t k = rotated(b, "k", x, m->kv_heads);
    int32_t v =
        linear(b, "self_attn.v_proj", x, m->hidden, m->kv_heads * m->head_dim, m->attention_bias);
    int32_t o =
        apply(b, OP_attention, "self_attn.attention", &attention, (const int32_t[]){q, k, v}, 3);
    return linear_inputs(b, "self_attn.o_proj", o, m->heads * m->head_dim, m->hidden, output_bias);
}

static int32_t llama_block(struct build *b, int32_t x)
{
    const struct model *m = b->m;
    int64_t d = m->hidden, f = m->intermediate;
    int32_t y = norm(b, "input_layernorm", x, d, true);
    x = apply2(b, OP_add, "self_attn.residual", NULL, x, llama_attention(b, y));
    y = norm(b, "post_attention_layernorm", x, d, true);
    int32_t gate = linear(b, "mlp.gate_proj", y, d, f, m->mlp_bias);
    int32_t up = linear(b, "mlp.up_proj", y, d, f, m->mlp_bias);
    y = apply2(b, OP_multiply, "mlp.multiply", NULL, apply1(b, OP_silu, "mlp.silu", NULL, gate),
               up);
    y = linear_inputs(b, "mlp.down_proj", y, f, d, m->mlp_bias);
    return apply2(b, OP_add, "mlp.residual", NULL, x, y);
}

static int32_t blocks(struct build *b, const char *list, int32_t x,
                      int32_t (*block)(struct build *, int32_t))
{
    for (int64_t i = 0; i < b->m->layers && b->status == OK; i++) {
        char number[24];
        snprintf(number, sizeof number, "%lld.", (long long)i);
        b->prefix = join(b, list, ".", number);
        x = block(b, x);
    }
    b->prefix = "";
    return x;
}

static void gpt2(struct build *b, int32_t tokens, int32_t targets)
{
    const struct model *m = b->m;
    int32_t wte, wpe;
    b->base = "transformer.";
    int32_t positions = input(b, "positions", INPUT_POSITIONS);
    int32_t x = embedding(b, "wte", share(b, m->vocabulary), tokens, &wte);
    int32_t p = embedding(b, "wpe", m->max_positions, positions, &wpe);
    x = joined(b, "embedding", apply2(b, OP_add, "embedding.add", NULL, x, p));
    x = blocks(b, "h", x, gpt2_block);
    head_and_loss(b, norm(b, "ln_f", x, m->hidden, true), wte, targets);
}

static void llama(struct build *b, int32_t tokens, int32_t targets)
{
    const struct model *m = b->m;
    int32_t table;
    b->base = "model.";
    int32_t x = embedding(b, "embed_tokens", share(b, m->vocabulary), tokens, &table);
    x = blocks(b, "layers", joined(b, "embed_tokens", x), llama_block);
    head_and_loss(b, norm(b, "norm", x, m->hidden, true), table, targets);
}

bool model_shares(const struct model *m, int64_t cards)
{
    return m->heads % cards == 0 && m->kv_heads % cards == 0 && m->intermediate % cards == 0;
}

static enum status check_share(const struct model *m, int64_t sequence_length, struct error *err)
{
    const struct {
        const char *what;
        int64_t n;
    } divided[] = {{"heads", m->heads},
                   {"key-value heads", m->kv_heads},
                   {"features of the ffn", m->intermediate},
                   {"positions", m->sequence_parallel ? sequence_length : 0}};
    for (size_t i = 0; m->tensor_parallel > 1 && i < sizeof divided / sizeof *divided; i++)
        if (divided[i].n % m->tensor_parallel)
            return error_set(err, ERR_INPUT,
                             "model '%s': tensor_parallel %d does not divide its %lld %s", m->name,
                             m->tensor_parallel, (long long)divided[i].n, divided[i].what);
    return OK;
}

enum status model_graph(struct arena *a, const struct model *m, enum dtype dtype,
                        int64_t microbatch, int64_t sequence_length, struct graph **out,
                        struct error *err)
{
    if (m->measured)
        return measured_model_graph(a, m, dtype, microbatch, sequence_length, out, err);
    if (dtype == DTYPE_int32)
        return error_set(err, ERR_INPUT, "model '%s': int32 is no type to train in", m->name);
    if (sequence_length < 1 || sequence_length > m->max_positions)
        return error_set(err, ERR_INPUT,
                         "model '%s': sequence length %lld is not between 1 and its %lld positions",
                         m->name, (long long)sequence_length, (long long)m->max_positions);
    if (microbatch < 1 || microbatch > INT32_MAX / sequence_length)
        return error_set(
            err, ERR_INPUT,
            "model '%s': %lld sequences of %lld tokens are not between 1 and %d tokens", m->name,
            (long long)microbatch, (long long)sequence_length, INT32_MAX);
    TRY(check_share(m, sequence_length, err));
    struct build b = {.g = graph_new(a, dtype, microbatch, sequence_length),
                      .m = m,
                      .prefix = "",
                      .cards = m->tensor_parallel > 1 ? m->tensor_parallel : 1,
                      .err = err};
    b.g->cards = (int32_t)b.cards;
    b.g->sequence_parallel = b.cards > 1 && m->sequence_parallel;
    int32_t tokens = input(&b, "tokens", INPUT_TOKENS);
    int32_t targets = input(&b, "targets", INPUT_TARGETS);
    if (!strcmp(m->family, "gpt2"))
        gpt2(&b, tokens, targets);
    else
        llama(&b, tokens, targets);
    *out = b.g;
    return b.status;
}

int64_t model_parameters(const struct model *m)
{
    struct arena *a = arena_new();
    struct graph *g;
    struct model whole = *m;
    whole.tensor_parallel = 1, whole.sequence_parallel = false;
    struct error err;
    int64_t n = 0, length = m->measured ? m->measured->sequence_length : 1;
    if (model_graph(a, &whole, DTYPE_fp32, 1, length, &g, &err) != OK) BUG("%s", err.text);
    for (int32_t t = 0; t < g->n_tensors; t++)
        if (g->tensors[t].role == TENSOR_PARAMETER) n += shape_elements(&g->tensors[t].shape);
    arena_free(a);
    return n;
}
