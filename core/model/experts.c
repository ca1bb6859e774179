/* core/model/experts.c - keys and layers of models with experts (MoE). */
#include "core/model/experts.h"

#include "core/base/arena.h"
#include "core/model/read.h"

#include <math.h>
#include <string.h>

enum { EXPERTS_MAX = 1 << 16 };

/* --- config.json --- */

static enum status read_capacity(const struct node *c, double absent, struct model *m,
                                 struct error *err)
{
    const struct node *n = node_get(c, "capacity_factor");
    m->capacity_factor = n ? 0 : absent;
    if (!n || n->kind == NODE_NULL) return OK;
    TRY(model_get_double(c, "capacity_factor", 0, EXPERTS_MAX, &m->capacity_factor, err));
    return m->capacity_factor > 0 ? OK
                                  : node_error(n, err, "must be above 0, or null for no bound");
}

static enum status read_dense_layers(const struct node *c, struct model *m, struct error *err)
{
    const struct node *n = model_given(c, "mlp_only_layers");
    if (!n) return OK;
    TRY(node_is(n, NODE_LIST, err));
    if (n->count > MODEL_DENSE_MAX)
        return node_error(n, err, "more than %d layers", MODEL_DENSE_MAX);
    for (size_t i = 0; i < n->count; i++) {
        int64_t layer;
        TRY(node_int(n->members[i], 0, MODEL_LAYERS_MAX, &layer, err));
        m->dense_layers[m->n_dense_layers++] = (int32_t)layer;
    }
    return OK;
}

/* key: the number of experts. */
static enum status read_chosen(const struct node *c, const char *key, struct model *m,
                               struct error *err)
{
    TRY(model_get_int(c, "num_experts_per_tok", 1, EXPERTS_MAX, &m->chosen, err));
    if (m->chosen <= m->experts) return OK;
    const struct node *chosen = model_given(c, "num_experts_per_tok"), *n = model_given(c, key);
    if (chosen) n = chosen;
    return node_error(n ? n : c, err, "top-%lld of %lld experts is not possible%s",
                      (long long)m->chosen, (long long)m->experts,
                      chosen ? "" : "; state num_experts_per_tok");
}

static enum status read_mixtral(const struct node *c, struct model *m, struct error *err)
{
    double noise = 0;
    m->experts = 8, m->chosen = 2, m->sparse_step = 1, m->renormalise = true;
    m->expert_intermediate = m->intermediate;
    TRY(model_get_int(c, "num_local_experts", 1, EXPERTS_MAX, &m->experts, err));
    TRY(model_get_double(c, "router_jitter_noise", 0, 1, &noise, err));
    if (noise > 0)
        return node_error(model_given(c, "router_jitter_noise"), err,
                          "router noise is not supported");
    return read_chosen(c, "num_local_experts", m, err);
}

static enum status read_qwen3_moe(const struct node *c, struct model *m, struct error *err)
{
    m->experts = 128, m->chosen = 8, m->sparse_step = 1, m->expert_intermediate = 768;
    TRY(model_get_int(c, "num_experts", 1, EXPERTS_MAX, &m->experts, err));
    TRY(model_get_int(c, "moe_intermediate_size", 1, MODEL_INTERMEDIATE_MAX,
                      &m->expert_intermediate, err));
    TRY(model_get_int(c, "decoder_sparse_step", 1, MODEL_LAYERS_MAX, &m->sparse_step, err));
    TRY(node_get_bool(c, "norm_topk_prob", &m->renormalise, err));
    TRY(read_dense_layers(c, m, err));
    return read_chosen(c, "num_experts", m, err);
}

static enum status read_bert(const struct node *c, struct model *m, struct error *err)
{
    TRY(model_get_int(c, "num_experts", 0, EXPERTS_MAX, &m->experts, err));
    if (!m->experts) return OK;
    m->chosen = 2, m->sparse_step = 2, m->renormalise = true;
    m->expert_intermediate = m->intermediate;
    TRY(model_get_int(c, "encoder_sparse_step", 1, MODEL_LAYERS_MAX, &m->sparse_step, err));
    return read_chosen(c, "num_experts", m, err);
}

