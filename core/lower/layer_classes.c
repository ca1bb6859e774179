#include "core/lower/layer_classes.h"

#include "core/base/arena.h"
#include "core/lower/uses.h"

#include <inttypes.h>
#include <string.h>

/* State of the walk over a layer. */
struct reader {
    const struct graph *g;
    struct cut *gradients;   /* (n_layers - 1) */
    int32_t *index;          /* (n_ops): position of the operator in its layer */
    int32_t *user;           /* (n_tensors): a layer that uses the parameter, -1 none, -2 several */
    bool *back;              /* (n_tensors): a gradient operator reads it */
    int32_t *number, *stamp; /* (n_tensors): parameters of the layer in order of appearance */
    int32_t n_numbers;
    uint64_t hash;
};

/* Two rounds of the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). */
static void add(struct reader *r, int64_t value)
{
    uint64_t x = r->hash + UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)value;
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    r->hash = x ^ x >> 31;
}

static void add_shape(struct reader *r, const struct tensor *t)
{
    add(r, (int64_t)t->dtype), add(r, t->shape.rank);
    for (int32_t i = 0; i < t->shape.rank; i++) add(r, t->shape.dim[i]);
    for (int32_t i = 0; t->shares && i < t->shares->n; i++)
        add(r, t->shares->tp[i]), add(r, t->shares->elements[i]);
}

static int32_t place_in(const struct cut *c, int32_t tensor)
{
    for (int32_t i = 0; c && i < c->n; i++)
        if (c->tensor[i] == tensor) return i;
    return -1;
}

enum from { FROM_LAYER, FROM_BEFORE, FROM_BEHIND, FROM_PARAMETER, FROM_INPUT, FROM_ELSEWHERE };

static void add_parameter(struct reader *r, int32_t layer, int32_t t)
{
    const struct tensor *x = &r->g->tensors[t];
    if (r->stamp[t] != layer) r->stamp[t] = layer, r->number[t] = r->n_numbers++;
    add(r, FROM_PARAMETER), add(r, r->number[t]), add(r, x->decay);
    add(r, r->user[t] == -2 ? t : -1);
}

/* Origin of a tensor that the layer reads or outputs. */
static void add_source(struct reader *r, int32_t layer, int32_t t)
{
    const struct graph *g = r->g;
    const struct tensor *x = &g->tensors[t];
    int32_t before = layer > 0 ? place_in(&g->cut[layer - 1], t) : -1;
    int32_t behind = layer + 1 < g->n_layers ? place_in(&r->gradients[layer], t) : -1;
    add_shape(r, x);
    if (x->role == TENSOR_PARAMETER) {
        add_parameter(r, layer, t);
    } else if (x->role == TENSOR_INPUT) {
        add(r, FROM_INPUT), add(r, (int64_t)x->input);
    } else if (x->producer >= 0 && g->ops[x->producer].layer == layer) {
        const struct graph_op *op = &g->ops[x->producer];
        add(r, FROM_LAYER), add(r, r->index[x->producer]);
        for (int32_t k = 0; k < op->n_outputs; k++)
            if (op->output[k] == t) add(r, k);
    } else if (before >= 0) {
        add(r, FROM_BEFORE), add(r, before);
    } else if (behind >= 0) {
        add(r, FROM_BEHIND), add(r, behind);
    } else {
        add(r, FROM_ELSEWHERE), add(r, t);
    }
    add(r, r->back[t]);
}

static void add_op(struct reader *r, int32_t i)
{
    const struct graph *g = r->g;
    const struct graph_op *op = &g->ops[i];
    struct op_shapes shapes;
    graph_op_shapes(g, op, &shapes);
    add(r, (int64_t)op_key(op->kind, &op->attrs, &shapes, g->dtype)), add(r, (int64_t)op->phase);
    add(r, op->n_inputs), add(r, op->n_outputs);
    for (int32_t k = 0; k < op->n_inputs; k++) add_source(r, op->layer, op->input[k]);
    for (int32_t k = 0; k < op->n_outputs; k++) {
        const struct tensor *x = &g->tensors[op->output[k]];
        add(r, (int64_t)x->role), add_shape(r, x);
        add(r, r->back[op->output[k]]);
        if (x->role == TENSOR_PARAMETER_GRADIENT) add_parameter(r, op->layer, x->of);
    }
}

