/* planner/bound/any_memory.c - the term of memory: the least over the microbatch sizes. */
#include "planner/bound/any_internal.h"

#include "core/base/arena.h"
#include "planner/bound/memory.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static struct size *size_of(struct bound_any *b, int64_t samples)
{
    for (size_t i = 0; i < b->n_sizes; i++)
        if (b->sizes[i].samples == samples) return &b->sizes[i];
    if (b->n_sizes == b->size_capacity)
        b->sizes = arena_grow(b->arena, b->sizes, b->n_sizes, &b->size_capacity, sizeof *b->sizes);
    size_t n = (size_t)b->n_layers * (size_t)b->n_classes;
    struct size *x = &b->sizes[b->n_sizes++];
    *x = (struct size){samples, false, ARENA_ARRAY(b->arena, double, n),
                       ARENA_ARRAY(b->arena, double, n)};
    for (size_t i = 0; i < n; i++) x->work_ns[i] = x->again_ns[i] = INFINITY;
    return x;
}

void bound_any_remember(struct bound_any *b, int32_t device_class, int32_t layer,
                        const struct bound_offer *o)
{
    struct size *x = size_of(b, o->samples);
    size_t at = (size_t)layer * (size_t)b->n_classes + (size_t)device_class;
    double each = (double)o->tp / (double)o->samples;
    x->work_ns[at] = fmin(x->work_ns[at], each * (o->forward_ns + o->input_ns + o->weight_ns));
    x->again_ns[at] = fmin(x->again_ns[at], each * o->again_ns);
}

void bound_any_size(struct bound_any *b, int64_t microbatch)
{
    size_of(b, microbatch)->tried = true;
}

void bound_any_kept(struct bound_any *b, int32_t layer, double kept_bytes, double state_bytes)
{
    struct layer *x = &b->layers[layer];
    x->kept_bytes = fmin(x->kept_bytes, kept_bytes);
    x->state_bytes = fmin(x->state_bytes, state_bytes);
}

void bound_any_memory(struct bound_any *b, const double *bytes, const int32_t *pool)
{
    b->memory_bytes = ARENA_ARRAY(b->arena, double, (size_t)b->n_classes);
    b->pool = ARENA_ARRAY(b->arena, int32_t, (size_t)b->n_classes);
    memcpy(b->memory_bytes, bytes, (size_t)b->n_classes * sizeof *bytes);
    memcpy(b->pool, pool, (size_t)b->n_classes * sizeof *pool);
}

/* Least costs of a sample in microbatches of this size: whole, or divided by sequences over a stage's devices. */
static struct size least_of(struct arena *a, const struct bound_any *b, const struct size *of)
{
    size_t n = (size_t)b->n_layers * (size_t)b->n_classes;
    struct size x = {of->samples, true, arena_copy(a, of->work_ns, n * sizeof(double)),
                     arena_copy(a, of->again_ns, n * sizeof(double))};
    for (size_t k = 0; k < b->n_sizes; k++)
        for (size_t i = 0; b->sizes[k].samples < of->samples && i < n; i++) {
            x.work_ns[i] = fmin(x.work_ns[i], b->sizes[k].work_ns[i]);
            x.again_ns[i] = fmin(x.again_ns[i], b->sizes[k].again_ns[i]);
        }
    return x;
}

static struct bound_memory_layer *layers_of(struct arena *a, const struct bound_any *b,
                                            const struct size *size)
{
    struct bound_memory_layer *layers =
        ARENA_ARRAY(a, struct bound_memory_layer, (size_t)b->n_layers);
    double hold_ns = 0;
    for (int32_t l = b->n_layers - 1; l >= 0; l--) {
        const struct layer *x = &b->layers[l];
        size_t at = (size_t)l * (size_t)b->n_classes;
        hold_ns += x->pass_ns / (double)b->most_on_node;
        layers[l] = (struct bound_memory_layer){isinf(x->kept_bytes) ? 0 : x->kept_bytes,
                                                isinf(x->state_bytes) ? 0 : x->state_bytes,
                                                hold_ns,
                                                size->work_ns + at,
                                                size->again_ns + at,
                                                x->update_ns};
    }
    return layers;
}

/* limited: whether memory counts; else the compute of plans of this size. */
static double size_ns(const struct bound_any *b, const struct size *size, bool limited,
                      double known_ns)
{
    struct arena *a = arena_new();
    struct size x = least_of(a, b, size);
    double *bytes = arena_copy(a, b->memory_bytes, (size_t)b->n_classes * sizeof(double));
    for (int32_t g = 0; g < b->n_classes && !limited; g++) bytes[g] = INFINITY;
    struct bound_memory m = {b->n_layers, b->n_classes, layers_of(a, b, &x),  b->count, bytes,
                             b->pool,     b->batch,     (double)size->samples};
    double ns = bound_memory_ns(&m, known_ns);
    arena_free(a);
    return ns;
}

double bound_any_memory_ns(const struct bound_any *b, double known_ns, bool *alone)
{
    const double most_alike = 1 - 1e-3; /* a thousandth, the accuracy of the program's solution */
    const struct size *best = NULL;
    double ns = INFINITY;
    for (size_t i = 0; b->memory_bytes && i < b->n_sizes && ns > known_ns; i++) {
        double t = b->sizes[i].tried ? size_ns(b, &b->sizes[i], true, known_ns) : INFINITY;
        if (t < ns) ns = t, best = &b->sizes[i];
    }
    if (!best || !(ns > known_ns)) return known_ns;
    *alone = size_ns(b, best, false, known_ns) < ns * most_alike;
    return ns;
}