enum status model_read_experts(const struct node *c, struct model *m, struct error *err)
{
    bool bert = model_is(m, "bert");
    if (model_is(m, "mixtral"))
        TRY(read_mixtral(c, m, err));
    else if (model_is(m, "qwen3_moe"))
        TRY(read_qwen3_moe(c, m, err));
    else if (bert)
        TRY(read_bert(c, m, err));
    if (!m->experts) return OK;
    m->aux_loss = bert ? 0 : 0.001;
    TRY(model_get_double(c, "router_aux_loss_coef", 0, 1e6, &m->aux_loss, err));
    return read_capacity(c, bert ? 1.25 : 0, m, err);
}

void model_write_experts(struct json *j, const struct model *m)
{
    if (!m->experts) return;
    json_put_int(j, model_is(m, "mixtral") ? "num_local_experts" : "num_experts", m->experts);
    json_put_int(j, "num_experts_per_tok", m->chosen);
    if (model_is(m, "bert")) json_put_int(j, "encoder_sparse_step", m->sparse_step);
    if (model_is(m, "qwen3_moe")) {
        json_put_int(j, "moe_intermediate_size", m->expert_intermediate);
        json_put_int(j, "decoder_sparse_step", m->sparse_step);
        json_put_bool(j, "norm_topk_prob", m->renormalise);
        json_put_list_line(j, "mlp_only_layers");
        for (int32_t i = 0; i < m->n_dense_layers; i++) json_put_int(j, NULL, m->dense_layers[i]);
        json_close(j);
    }
    model_put_double(j, "router_aux_loss_coef", m->aux_loss);
    if (m->capacity_factor > 0)
        model_put_double(j, "capacity_factor", m->capacity_factor);
    else
        json_put_null(j, "capacity_factor");
}

/* --- sizes --- */

bool model_has_experts(const struct model *m, int64_t layer)
{
    for (int32_t i = 0; i < m->n_dense_layers; i++)
        if (m->dense_layers[i] == layer) return false;
    return m->experts && (layer + 1) % m->sparse_step == 0;
}

const struct expert_block *model_expert_block(const struct model *m, int64_t block)
{
    for (int32_t i = 0; i < m->n_expert_blocks; i++)
        if (m->expert_blocks[i].block == block) return &m->expert_blocks[i];
    return NULL;
}

int64_t model_capacity(const struct model *m, int64_t sequence_length)
{
    double factor = m->capacity_factor > 0 ? m->capacity_factor : m->expert_imbalance;
    if (factor <= 0) return sequence_length;
    double even = (double)(m->chosen * sequence_length) / (double)m->experts;
    double slots = ceil(factor * even);
    if (slots >= (double)sequence_length) return sequence_length;
    return slots < 1 ? 1 : (int64_t)slots;
}

const char *model_experts_assumed(struct arena *a, const struct model *m, int64_t sequence_length)
{
    if (!m->experts) return NULL;
    long long slots = model_capacity(m, sequence_length);
    double even = (double)(m->chosen * sequence_length) / (double)m->experts;
    const char *dropped =
        slots < sequence_length && m->capacity_factor > 0
            ? arena_printf(a, "capacity_factor %g, further tokens skip the expert",
                           m->capacity_factor)
        : slots < sequence_length
            ? arena_printf(a, "expert_imbalance %g; a run would skip further tokens",
                           m->expert_imbalance)
        : m->capacity_factor > 0 || m->expert_imbalance > 0
            ? "no token is dropped"
            : "no token is dropped; `expert_imbalance: 2` in the job plans for 2 ×";
    bool counted = false;
    for (int32_t i = 0; i < m->n_expert_blocks; i++) counted |= m->expert_blocks[i].tokens != NULL;
    return arena_printf(a,
                        "memory for %lld tokens of a sequence in each, %.3g × the even "
                        "share (%s); time of %s tokens",
                        slots, (double)slots / even, dropped, counted ? "a run's routed" : "evenly routed");
}

int64_t model_active_parameters(const struct model *m)
{
    int64_t matrices = model_is(m, "bert") ? 2 : 3, idle = 0;
    for (int64_t i = 0; i < m->layers; i++)
        if (model_has_experts(m, i))
            idle += (m->experts - m->chosen) * matrices * m->hidden * m->expert_intermediate;
    return model_parameters(m) - idle;
}