/* Operators layer by layer, forward operators first. */
static int32_t *by_layer(struct arena *a, const struct graph *g, int32_t **start)
{
    int32_t *order = ARENA_ARRAY(a, int32_t, (size_t)g->n_ops);
    int32_t *at = *start = ARENA_ARRAY(a, int32_t, (size_t)g->n_layers + 2);
    for (int32_t i = 0; i < g->n_ops; i++) at[g->ops[i].layer + 2]++;
    for (int32_t l = 0; l < g->n_layers; l++) at[l + 2] += at[l + 1];
    for (int32_t i = 0; i < g->n_ops; i++) order[at[g->ops[i].layer + 1]++] = i;
    return order;
}

static void find_users(struct reader *r)
{
    const struct graph *g = r->g;
    for (int32_t t = 0; t < g->n_tensors; t++) r->user[t] = r->stamp[t] = -1;
    for (int32_t i = 0; i < g->n_ops; i++)
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) {
            int32_t t = g->ops[i].input[k];
            if (r->user[t] == -1) r->user[t] = g->ops[i].layer;
            if (r->user[t] != g->ops[i].layer) r->user[t] = -2;
            if (i >= g->n_forward) r->back[t] = true;
        }
}

static uint64_t key_of(struct reader *r, int32_t layer, const int32_t *ops, int32_t n)
{
    const struct graph *g = r->g;
    r->hash = 0, r->n_numbers = 0;
    for (int32_t i = 0; i < n; i++) r->index[ops[i]] = i;
    for (int32_t i = 0; i < n; i++) add_op(r, ops[i]);
    const struct cut *out[2] = {layer + 1 < g->n_layers ? &g->cut[layer] : NULL,
                                layer > 0 ? &r->gradients[layer - 1] : NULL};
    for (int32_t side = 0; side < 2; side++) {
        add(r, out[side] ? out[side]->n : -1);
        for (int32_t k = 0; out[side] && k < out[side]->n; k++)
            add_source(r, layer, out[side]->tensor[k]);
    }
    return r->hash;
}

static uint64_t *find_keys(struct arena *a, const struct graph *g)
{
    size_t n = (size_t)g->n_tensors;
    struct reader r = {.g = g,
                       .gradients = graph_gradient_cuts(a, g),
                       .index = ARENA_ARRAY(a, int32_t, (size_t)g->n_ops),
                       .user = ARENA_ARRAY(a, int32_t, n),
                       .back = ARENA_ARRAY(a, bool, n),
                       .number = ARENA_ARRAY(a, int32_t, n),
                       .stamp = ARENA_ARRAY(a, int32_t, n)};
    int32_t *start, *order = by_layer(a, g, &start);
    uint64_t *key = ARENA_ARRAY(a, uint64_t, (size_t)g->n_layers);
    find_users(&r);
    for (int32_t l = 0; l < g->n_layers; l++)
        key[l] = key_of(&r, l, order + start[l], start[l + 1] - start[l]);
    return key;
}

static void number_classes(struct arena *a, struct layer_classes *c, const uint64_t *key)
{
    size_t n = (size_t)c->n_layers;
    c->class_of = ARENA_ARRAY(a, int32_t, n);
    c->key = ARENA_ARRAY(a, uint64_t, n);
    c->first_of = ARENA_ARRAY(a, int32_t, n);
    for (int32_t l = 0; l < c->n_layers; l++) {
        int32_t k = 0;
        while (k < c->n_classes && c->key[k] != key[l]) k++;
        if (k == c->n_classes) c->key[k] = key[l], c->first_of[k] = l, c->n_classes++;
        c->class_of[l] = k;
    }
}

/* By distance, the greatest first, so that the earliest equal range is found first. Along one distance backwards: a range is
 * equal one layer further than the range after it. Each pair is written once. */
