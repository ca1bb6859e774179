/* core/model/read.c - keys of a config.json (core/model/read.h). */
#include "core/model/read.h"

#include <string.h>

bool model_is(const struct model *m, const char *family) { return !strcmp(m->family, family); }

/* The node, or NULL if the key is absent or null. */
const struct node *model_given(const struct node *c, const char *key)
{
    const struct node *n = node_get(c, key);
    return n && n->kind != NODE_NULL ? n : NULL;
}

/* Some exporters write numbers as strings: quotes are accepted, the text must be a number. */
struct node model_unquoted(const struct node *n)
{
    struct node copy = *n;
    copy.quoted = false;
    return copy;
}

enum status model_need_int(const struct node *c, const char *key, int64_t max, int64_t *out,
                           struct error *err)
{
    const struct node *n;
    TRY(node_need(c, key, &n, err));
    struct node number = model_unquoted(n);
    return node_int(&number, 1, max, out, err);
}

enum status model_need_encoder(const struct node *c, struct model *m, struct error *err)
{
    TRY(model_need_int(c, "hidden_size", MODEL_WIDTH_MAX, &m->hidden, err));
    TRY(model_need_int(c, "num_hidden_layers", MODEL_LAYERS_MAX, &m->layers, err));
    TRY(model_need_int(c, "num_attention_heads", MODEL_WIDTH_MAX, &m->heads, err));
    TRY(model_need_int(c, "intermediate_size", MODEL_INTERMEDIATE_MAX, &m->intermediate, err));
    if (m->hidden % m->heads)
        return node_error(node_get(c, "num_attention_heads"), err,
                          "%lld heads do not divide hidden_size %lld", (long long)m->heads,
                          (long long)m->hidden);
    m->kv_heads = m->heads, m->head_dim = m->hidden / m->heads;
    return OK;
}

/* *out keeps its value if the key is absent or null. */
enum status model_get_int(const struct node *c, const char *key, int64_t min, int64_t max,
                          int64_t *out, struct error *err)
{
    const struct node *n = model_given(c, key);
    if (!n) return OK;
    struct node number = model_unquoted(n);
    return node_int(&number, min, max, out, err);
}

enum status model_get_double(const struct node *c, const char *key, double min, double max,
                             double *out, struct error *err)
{
    const struct node *n = model_given(c, key);
    if (!n) return OK;
    struct node number = model_unquoted(n);
    return node_double(&number, min, max, out, err);
}

/* Keys that change the computation unless they have this value. */
enum status model_refuse_true(const struct node *c, const char *key, const char *why,
                              struct error *err)
{
    bool value = false;
    TRY(node_get_bool(c, key, &value, err));
    return value ? node_error(node_get(c, key), err, "%s", why) : OK;
}

/* Keys with a few possible words: *out is the index in the NULL-ended list. */
enum status model_choose(const struct node *c, const char *key, const char *const *names, int *out,
                         struct error *err)
{
    const struct node *n = model_given(c, key);
    return n ? node_choice(n, names, out, err) : OK;
}

void model_put_double(struct json *j, const char *key, double value)
{
    (j->layout == JSON_INDENTED ? json_put_fraction : json_put_double)(j, key, value);
}