/* --- graph --- */

/* Of each expert of the layout, what attrs.load_ppm is of a shard; NULL: equal shares. An expert has no more tokens than slots. */
static const int32_t *loads_of(struct build *b, const struct expert_block *x)
{
    const struct model *m = b->m;
    if (!x || !x->tokens) return NULL;
    double slots = (double)model_capacity(m, b->g->sequence_length),
           all = (double)(m->chosen * b->g->sequence_length),
           even = fmin(all / (double)m->experts, slots);
    int32_t *out = ARENA_ARRAY(b->g->arena, int32_t, (size_t)m->experts);
    double sum = 0;
    for (int32_t i = 0; i < m->experts; i++) sum += (double)x->tokens[i];
    for (int32_t i = 0; i < m->experts; i++)
        out[i] = (int32_t)lround(fmin(1e6 * fmin((double)x->tokens[x->order ? x->order[i] : i] / sum * all, slots) / even, INT32_MAX));
    return out;
}

/* All operators of a block with gates, from the first one on. */
static void set_loads(struct build *b, int32_t first, const int32_t *load_ppm)
{
    for (int32_t i = first; load_ppm && i < b->g->n_ops; i++)
        if (op_gates_input(b->g->ops[i].kind) >= 0) b->g->ops[i].load_ppm = load_ppm;
}

/* y = x·Wᵀ per expert, in the slots that the gates fill. */
static int32_t project(struct build *b, const char *name, int32_t x, int32_t gates, int64_t in,
                       int64_t out)
{
    struct op_attrs attrs = {.trans_b = true, .chosen = (int32_t)b->m->chosen};
    struct shape shape = {.rank = 3, .dim = {b->m->experts, out, in}};
    int32_t w =
        build_parameter(b, build_module_of(b, name), ".weight", shape, INIT_NORMAL, b->m->init_std);
    const struct expert_block *at = model_expert_block(b->m, b->layer);
    b->g->tensors[w].shard.order = at ? at->order : NULL;
    return build_apply(b, OP_expert_matmul, name, &attrs, (const int32_t[]){x, w, gates}, 3);
}

int32_t experts_build(struct build *b, const struct expert_names *names, int32_t x)
{
    const struct model *m = b->m;
    int64_t d = m->hidden, f = m->expert_intermediate;
    struct op_attrs attrs = {
        .chosen = (int32_t)m->chosen, .renormalise = m->renormalise, .scale = m->balance, .block = (int32_t)b->layer + 1};
    struct op_attrs to = {.chosen = attrs.chosen,
                          .capacity = model_capacity(m, b->g->sequence_length)};
    struct op_attrs from = {.chosen = attrs.chosen, .weighted = true};
    const char *experts = names->experts;
    const struct expert_block *at = model_expert_block(m, b->layer);
    int32_t gate = b->g->n_tensors, first = b->g->n_ops;
    int32_t logits = build_linear(b, names->gate, x, d, m->experts, false);
    b->g->tensors[gate].shard.order = at ? at->order : NULL; /* its weight is added first */
    int32_t gates =
        build_apply1(b, OP_gating, build_join(b, names->gate, ".gating", ""), &attrs, logits);
    x = build_apply2(b, OP_dispatch, build_join(b, experts, ".dispatch", ""), &to, x, gates);
    int32_t y = project(b, build_join(b, experts, ".", names->in), x, gates, d, f);
    if (names->up) {
        int32_t up = project(b, build_join(b, experts, ".", names->up), x, gates, d, f);
        y = build_apply1(b, OP_silu, build_join(b, experts, ".silu", ""), NULL, y);
        y = build_apply2(b, OP_multiply, build_join(b, experts, ".multiply", ""), NULL, y, up);
    } else {
        struct op_attrs gelu = {.gelu_erf = m->gelu_erf};
        y = build_apply1(b, OP_gelu, build_join(b, experts, ".gelu", ""), &gelu, y);
    }
    y = project(b, build_join(b, experts, ".", names->out), y, gates, f, d);
    y = build_apply2(b, OP_combine, build_join(b, experts, ".combine", ""), &from, y, gates);
    set_loads(b, first, loads_of(b, at));
    return y;
}