static void find_same(struct arena *a, struct layer_classes *c)
{
    int32_t n = c->n_layers;
    c->same = ARENA_ARRAY(a, int32_t, (size_t)n * (size_t)n);
    int32_t *known = ARENA_ARRAY(a, int32_t, (size_t)n); /* length of the range found so far */
    for (int32_t distance = n - 1; distance >= 0; distance--)
        for (int32_t first = n - 1, equal = 0; first >= distance; first--) {
            equal = c->class_of[first] == c->class_of[first - distance] ? equal + 1 : 0;
            int32_t *row = &c->same[(int64_t)first * n + first];
            if (!distance) c->distinct += equal - known[first];
            for (; known[first] < equal; known[first]++) row[known[first]] = first - distance;
        }
}

struct layers_of {
    const struct graph *g;
    const struct layer_classes *c;
};

static bool same_layer(const void *user, int32_t i, int32_t j)
{
    const struct layers_of *x = user;
    return x->c->class_of[i] == x->c->class_of[j];
}

static int64_t seam(const void *user, int32_t at)
{
    const struct layers_of *x = user;
    return at > 0 ? graph_cut_bytes(x->g, &x->g->cut[at - 1]) : 0;
}

void layer_classes_number_blocks(struct arena *a, const struct graph *g, struct layer_classes *c)
{
    int32_t n = -1, before = -1; /* before: the last operator in a block */
    int32_t *first = c->first_block = ARENA_ARRAY(a, int32_t, (size_t)g->n_layers),
            *last = c->last_block = ARENA_ARRAY(a, int32_t, (size_t)g->n_layers);
    for (int32_t i = 0; i < g->n_forward; i++) {
        int32_t l = g->ops[i].layer;
        if (!i || g->ops[i - 1].layer != l) first[l] = n + 1, last[l] = n;
        if (!lower_in_block(g, i)) continue;
        n += before < 0 || !lower_in_same_block(g, before, i);
        if (n < first[l]) first[l] = n;
        last[l] = n, before = i;
    }
}

struct layer_classes *layer_classes_new(struct arena *a, const struct graph *g)
{
    struct layer_classes *c = ARENA_ARRAY(a, struct layer_classes, 1);
    c->n_layers = g->n_layers;
    number_classes(a, c, find_keys(a, g));
    find_same(a, c);
    struct layers_of all = {g, c};
    struct repeats_of s = {g->n_layers, &all, same_layer, seam};
    c->n_repeats = repeats_find(a, &s, &c->repeats);
    layer_classes_number_blocks(a, g, c);
    return c;
}

const char *layer_classes_text(struct arena *a, const struct layer_classes *c)
{
    const char *text = "";
    for (int32_t i = 0; i < c->n_repeats; i++)
        text = arena_printf(a, "%s%" PRId32 " blocks of %" PRId32 " layer%s, ", text,
                            c->repeats[i].copies, c->repeats[i].period,
                            c->repeats[i].period > 1 ? "s" : "");
    if (!c->n_repeats) text = "nothing repeats, ";
    return arena_printf(a, "%s%" PRId32 " unique of %" PRId32, text, c->n_classes, c->n_layers);
}

struct layer_crossing *layer_classes_crossings(struct arena *a, const struct graph *g)
{
    struct layer_crossing *x = ARENA_ARRAY(a, struct layer_crossing, (size_t)g->n_layers + 1);
    const struct cut *back = graph_gradient_cuts(a, g);
    for (int32_t l = 0; l + 1 < g->n_layers; l++) {
        const struct cut *f = &g->cut[l], *b = &back[l];
        int64_t last = f->n ? graph_tensor_bytes(g, f->tensor[f->n - 1]) : 0;
        int64_t last_back = b->n ? graph_tensor_bytes(g, b->tensor[b->n - 1]) : last;
        x[l] = (struct layer_crossing){graph_cut_bytes(g, f), graph_cut_bytes(g, b),
                                       last < last_back ? last : last_back};
    }
    return x;
}
