/* Memory of ranges of layers, with lowering's layout rules.
 *
 * Every tensor is rounded up to the 64-byte alignment of slots. A tensor that is produced and read inside the range
 * crosses no stage boundary, so ranges are not sums of layers: a tensor is kept if an input- or weight-gradient operator of
 * the range reads it and the range produces, receives or loads it. All of that is sums over intervals of layers
 * (sim/stage/within.h) except received tensors, which are examined once for each first layer.
 */
#include "sim/stage/stage_internal.h"
#include "sim/stage/within.h"

#include "core/base/arena.h"

#include <stdlib.h>

/* Layers, ascending. */
struct layers {
    int32_t n;
    int32_t *layer;
};

struct stage_sizes {
    struct arena *arena;
    const struct graph *g;
    struct layers *back; /* (n_tensors): layers whose backward reads the tensor, each once */
    int32_t n_uses;
    struct stage_uses *uses;
    struct within parameter, decayed, gradient, kept, input;
    int64_t *scratch;    /* (n_layers) */
    struct size_row row; /* of the ranges that begin at row_first */
    int32_t row_first;   /* -1: none yet */
};

/* Of a measured layer's tensor: on one GPU. */
int64_t stage_sizes_bytes(const struct stage_sizes *s, int32_t tensor)
{
    const struct tensor *x = &s->g->tensors[tensor];
    struct shape shape = x->shape;
    int64_t shared = x->shares ? shares_at(x->shares, 1) : -1;
    if (shared >= 0) shape.dim[shape.rank - 1] = shared;
    return (shape_elements(&shape) * dtype_bytes(x->dtype) + 63) / 64 * 64;
}

static int by_number(const void *x, const void *y)
{
    int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    return (a > b) - (a < b);
}

static void sort_once(struct layers *x)
{
    int32_t n = 0;
    qsort(x->layer, (size_t)x->n, sizeof *x->layer, by_number);
    for (int32_t i = 0; i < x->n; i++)
        if (!n || x->layer[n - 1] != x->layer[i]) x->layer[n++] = x->layer[i];
    x->n = n;
}

/* For each tensor, the layers of the operators [from, to) that read it. Two passes: count, then fill. */
static struct layers *find_readers(struct arena *a, const struct graph *g, int32_t from, int32_t to)
{
    struct layers *r = ARENA_ARRAY(a, struct layers, (size_t)g->n_tensors);
    for (int32_t i = from; i < to; i++)
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) r[g->ops[i].input[k]].n++;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        r[t].layer = ARENA_ARRAY(a, int32_t, (size_t)r[t].n);
        r[t].n = 0;
    }
    for (int32_t i = from; i < to; i++)
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) {
            struct layers *x = &r[g->ops[i].input[k]];
            x->layer[x->n++] = g->ops[i].layer;
        }
    for (int32_t t = 0; t < g->n_tensors; t++) sort_once(&r[t]);
    return r;
}

/* Tensors that the range's backward reads: those the range produces (an interval from the producing layer to the first reader)
 * and those it loads (any of the reading layers). */
static void find_kept(struct stage_sizes *s)
{
    const struct graph *g = s->g;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const struct tensor *x = &g->tensors[t];
        const struct layers *back = &s->back[t];
        bool made = x->producer >= 0 && x->producer < g->n_forward;
        if (!back->n || (!made && x->role != TENSOR_INPUT)) continue;
        int64_t bytes = stage_sizes_bytes(s, t);
        if (!made) {
            within_add_any(&s->input, back->layer, back->n, 1, bytes);
            within_add_any(&s->kept, back->layer, back->n, 1, bytes);
        } else {
            if (back->layer[0] < g->ops[x->producer].layer)
                BUG("'%s' is read by a layer before its own", x->name);
            within_add(&s->kept, g->ops[x->producer].layer, back->layer[0], bytes);
        }
    }
}

/* Layers of the gradients of each parameter's uses, one per use. */
static struct layers *find_uses(struct stage_sizes *s)
{
    const struct graph *g = s->g;
    struct layers *u = ARENA_ARRAY(s->arena, struct layers, (size_t)g->n_tensors);
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t t = 0; t < g->n_tensors; t++) {
            if (pass) u[t].layer = ARENA_ARRAY(s->arena, int32_t, (size_t)u[t].n);
            u[t].n = 0;
        }
        for (int32_t t = 0; t < g->n_tensors; t++) {
            const struct tensor *x = &g->tensors[t];
            if (x->role != TENSOR_PARAMETER_GRADIENT || x->producer < 0) continue;
            struct layers *l = &u[x->of];
            if (pass) l->layer[l->n] = g->ops[x->producer].layer;
            l->n++;
        }
    }
    for (int32_t t = 0; t < g->n_tensors; t++)
        qsort(u[t].layer, (size_t)u[t].n, sizeof *u[t].layer, by_number);
    return u;
}

