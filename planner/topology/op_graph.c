#include "planner/topology/op_graph.h"

#include "core/base/arena.h"
#include "planner/topology/igraph_guard.h"

#include <igraph.h>

/* Edge list in igraph's layout. */
struct edges {
    struct arena *arena;
    int64_t n;
    struct {
        int32_t from, to;
        double capacity;
    } * list;
    size_t capacity;
};

static void add_edge(struct edges *e, int32_t from, int32_t to, double capacity)
{
    e->list = arena_grow(e->arena, e->list, (size_t)e->n, &e->capacity, sizeof *e->list);
    e->list[e->n].from = from, e->list[e->n].to = to;
    e->list[e->n++].capacity = capacity;
}

static enum status make_graph(const struct edges *e, int32_t n_vertices, igraph_t *out,
                              struct error *err)
{
    igraph_vector_int_t ends;
    TRY(igraph_guard(igraph_vector_int_init(&ends, 2 * e->n), "operators' edges", err));
    for (int64_t i = 0; i < e->n; i++) {
        VECTOR(ends)[2 * i] = e->list[i].from;
        VECTOR(ends)[2 * i + 1] = e->list[i].to;
    }
    enum status st = igraph_guard(igraph_create(out, &ends, n_vertices, IGRAPH_DIRECTED),
                                  "a graph of operators", err);
    igraph_vector_int_destroy(&ends);
    return st;
}

/* Vertices: the operators of the range, the tensors that live in it, and the two sides. */
struct network {
    const struct graph *g;
    int32_t first, last, before, behind, n;
    double most; /* infinite capacity: more than all tensors together */
    struct edges e;
};

static int32_t vertex_of(const struct network *w, int32_t op)
{
    return op < w->first ? w->before : op > w->last ? w->behind : op - w->first;
}

static void add_tensors(struct network *w, struct arena *a)
{
    const struct graph *g = w->g;
    int32_t *vertex = ARENA_ARRAY(a, int32_t, (size_t)g->n_tensors);
    for (int32_t t = 0; t < g->n_tensors; t++) {
        vertex[t] = -1;
        if (g->tensors[t].role == TENSOR_ACTIVATION && g->tensors[t].producer < g->n_forward)
            w->most += (double)graph_tensor_bytes(g, t);
    }
    for (int32_t i = w->first; i < g->n_forward; i++)
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) {
            int32_t t = g->ops[i].input[k], p = g->tensors[t].producer;
            if (p < 0 || p > w->last) continue;
            int32_t from = vertex_of(w, p), to = vertex_of(w, i);
            if (vertex[t] < 0) {
                vertex[t] = w->n++;
                add_edge(&w->e, from, vertex[t], (double)graph_tensor_bytes(g, t));
            }
            add_edge(&w->e, vertex[t], to, w->most);
            if (from != w->before && to != w->behind) add_edge(&w->e, to, from, w->most);
        }
}

static enum status min_cut(const struct network *w, double *out, struct error *err)
{
    igraph_t graph;
    igraph_vector_t capacity;
    igraph_guard_enter();
    enum status st = make_graph(&w->e, w->n, &graph, err);
    if (st != OK) goto leave;
    st = igraph_guard(igraph_vector_init(&capacity, w->e.n), "capacities", err);
    if (st != OK) goto graph;
    for (int64_t i = 0; i < w->e.n; i++) VECTOR(capacity)[i] = w->e.list[i].capacity;
    st = igraph_guard(igraph_st_mincut_value(&graph, out, w->before, w->behind, &capacity),
                      "a minimum cut", err);
    igraph_vector_destroy(&capacity);
graph:
    igraph_destroy(&graph);
leave:
    igraph_guard_leave();
    return st;
}

enum status op_graph_least_cut(struct arena *a, const struct graph *g, int32_t first, int32_t last,
                               const enum op_side *side, int64_t *bytes, struct error *err)
{
    int32_t n = last - first + 1;
    struct network w = {.g = g,
                        .first = first,
                        .last = last,
                        .before = n,
                        .behind = n + 1,
                        .n = n + 2,
                        .most = 1,
                        .e = {.arena = a}};
    double least;
    add_tensors(&w, a);
    for (int32_t i = 0; i < n; i++) {
        if (side[i] == OP_SIDE_BEFORE) add_edge(&w.e, w.before, i, w.most);
        if (side[i] == OP_SIDE_BEHIND) add_edge(&w.e, i, w.behind, w.most);
    }
    TRY(min_cut(&w, &least, err));
    *bytes = least < w.most ? (int64_t)least : -1;
    return OK;
}

enum status op_graph_least_after(struct arena *a, const struct graph *g, int32_t layer,
                                 int64_t *bytes, struct error *err)
{
    int32_t first = -1, end[2] = {-1, -1}, products[2] = {0, 0};
    enum op_side *side = ARENA_ARRAY(a, enum op_side, (size_t)g->n_forward);
    for (int32_t i = 0; i < g->n_forward; i++) {
        const struct graph_op *op = &g->ops[i];
        int32_t behind = op->layer - layer;
        if (behind != 0 && behind != 1) continue;
        if (first < 0) first = i;
        end[behind] = i;
        if (!op_is_product(op->kind)) continue;
        side[i - first] = behind ? OP_SIDE_BEHIND : OP_SIDE_BEFORE;
        products[behind]++;
    }
    if (!products[0]) side[end[0] - first] = OP_SIDE_BEFORE;
    if (!products[1]) side[end[1] - first] = OP_SIDE_BEHIND;
    return op_graph_least_cut(a, g, first, end[1], side, bytes, err);
}
