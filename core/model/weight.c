#include "core/model/weight.h"

#include "core/base/arena.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum rule_kind {
    STACKED, /* of the graph: `name` is in the name; on disk a number and a dot follow it */
    JOINED,  /* of the graph: `name` and one of the digits `to` end the name; on disk these parts are one tensor, rows behind rows */
    LEADING, /* of the graph: the whole name; on disk 3 dimensions, 1 in front */
    PREFIX,  /* of a file: `name` begins it, where `to` begins the model's */
    SUFFIX,  /* of a file: `name` ends it, where `to` ends the model's */
    IGNORED, /* of a file: `name` is in the name */
    REPEATS, /* of a file: the tensor `name` has the values of `to` */
};
static const struct rule {
    enum rule_kind kind;
    const char *name, *to;
} rules[] = {
    {STACKED, ".block_sparse_moe.experts.", NULL},
    {STACKED, ".mlp.experts.", NULL},
    {JOINED, ".qkv_proj.weight.", "012"},
    {JOINED, ".gate_up_proj.weight.", "01"},
    {LEADING, "vit.embeddings.cls_token", NULL},
    {LEADING, "vit.embeddings.position_embeddings", NULL},
    {PREFIX, "h.", "transformer.h."},
    {PREFIX, "wte.", "transformer.wte."},
    {PREFIX, "wpe.", "transformer.wpe."},
    {PREFIX, "ln_f.", "transformer.ln_f."},
    {SUFFIX, ".LayerNorm.gamma", ".LayerNorm.weight"},
    {SUFFIX, ".LayerNorm.beta", ".LayerNorm.bias"},
    {IGNORED, ".attn.bias", NULL}, /* gpt2's causal masks */
    {IGNORED, ".attn.masked_bias", NULL},
    {IGNORED, ".rotary_emb.inv_freq", NULL},
    {IGNORED, ".embeddings.position_ids", NULL},
    {IGNORED, "bert.pooler.", NULL},
    {IGNORED, "cls.seq_relationship.", NULL},
    {IGNORED, "vit.pooler.", NULL},
    {REPEATS, "lm_head.weight", "model.embed_tokens.weight"},
    {REPEATS, "lm_head.weight", "transformer.wte.weight"},
    {REPEATS, "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
    {REPEATS, "cls.predictions.decoder.bias", "cls.predictions.bias"},
};
enum { RULES = sizeof rules / sizeof *rules };

static const struct rule *stacked(const char *parameter, const struct shape *shape)
{
    for (int i = 0; i < RULES; i++)
        if (rules[i].kind == STACKED && shape->rank == 3 && strstr(parameter, rules[i].name)) return &rules[i];
    return NULL;
}

int64_t weight_parts(const char *parameter, const struct shape *shape) { return stacked(parameter, shape) ? shape->dim[0] : 1; }

bool weight_part(const char *parameter, const struct shape *shape, int64_t i, char *name, size_t n, struct shape *part)
{
    const struct rule *r = stacked(parameter, shape);
    *part = *shape;
    if (r) {
        size_t at = (size_t)(strstr(parameter, r->name) - parameter) + strlen(r->name);
        *part = (struct shape){2, {shape->dim[1], shape->dim[2]}};
        return (size_t)snprintf(name, n, "%.*s%" PRId64 ".%s", (int)at, parameter, i, parameter + at) < n;
    }
    for (int k = 0; k < RULES; k++)
        if (rules[k].kind == LEADING && shape->rank == 2 && !strcmp(parameter, rules[k].name))
            *part = (struct shape){3, {1, shape->dim[0], shape->dim[1]}};
    return (size_t)snprintf(name, n, "%s", parameter) < n;
}

bool weight_joined(const char *parameter, struct weight_join *out)
{
    size_t n = strlen(parameter);
    for (int k = 0; k < RULES; k++) {
        size_t m = strlen(rules[k].name);
        if (rules[k].kind != JOINED || n <= m || strncmp(parameter + n - 1 - m, rules[k].name, m) != 0) continue;
        const char *digit = strchr(rules[k].to, parameter[n - 1]);
        if (!digit) continue;
        *out = (struct weight_join){.name_bytes = (int32_t)n - 2, .part = (int32_t)(digit - rules[k].to), .parts = (int32_t)strlen(rules[k].to)};
        return true;
    }
    return false;
}

bool weight_is_part_of(const char *parameter, const struct weight_join *join, const char *stored)
{
    size_t n = (size_t)join->name_bytes;
    return !strncmp(parameter, stored, n) && !stored[n];
}

const char *weight_other_name(struct arena *a, const char *stored, int i)
{
    size_t n = strlen(stored);
    for (int k = 0; k < RULES; k++) {
        const struct rule *r = &rules[k];
        size_t m = strlen(r->name);
        bool fits = m <= n && ((r->kind == PREFIX && !strncmp(stored, r->name, m)) || (r->kind == SUFFIX && !strcmp(stored + n - m, r->name)));
        if (!fits || i--) continue;
        return r->kind == PREFIX ? arena_join(a, r->to, stored + m) : arena_printf(a, "%.*s%s", (int)(n - m), stored, r->to);
    }
    return NULL;
}

bool weight_ignored(const char *stored)
{
    for (int k = 0; k < RULES; k++)
        if (rules[k].kind == IGNORED && strstr(stored, rules[k].name)) return true;
    return false;
}

const char *weight_repeats(const char *stored, int i)
{
    for (int k = 0; k < RULES; k++)
        if (rules[k].kind == REPEATS && !strcmp(stored, rules[k].name) && !i--) return rules[k].to;
    return NULL;
}
