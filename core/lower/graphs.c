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
    /* one sequence, so layer numbers are equal in all variants */
    struct graph *one;
    TRY(model_graph(a, &j->model, j->precision, 1, j->sequence_length, &one, err));
    TRY(find_layers(one, j, err));
    layers_like(*out, one);
    return OK;
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

enum status lower_graphs_need(struct arena *a, struct lower_graphs *s, const struct job *j,
                              const struct lower_options *o, int64_t sequences,
                              const struct graph **out, struct error *err)
{
    for (int32_t i = 0; i < s->n; i++)
        if (s->graphs[i]->microbatch == sequences) {
            *out = s->graphs[i];
            return OK;
        }
    struct graph *g = NULL;
    TRY(training_graph(a, j, sequences, o, &g, err));
    s->graphs = arena_grow(a, s->graphs, (size_t)s->n, &s->capacity, sizeof(struct graph *));
    *out = s->graphs[s->n++] = g;
    return OK;
}

enum status lower_graphs_make(struct arena *a, const struct job *j, int64_t microbatch,
                              const struct lower_options *o, struct lower_graphs *out,
                              struct error *err)
{
    const struct graph *g;
    *out = (struct lower_graphs){0};
    return lower_graphs_need(a, out, j, o, microbatch, &g, err);
}
