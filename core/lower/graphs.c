/* core/lower/graphs.c - the training graphs of one job, one per variant of its stages. */
#include "core/lower/graphs.h"

#include "core/base/arena.h"
#include "core/graph/gradient.h"

#include <inttypes.h>

/* Adds the position in the file to an error about the number of layers, which only the graph can detect. */
static enum status find_layers(struct graph *g, const struct job *j, struct error *err)
{
    struct error why = {0};
    enum status st = layers_find(g, &j->layers, &why);
    if (st == OK) return OK;
    if (!j->layers_at) return error_set(err, st, "layers: %s", why.text);
    return node_error(j->layers_at, err, "%s", why.text);
}

enum status lower_graph(struct arena *a, const struct job *j, int64_t microbatch,
                        struct graph **out, struct error *err)
{
    TRY(model_graph(a, &j->model, j->precision, microbatch, j->sequence_length, out, err));
    if (j->layers.by == LAYERS_DEFAULT) {
        graph_find_layers(*out);
        return OK;
    }
    /* one sequence on one GPU, so layer numbers are equal in all variants */
    struct graph *one;
    struct model whole = j->model;
    whole.tensor_parallel = 1, whole.sequence_parallel = false;
    TRY(model_graph(a, &whole, j->precision, 1, j->sequence_length, &one, err));
    TRY(find_layers(one, j, err));
    layers_like(*out, one);
    return OK;
}

enum status lower_graph_unsharded(struct arena *a, const struct job *j, int64_t microbatch,
                                  struct graph **out, struct error *err)
{
    struct job whole = *j;
    whole.model.tensor_parallel = 1, whole.model.sequence_parallel = false;
    return lower_graph(a, &whole, microbatch, out, err);
}

static enum status training_graph(struct arena *a, const struct job *j, int64_t sequences,
                                  const struct lower_options *o, struct graph **out,
                                  struct error *err)
{
    return lower_graph_between(a, j, sequences, o, 0, NULL, out, err);
}

enum status lower_graph_between(struct arena *a, const struct job *j, int64_t sequences,
                                const struct lower_options *o, int32_t n_edges, const int32_t *edge,
                                struct graph **out, struct error *err)
{
    struct graph *g;
    TRY(lower_graph(a, j, sequences, &g, err));
    g = graph_fuse(g, o->fused, o->n_fused);
    g->n_edges = n_edges;
    for (int32_t e = 0; e < n_edges; e++) g->edge[e] = edge[e];
    *out = g;
    return gradient_build(g, (double)sequences / (double)j->global_batch, err);
}

enum status lower_training_graph(struct arena *a, const struct job *j, int64_t microbatch,
                                 const struct lower_options *o, struct graph **out,
                                 struct error *err)
{
    if (microbatch < 1 || j->global_batch % microbatch)
        return error_set(err, ERR_INPUT,
                         "microbatch %" PRId64 " does not divide global_batch %" PRId64, microbatch,
                         j->global_batch);
    return training_graph(a, j, microbatch, o, out, err);
}

int32_t lower_tp(const struct model *m, const struct device_type *t, bool *sequence_parallel)
{
    bool shared = !m->measured && t->tensor_parallel > 1;
    *sequence_parallel = shared && t->sequence_parallel;
    return shared ? t->tensor_parallel : 1;
}

const struct graph *lower_graphs_find(const struct lower_graphs *s, int32_t tp,
                                      bool sequence_parallel, int64_t sequences)
{
    for (int32_t i = 0; i < s->n; i++) {
        const struct graph *g = s->graphs[i];
        if ((g->tp > 1 ? g->tp : 1) == tp && g->sequence_parallel == sequence_parallel &&
            g->microbatch == sequences)
            return g;
    }
    return NULL;
}

/* Stages exchange tensors by layer, so all variants must have the same layers. */
static enum status same_layers(const struct graph *first, const struct graph *g, struct error *err)
{
    if (g->n_layers == first->n_layers) return OK;
    return error_set(err, ERR_INPUT,
                     "the model has %" PRId32 " layers on %" PRId32 " GPUs and %" PRId32
                     " on %" PRId32,
                     first->n_layers, first->tp, g->n_layers, g->tp);
}

enum status lower_graphs_need(struct arena *a, struct lower_graphs *s, const struct job *j,
                              const struct lower_options *o, int32_t tp, bool sequence_parallel,
                              int64_t sequences, const struct graph **out, struct error *err)
{
    *out = lower_graphs_find(s, tp, sequence_parallel, sequences);
    if (*out) return OK;
    struct job shared = *j;
    struct graph *g = NULL;
    shared.model.tensor_parallel = tp, shared.model.sequence_parallel = sequence_parallel;
    TRY(training_graph(a, &shared, sequences, o, &g, err));
    if (s->n) TRY(same_layers(s->graphs[0], g, err));
    s->graphs = arena_grow(a, s->graphs, (size_t)s->n, &s->capacity, sizeof(struct graph *));
    *out = s->graphs[s->n++] = g;
    return OK;
}

enum status lower_graphs_make(struct arena *a, const struct job *j, const struct cluster *c,
                              int64_t microbatch, const struct lower_options *o,
                              struct lower_graphs *out, struct error *err)
{
    *out = (struct lower_graphs){0};
    for (int32_t t = 0; t < c->n_types; t++) {
        const struct graph *g;
        bool positions;
        int32_t tp = lower_tp(&j->model, &c->types[t], &positions);
        enum status st = lower_graphs_need(a, out, j, o, tp, positions, microbatch, &g, err);
        if (st != OK && tp > 1) return error_wrap(err, st, "device type %s", c->types[t].name);
        TRY(st); /* of one GPU: unrelated to the type */
    }
    return OK;
}
