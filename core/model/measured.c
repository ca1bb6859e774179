#include "core/model/measured.h"

#include "core/base/arena.h"
#include "core/model/keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS_MAX = 4096, TP_MAX = 64, COUNTS_MAX = 16 };
#define ELEMENTS_MAX (INT64_C(1) << 40)

static enum status list_of(const struct node *map, const char *key, size_t most,
                           const struct node **out, struct error *err)
{
    TRY(node_need(map, key, out, err));
    TRY(node_is(*out, NODE_LIST, err));
    if ((*out)->count >= 1 && (*out)->count <= most) return OK;
    return node_error(*out, err, "must have 1 to %zu members, found %zu", most, (*out)->count);
}

static enum status read_tp(struct arena *a, const struct node *config, struct measured_model *m,
                           struct error *err)
{
    const struct node *list;
    TRY(list_of(config, "tensor_parallel", COUNTS_MAX, &list, err));
    m->n_tp = (int32_t)list->count;
    m->tp = ARENA_ARRAY(a, int32_t, list->count);
    for (int32_t i = 0; i < m->n_tp; i++) {
        int64_t tp;
        TRY(node_int(list->members[i], 1, TP_MAX, &tp, err));
        if (i && tp <= m->tp[i - 1])
            return node_error(list->members[i], err, "must ascend: %" PRId64 " after %" PRId32, tp,
                              m->tp[i - 1]);
        m->tp[i] = (int32_t)tp;
    }
    return OK;
}

static enum status read_shares(struct arena *a, const struct node *layer, const char *key,
                               const struct measured_model *m, struct shares *out,
                               struct error *err)
{
    const struct node *list;
    TRY(list_of(layer, key, COUNTS_MAX, &list, err));
    if ((int32_t)list->count != m->n_tp)
        return node_error(list, err, "has %zu sizes for %" PRId32 " tensor-parallel degrees",
                          list->count, m->n_tp);
    int64_t *elements = ARENA_ARRAY(a, int64_t, list->count);
    for (int32_t i = 0; i < m->n_tp; i++)
        TRY(node_int(list->members[i], 0, ELEMENTS_MAX, &elements[i], err));
    *out = (struct shares){m->n_tp, m->tp, elements};
    return OK;
}

static enum status read_layer(struct arena *a, const struct node *n, bool last,
                              const struct measured_model *m, struct measured_layer *l,
                              struct error *err)
{
    const struct node *at;
    TRY(document_keys(n, measured_layer_keys, err));
    TRY(node_need(n, "name", &at, err));
    TRY(node_text(at, &l->name, err));
    TRY(node_need(n, "cost", &at, err));
    TRY(node_text(at, &l->cost, err));
    TRY(node_need(n, "output", &at, err));
    TRY(node_int(at, 0, ELEMENTS_MAX, &l->output, err));
    if (!l->output != last)
        return node_error(at, err,
                          last ? "the last layer computes the loss: its output must be 0"
                               : "only the last layer may have output 0");
    TRY(read_shares(a, n, "parameters", m, &l->parameters, err));
    return read_shares(a, n, "kept", m, &l->kept, err);
}

enum status measured_model_read(struct arena *a, const struct node *config, struct model *out,
                                struct error *err)
{
    struct measured_model *m = ARENA_ARRAY(a, struct measured_model, 1);
    const struct node *n;
    int64_t version;
    TRY(document_keys(config, measured_keys, err));
    TRY(node_need(config, "version", &n, err));
    TRY(node_int(n, 1, 1, &version, err));
    TRY(node_need(config, "sequence_length", &n, err));
    TRY(node_int(n, 1, 1 << 27, &m->sequence_length, err));
    TRY(read_tp(a, config, m, err));
    TRY(list_of(config, "layers", LAYERS_MAX, &n, err));
    m->n_layers = (int32_t)n->count;
    m->layers = ARENA_ARRAY(a, struct measured_layer, n->count);
    for (int32_t i = 0; i < m->n_layers; i++)
        TRY(read_layer(a, n->members[i], i + 1 == m->n_layers, m, &m->layers[i], err));
    out->measured = m;
    out->layers = m->n_layers;
    out->max_positions = m->sequence_length;
    out->vocabulary = 256; /* of whatever it was measured with: no token is ever read */
    return OK;
}

static void write_shares(struct json *j, const char *key, const struct shares *s)
{
    json_put_list_line(j, key);
    for (int32_t i = 0; i < s->n; i++) json_put_int(j, NULL, s->elements[i]);
    json_close(j);
}

void measured_model_write(struct json *j, const struct model *model)
{
    const struct measured_model *m = model->measured;
    json_put_text(j, "model_type", model->family);
    json_put_int(j, "version", 1);
    json_put_text(j, "_name_or_path", model->name);
    json_put_int(j, "sequence_length", m->sequence_length);
    json_put_list_line(j, "tensor_parallel");
    for (int32_t i = 0; i < m->n_tp; i++) json_put_int(j, NULL, m->tp[i]);
    json_close(j);
    json_put_list(j, "layers");
    for (int32_t i = 0; i < m->n_layers; i++) {
        const struct measured_layer *l = &m->layers[i];
        json_put_object_line(j, NULL);
        json_put_text(j, "name", l->name);
        json_put_text(j, "cost", l->cost);
        json_put_int(j, "output", l->output);
        write_shares(j, "parameters", &l->parameters);
        write_shares(j, "kept", &l->kept);
        json_close(j);
    }
    json_close(j);
}

/* The measured elements of one layer's parameters, unshared. */
static int64_t measured_parameters(const struct measured_layer *l)
{
    int64_t whole = shares_at(&l->parameters, 1);
    return whole >= 0 ? whole : l->parameters.elements[0] * l->parameters.tp[0];
}

enum status measured_model_graph(struct arena *a, const struct model *model, enum dtype dtype,
                                 int64_t microbatch, int64_t sequence_length, struct graph **out,
                                 struct error *err)
{
    const struct measured_model *m = model->measured;
    if (dtype != DTYPE_fp32)
        return error_set(err, ERR_INPUT, "model '%s' was measured in fp32, not in %s", model->name,
                         dtype_name(dtype));
    if (sequence_length != m->sequence_length)
        return error_set(err, ERR_INPUT,
                         "model '%s' was measured with sequences of %" PRId64
                         " tokens, not of %" PRId64,
                         model->name, m->sequence_length, sequence_length);
    if (microbatch < 1 || microbatch > 1 << 20)
        return error_set(err, ERR_INPUT, "model '%s': a microbatch of %" PRId64 " sequences",
                         model->name, microbatch);
    struct graph *g = *out = graph_new(a, dtype, microbatch, sequence_length);
    int32_t operands[2] = {-1, -1}, made[2];
    for (int32_t i = 0; i < m->n_layers; i++) {
        const struct measured_layer *l = &m->layers[i];
        operands[0] = graph_add_tensor(
            g, (struct tensor){.name = arena_printf(a, "%s.weights", l->name),
                               .role = TENSOR_PARAMETER,
                               .dtype = dtype,
                               .shape = {.rank = 1, .dim = {measured_parameters(l)}},
                               .decay = true});
        struct op_attrs attrs = {.row = op_measured_row(model->name, l->cost),
                                 .sequences = microbatch,
                                 .out = l->output,
                                 .kept = l->kept.elements[0],
                                 .first = i == 0};
        TRY(graph_add_op(g, OP_measured_forward, arena_printf(a, "%s.forward", l->name), &attrs,
                         operands, i ? 2 : 1, made, err));
        g->tensors[made[1]].shares = &l->kept;
        operands[1] = made[0];
    }
    return OK;
}
