/* core/model/build.c - building blocks of the model families (core/model/build.h). */
#include "core/model/build.h"

#include "core/base/arena.h"

#include <stdio.h>
#include <string.h>

const char *build_join(struct build *b, const char *x, const char *y, const char *z)
{
    size_t n = strlen(x) + strlen(y) + strlen(z) + 1;
    char *s = arena_alloc(b->g->arena, n, 1);
    snprintf(s, n, "%s%s%s", x, y, z);
    return s;
}

struct shape build_vec(int64_t n) { return (struct shape){.rank = 1, .dim = {n}}; }
struct shape build_mat(int64_t m, int64_t n) { return (struct shape){.rank = 2, .dim = {m, n}}; }

int32_t build_input(struct build *b, const char *name, enum tensor_input which)
{
    return graph_add_tensor(
        b->g, (struct tensor){.name = name,
                              .role = TENSOR_INPUT,
                              .dtype = DTYPE_int32,
                              .shape = build_mat(b->g->microbatch, b->g->sequence_length),
                              .input = which});
}

/* suffix ".weight" or ".bias" of module (its full name). */
int32_t build_parameter(struct build *b, const char *module, const char *suffix, struct shape shape,
                        enum tensor_init init, double std)
{
    return graph_add_tensor(b->g, (struct tensor){.name = build_join(b, module, suffix, ""),
                                                  .role = TENSOR_PARAMETER,
                                                  .dtype = b->g->dtype,
                                                  .shape = shape,
                                                  .init = init,
                                                  .init_std = std,
                                                  .decay = shape.rank >= 2});
}

/* The operator's first output; 0 after an error (a valid index that is not used). */
int32_t build_apply(struct build *b, enum op_kind kind, const char *name,
                    const struct op_attrs *attrs, const int32_t *inputs, int32_t n_inputs)
{
    int32_t outputs[OP_OPERANDS_MAX] = {0};
    if (b->status == OK)
        b->status = graph_add_op(b->g, kind, build_join(b, b->prefix, name, ""), attrs, inputs,
                                 n_inputs, outputs, b->err);
    return outputs[0];
}

int32_t build_apply1(struct build *b, enum op_kind kind, const char *name,
                     const struct op_attrs *attrs, int32_t x)
{
    return build_apply(b, kind, name, attrs, &x, 1);
}

int32_t build_apply2(struct build *b, enum op_kind kind, const char *name,
                     const struct op_attrs *attrs, int32_t x, int32_t y)
{
    return build_apply(b, kind, name, attrs, (const int32_t[]){x, y}, 2);
}

const char *build_module_of(struct build *b, const char *name)
{
    return build_join(b, b->base, b->prefix, name);
}

int32_t build_embedding(struct build *b, const char *name, int64_t rows, int32_t ids,
                        int32_t *table)
{
    *table = build_parameter(b, build_module_of(b, name), ".weight", build_mat(rows, b->m->hidden),
                             INIT_NORMAL, b->m->init_std);
    return build_apply2(b, OP_embedding, name, NULL, ids, *table);
}

int32_t build_add_bias(struct build *b, const char *name, int32_t y, int64_t n)
{
    int32_t bias =
        build_parameter(b, build_module_of(b, name), ".bias", build_vec(n), INIT_ZEROS, 0);
    return build_apply2(b, OP_bias, build_join(b, name, ".bias", ""), NULL, y, bias);
}

/* y = x·W + b, W (in, out) */
int32_t build_conv1d(struct build *b, const char *name, int32_t x, int64_t in, int64_t out,
                     double std)
{
    int32_t w = build_parameter(b, build_module_of(b, name), ".weight", build_mat(in, out),
                                INIT_NORMAL, std);
    return build_add_bias(b, name, build_apply2(b, OP_matmul, name, NULL, x, w), out);
}

int32_t build_linear(struct build *b, const char *name, int32_t x, int64_t in, int64_t out,
                     bool bias)
{
    return build_linear_of(b, name, build_join(b, name, ".weight", ""), x, in, out, bias);
}

int32_t build_linear_of(struct build *b, const char *name, const char *weight, int32_t x, int64_t in,
                        int64_t out, bool bias)
{
    int32_t w = build_parameter(b, build_module_of(b, weight), "", build_mat(out, in), INIT_NORMAL,
                                b->m->init_std);
    int32_t y = build_apply2(b, OP_matmul, name, &(struct op_attrs){.trans_b = true}, x, w);
    return bias ? build_add_bias(b, name, y, out) : y;
}

int32_t build_rms_norm(struct build *b, const char *name, int32_t x, int64_t n, bool unit_offset)
{
    struct op_attrs attrs = {.eps = b->m->norm_eps, .unit_offset = unit_offset};
    int32_t gamma = build_parameter(b, build_module_of(b, name), ".weight", build_vec(n),
                                    unit_offset ? INIT_ZEROS : INIT_ONES, 0);
    return build_apply2(b, OP_rms_norm, name, &attrs, x, gamma);
}

int32_t build_layer_norm(struct build *b, const char *name, int32_t x, int64_t n)
{
    struct op_attrs attrs = {.eps = b->m->norm_eps};
    const char *module = build_module_of(b, name);
    int32_t gamma = build_parameter(b, module, ".weight", build_vec(n), INIT_ONES, 0);
    int32_t beta = build_parameter(b, module, ".bias", build_vec(n), INIT_ZEROS, 0);
    return build_apply(b, OP_layer_norm, name, &attrs, (const int32_t[]){x, gamma, beta}, 3);
}

int32_t build_dropout(struct build *b, const char *name, int32_t x, double rate)
{
    struct op_attrs attrs = {.rate = rate, .stream = ++b->dropouts};
    return rate > 0 ? build_apply1(b, OP_dropout, name, &attrs, x) : x;
}

struct op_attrs build_attention_attrs(const struct build *b)
{
    const struct model *m = b->m;
    return (struct op_attrs){.heads = (int32_t)m->heads,
                             .kv_heads = (int32_t)m->kv_heads,
                             .eager = m->eager,
                             .head_dim = (int32_t)m->head_dim,
                             .window = (int32_t)m->window};
}

int32_t build_blocks(struct build *b, const char *list, int32_t x,
                     int32_t (*block)(struct build *, int32_t))
{
    for (int64_t i = 0; i < b->m->layers && b->status == OK; i++) {
        char number[24];
        b->layer = i;
        snprintf(number, sizeof number, "%lld.", (long long)i);
        b->prefix = build_join(b, list, ".", number);
        x = block(b, x);
    }
    b->prefix = "";
    return x;
}

void build_head_and_loss(struct build *b, int32_t x, int32_t table, int32_t targets)
{
    if (!b->m->tied)
        table = build_parameter(b, "lm_head", ".weight",
                                build_mat(b->m->vocabulary, b->m->hidden),
                                INIT_NORMAL, b->m->init_std);
    int32_t logits =
        build_apply2(b, OP_matmul, "lm_head", &(struct op_attrs){.trans_b = true}, x, table);
    if (b->m->logit_softcap > 0)
        logits = build_apply1(b, OP_softcap, "lm_head.softcap", &(struct op_attrs){.scale = b->m->logit_softcap}, logits);
    build_apply2(b, OP_cross_entropy, "loss", NULL, logits, targets);
}