/* A parameter's gradient has its dtype_master, and each further use in a stage has one of its own. */
static void find_parameters(struct stage_sizes *s)
{
    const struct graph *g = s->g;
    const struct layers *read = find_readers(s->arena, g, 0, g->n_ops), *uses = find_uses(s);
    int64_t wide = dtype_bytes(dtype_master(g->dtype)) / dtype_bytes(g->dtype);
    s->uses = ARENA_ARRAY(s->arena, struct stage_uses, (size_t)g->n_tensors);
    for (int32_t t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].role != TENSOR_PARAMETER) continue;
        int64_t bytes = stage_sizes_bytes(s, t);
        const struct layers *r = &read[t], *u = &uses[t];
        within_add_any(&s->parameter, r->layer, r->n, 1, bytes);
        if (g->tensors[t].decay) within_add_any(&s->decayed, r->layer, r->n, 1, bytes);
        within_add_any(&s->gradient, r->layer, r->n, 1, bytes * wide);
        for (int32_t i = 0; i + 1 < u->n; i++)
            within_add(&s->gradient, u->layer[i], u->layer[i + 1], bytes * wide);
        if (u->n) s->uses[s->n_uses++] = (struct stage_uses){t, u->n, u->layer};
    }
}

/* Peak bytes inside a layer's forward or backward of tensors that live in one procedure only. */
static void find_scratch(struct stage_sizes *s)
{
    const struct graph *g = s->g;
    int32_t *last = ARENA_ARRAY(s->arena, int32_t, (size_t)g->n_tensors);
    int64_t *ends = ARENA_ARRAY(s->arena, int64_t, (size_t)g->n_ops), live = 0;
    s->scratch = ARENA_ARRAY(s->arena, int64_t, (size_t)g->n_layers);
    for (int32_t i = 0; i < g->n_ops; i++) {
        for (int32_t k = 0; k < g->ops[i].n_outputs; k++) last[g->ops[i].output[k]] = i;
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) last[g->ops[i].input[k]] = i;
    }
    for (int32_t i = 0; i < g->n_ops; i++) {
        int64_t *most = &s->scratch[g->ops[i].layer];
        for (int32_t k = 0; k < g->ops[i].n_outputs; k++) {
            int32_t x = g->ops[i].output[k];
            bool one_part = (i < g->n_forward) == (last[x] < g->n_forward);
            if (g->tensors[x].role == TENSOR_PARAMETER_GRADIENT || g->tensors[x].producer != i ||
                !one_part)
                continue;
            live += stage_sizes_bytes(s, x);
            ends[last[x]] += stage_sizes_bytes(s, x);
        }
        if (live > *most) *most = live;
        live -= ends[i];
    }
}

struct stage_sizes *stage_sizes_new(struct arena *a, const struct graph *g)
{
    struct stage_sizes *s = ARENA_ARRAY(a, struct stage_sizes, 1);
    *s = (struct stage_sizes){.arena = a, .g = g};
    struct within *const sums[] = {&s->parameter, &s->decayed, &s->gradient, &s->kept, &s->input};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) within_init(sums[i], a, g->n_layers);
    s->back = find_readers(a, g, g->n_forward, g->n_ops);
    int64_t **const rows[] = {&s->row.parameter, &s->row.decayed, &s->row.gradient,
                              &s->row.kept,      &s->row.input,   &s->row.scratch};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        *rows[i] = ARENA_ARRAY(a, int64_t, (size_t)g->n_layers);
    s->row_first = -1;
    find_kept(s);
    find_parameters(s);
    find_scratch(s);
    return s;
}

int32_t stage_sizes_uses(const struct stage_sizes *s, const struct stage_uses **out)
{
    *out = s->uses;
    return s->n_uses;
}

/* Activations that enter with the first layer are kept by ranges that include a layer whose backward reads them. */
static void add_received(const struct stage_sizes *s, int32_t first, int64_t *kept)
{
    const struct cut *cut = &s->g->cut[first - 1];
    for (int32_t i = 0; i < cut->n; i++) {
        const struct layers *back = &s->back[cut->tensor[i]];
        int32_t k = 0;
        while (k < back->n && back->layer[k] < first) k++;
        if (k == back->n) continue;
        int64_t bytes = stage_sizes_bytes(s, cut->tensor[i]);
        for (int32_t l = back->layer[k]; l < s->g->n_layers; l++) kept[l] += bytes;
    }
}

const struct size_row *stage_sizes_row(struct stage_sizes *s, int32_t first)
{
    struct size_row *r = &s->row;
    if (s->row_first == first) return r;
    s->row_first = first;
    within_row(&s->parameter, first, r->parameter);
    within_row(&s->decayed, first, r->decayed);
    within_row(&s->gradient, first, r->gradient);
    within_row(&s->kept, first, r->kept);
    within_row(&s->input, first, r->input);
    if (first > 0) add_received(s, first, r->kept);
    int64_t most = 0;
    for (int32_t l = first; l < s->g->n_layers; l++) {
        if (s->scratch[l] > most) most = s->scratch[l];
        r->scratch[l] = most;
    }
    return r;
}
