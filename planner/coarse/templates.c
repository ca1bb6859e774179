/* planner/coarse/templates.c - pipelines of a team: degrees, order of classes, layers, recomputation. */
#include "planner/coarse/internal.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/spmd_stage/spmd_stage.h"

#include <stdlib.h>
#include <string.h>

enum {
    PACE_GRAIN = 256, /* the pace is found to this part of it, a quarter of a layer of 64 */
    PACE_MOST =
        4, /* times the pace of evenly divided work: pipelines that are worse balanced are left out */
    BUCKETS =
        8, /* of a stage's gradients, where one would not fit: an eighth of its memory, and of its time unhidden */
    CHOICES = 12, /* of degrees of a team's classes, whose layers are divided */
    CHOICES_LEAST = 4, /* of them, whatever their estimates */
    MEMORY_SPARE =
        50 /* a 50th of the memory is left for bytes known only to lowering; recomputing for a few bytes costs a third of the pace */
};

/* A sequence of stages without layers, of one team. */
struct line {
    const struct coarse *q;
    const struct space *s;
    int32_t replicas, zero, n;
    struct coarse_stage stage[COARSE_STAGES];
    int32_t device[COARSE_STAGES]; /* first GPU of each in replica 0 */
    int64_t most_ns; /* slowest stage allowed: templates that do worse are of no use */
};

static const struct coarse_degree *degree_of(const struct line *l, int32_t i)
{
    return &l->q->classes[l->stage[i].of].degree[l->stage[i].degree];
}

static const struct stage_cost *cost_of(const struct line *l, int32_t i, int32_t first,
                                        int32_t last)
{
    return space_stage_type(l->s, degree_of(l, i)->type, first, last);
}

/* Bytes kept for a microbatch in flight if each block recomputes from its input. */
static int64_t block_inputs(const struct line *l, int32_t i, int32_t first, int32_t last,
                            int64_t *largest)
{
    const struct layer_classes *c = l->s->classes;
    if (!c->n_repeats) return -1;
    int32_t period = c->repeats[0].period, from = c->repeats[0].first;
    const struct stage_cost *block = cost_of(l, i, from, from + period - 1);
    *largest = block->activation_bytes;
    return block->input_bytes * ((last - first) / period + 1);
}

/* Bytes for the context and the communicators of a GPU: with its group, the neighbours' groups and the other replicas. */
static int64_t reserve_of(const struct line *l, int32_t i)
{
    int32_t n = degree_of(l, i)->n, before = i ? degree_of(l, i - 1)->n : 0,
            behind = i + 1 < l->n ? degree_of(l, i + 1)->n : 0;
    int32_t communicators =
        (n > 1) + (l->replicas > 1) + spmd_stage_beside(n, before) + spmd_stage_beside(n, behind);
    const struct cluster *c = l->s->cluster;
    if (l->s->job->model.measured) return device_type_reserve(&c->types[degree_of(l, i)->type]);
    return spmd_stage_reserve(&c->types[degree_of(l, i)->type], communicators, c->emulated);
}

/* What a stage's time and memory depend on beside its layers. */
struct fitted {
    int64_t ns;
    enum recompute recompute;
    int64_t bucket_bytes;
};

/* The least recomputation with which the microbatches in flight take at most `room` bytes; false: none. */
static bool least_recompute(const struct line *l, int32_t i, int32_t first, int32_t last,
                            int64_t room, struct fitted *out)
{
    const struct stage_cost *c = cost_of(l, i, first, last);
    int64_t in_flight = l->n - i, largest = 0;
    out->recompute = RECOMPUTE_NONE;
    out->ns = c->forward_ns + c->input_ns + c->weight_ns;
    if (in_flight * c->activation_bytes <= room) return true;
    int64_t kept = block_inputs(l, i, first, last, &largest);
    out->ns += c->recompute_ns;
    out->recompute = RECOMPUTE_BLOCKS;
    if (kept >= 0 && in_flight * kept + largest <= room) return true;
    out->recompute = RECOMPUTE_STAGE;
    return (in_flight + 1) * c->input_bytes + c->activation_bytes <= room;
}

/* Gradients in the precision in which they are sent, and what of them is in flight; as many of the bytes are needed at a time as a
 * bucket has. */
static int64_t packed_bytes(const struct line *l, const struct stage_cost *c)
{
    enum dtype t = l->s->graph->dtype;
    bool joins = l->replicas > 1 || l->q->n_classes > 1;
    if (!joins || !dtype_is_half(t)) return 0;
    int64_t wire = c->gradient_bytes / dtype_bytes(dtype_master(t)) * dtype_bytes(t);
    return wire + wire / units_max(2, l->replicas);
}

/* Time of stage i for these layers with the least recomputation that fits, in buckets only if it does not fit without; false: none
 * fits. */
static bool stage_time(const struct line *l, int32_t i, int32_t first, int32_t last,
                       struct fitted *out)
{
    const struct stage_cost *c = cost_of(l, i, first, last);
    int64_t memory = l->s->cluster->types[degree_of(l, i)->type].memory_bytes;
    int64_t state = l->zero ? c->state_bytes / l->replicas : c->state_bytes;
    int64_t room = memory - memory / MEMORY_SPARE - reserve_of(l, i) - c->parameter_bytes -
                   c->gradient_bytes - state - c->scratch_bytes - 4 * c->input_bytes;
    int64_t packed = packed_bytes(l, c);
    out->bucket_bytes = 0;
    if (room < 0) return false;
    if (least_recompute(l, i, first, last, room - packed, out) && out->recompute == RECOMPUTE_NONE)
        return true;
    out->bucket_bytes = packed ? c->gradient_bytes / BUCKETS : 0;
    return least_recompute(l, i, first, last, room - packed / BUCKETS, out);
}

static bool keeps_pace(const struct line *l, int32_t i, int32_t first, int32_t last,
                       int64_t pace_ns)
{
    struct fitted t;
    return stage_time(l, i, first, last, &t) && t.ns <= pace_ns;
}

/* The first layer of the longest stage i that ends before `end` within the pace; end: none. `likely`: its length, if it is as the one
 * behind it. */
static int32_t longest(const struct line *l, int32_t i, int32_t end, int32_t likely,
                       int64_t pace_ns)
{
    int32_t low = i, high = end, guess = end - likely;
    if (likely > 0 && guess >= low) {
        if (!keeps_pace(l, i, guess, end - 1, pace_ns))
            low = guess + 1;
        else if (guess == low || !keeps_pace(l, i, guess - 1, end - 1, pace_ns))
            return guess;
        else
            high = guess - 1;
    }
    while (low < high) {
        int32_t first = low + (high - low) / 2;
        if (keeps_pace(l, i, first, end - 1, pace_ns))
            high = first;
        else
            low = first + 1;
    }
    return low;
}

/* Longest stages within the pace, from the last one backwards; *slowest_ns: of them. false: layers are left. */
static bool fill_back(struct line *l, int64_t pace_ns, int64_t *slowest_ns)
{
    int32_t end = l->s->n_layers, likely = 0;
    *slowest_ns = 0;
    for (int32_t i = l->n - 1; i >= 0; i--) {
        struct fitted t;
        int32_t first = longest(l, i, end, likely, pace_ns);
        if (first >= end || (i == 0 && first > 0)) return false;
        stage_time(l, i, first, end - 1, &t);
        l->stage[i].recompute = t.recompute, l->stage[i].bucket_bytes = t.bucket_bytes;
        l->stage[i].first = first, l->stage[i].last = end - 1;
        *slowest_ns = units_max(*slowest_ns, t.ns);
        likely = end - first, end = first;
    }
    return end == 0;
}

static bool balance(struct line *l)
{
    double rate = 0; /* models a nanosecond, if work could be divided at will */
    if (l->n > l->s->n_layers) return false;
    for (int32_t i = 0; i < l->n; i++) {
        const struct stage_cost *c = cost_of(l, i, 0, l->s->n_layers - 1);
        rate += 1 / (double)(c->forward_ns + c->input_ns + c->weight_ns + 1);
    }
    int64_t low = (int64_t)(1 / rate), high = l->most_ns ? l->most_ns : PACE_MOST * low;
    if (low >= high || !fill_back(l, high, &high)) return false;
    struct coarse_stage best[COARSE_STAGES];
    memcpy(best, l->stage, (size_t)l->n * sizeof *best);
    while (high - low > low / PACE_GRAIN) {
        int64_t middle = low + (high - low) / 2, slowest;
        if (fill_back(l, middle, &slowest)) {
            high = slowest;
            memcpy(best, l->stage, (size_t)l->n * sizeof *best);
        } else {
            low = middle + 1;
        }
    }
    memcpy(l->stage, best, (size_t)l->n * sizeof *best);
    return true;
}

/* --- estimates --- */

/* An activation of measured layers in parts, of which a GPU of the smaller end has several (core/lower/channels.c); -1: it is sent
 * whole. */
static int64_t part_ns(const struct line *l, int32_t i, const struct device_route *r)
{
    int32_t n = degree_of(l, i)->n, m = degree_of(l, i + 1)->n, most = n > m ? n : m;
    if (!l->s->job->model.measured || !r->blocking || !r->own) return -1;
    int32_t fewest = n < m ? n : m, rounds = (most + fewest - 1) / fewest;
    return rounds * cost_occupancy_ns(&r->link, l->s->cut_bytes[l->stage[i].last] / most) +
           r->link.latency_ns;
}

/* Replicas on a node of a stage's class: their messages to other nodes share its links. */
static int64_t replicas_on_node(const struct line *l, int32_t i)
{
    const struct coarse_class *k = &l->q->classes[l->stage[i].of];
    return units_max(1, k->per_node / units_max(1, k->n / l->replicas));
}

/* A message of the cut behind stage i to the next stage: every GPU of the receiver takes a copy, over the same links if they
 * leave the node. */
static int64_t transfer_ns(const struct line *l, int32_t i, bool *blocking)
{
    const struct device_route *r =
        device_graph_route(l->q->graph, l->device[i], l->device[i + 1], degree_of(l, i)->type,
                           degree_of(l, i + 1)->type);
    if (!r) return INT64_MAX;
    const struct device *d = l->q->task->cluster->devices;
    int64_t sent = part_ns(l, i, r);
    *blocking = r->blocking;
    if (sent >= 0) return sent;
    int64_t copies = 1;
    if (!r->own && d[l->device[i]].node != d[l->device[i + 1]].node)
        copies = degree_of(l, i + 1)->n *
                 units_max(replicas_on_node(l, i), replicas_on_node(l, i + 1));
    return cost_occupancy_ns(&r->link, copies * l->s->cut_bytes[l->stage[i].last]) +
           r->link.latency_ns;
}

static double ring_bytes(const struct line *l, const struct stage_cost *c)
{
    return l->zero ? (double)c->gradient_bytes + (double)c->parameter_bytes
                   : 2 * (double)c->gradient_bytes;
}

/* Gradient all-reduce of a stage over very many replicas: a ring whose neighbours are on other nodes; the GPUs of a node share
 * its links. */
static int64_t reduce_ns(const struct line *l, int32_t i)
{
    const struct coarse_class *k = &l->q->classes[l->stage[i].of];
    const struct stage_cost *c = cost_of(l, i, l->stage[i].first, l->stage[i].last);
    int32_t each = k->n / l->replicas, far = k->n > k->per_node ? k->per_node : k->n - 1;
    if (!far) return 0; /* a class of one GPU: all other replicas are of other classes */
    const struct device_route *r = device_graph_route(l->q->graph, k->device[0], k->device[far],
                                                      degree_of(l, i)->type, degree_of(l, i)->type);
    if (!r) return INT64_MAX / 4;
    int64_t sharing = r->own || k->n <= k->per_node ? 1 : units_min(each, k->per_node);
    double bytes = ring_bytes(l, c);
    return (int64_t)(1e9 * bytes * (double)sharing / r->link.bandwidth_Bps);
}

static bool measure(struct line *l, struct coarse_template *out)
{
    int64_t before = 0, lead = 0, t;
    *out = (struct coarse_template){.replicas = l->replicas,
                                    .zero = l->zero,
                                    .n_stages = l->n,
                                    .stages = l->stage,
                                    .pace_ns = 1};
    for (int32_t i = 0; i < l->n; i++) {
        struct coarse_stage *x = &l->stage[i];
        bool blocking = false;
        int64_t after = i + 1 < l->n ? transfer_ns(l, i, &blocking) : 0, work;
        struct fitted fitted;
        if (after == INT64_MAX) return false;
        stage_time(l, i, x->first, x->last, &fitted);
        t = fitted.ns;
        work = t + before + (blocking ? 2 * after : 0);
        before = blocking ? 2 * after : 0;
        const struct stage_cost *c = cost_of(l, i, x->first, x->last);
        const struct coarse_class *k = &l->q->classes[x->of];
        x->reduce_ns = reduce_ns(l, i), x->update_ns = c->update_ns;
        x->crossing_bytes =
            ring_bytes(l, c) * (double)units_min(k->n / l->replicas, k->per_node);
        x->lead_ns =
            lead + (t - c->forward_ns) / 2; /* its own gradients are complete one after the other */
        lead += t - c->forward_ns;
        out->fill_ns += t + 2 * after;
        out->pace_ns = units_max(out->pace_ns, units_max(work, after));
    }
    return true;
}

/* --- enumeration ------------------------------------------------------------------------------- */

struct making {
    struct coarse *q;
    uint32_t classes;
    int32_t replicas, microbatches, most, n[2];
    int64_t ns[2][COARSE_KEPT];
    struct coarse_template *out; /* (2, most) by ZeRO */
    struct arena *scratch;
};

static void keep(struct making *m, struct coarse_template *x)
{
    int z = x->zero;
    int64_t ns = x->fill_ns + (m->microbatches - 1) * x->pace_ns + coarse_tail_ns(m->q, x, x->replicas, NULL, 0);
    int32_t at = m->n[z];
    if (at == m->most && ns >= m->ns[z][at - 1]) return;
    x->classes = m->classes;
    struct coarse_template *list = m->out + z * m->most;
    struct coarse_stage *stages; /* of the template that is dropped, if one is */
    if (at < m->most) {
        stages = ARENA_ARRAY(m->scratch, struct coarse_stage, COARSE_STAGES);
        m->n[z]++;
    } else {
        stages = list[--at].stages;
    }
    memcpy(stages, x->stages, (size_t)x->n_stages * sizeof *stages);
    x->stages = stages;
    for (; at > 0 && m->ns[z][at - 1] > ns; at--)
        list[at] = list[at - 1], m->ns[z][at] = m->ns[z][at - 1];
    list[at] = *x, m->ns[z][at] = ns;
}

/* Stages of the classes in this order, each by its degree, on consecutive GPUs; false: none, or too many. */
static bool lay(struct making *m, struct line *l, const int32_t *order, int32_t n,
                const int32_t *degree)
{
    l->n = 0;
    for (int32_t k = 0; k < n; k++) {
        const struct coarse_class *x = &m->q->classes[order[k]];
        int32_t gpus = x->n / m->replicas, width = x->degree[degree[k]].n;
        if (gpus < width || l->n + gpus / width > COARSE_STAGES) return false;
        for (int32_t i = 0; i < gpus / width; i++) {
            l->device[l->n] = x->device[i * width];
            l->stage[l->n++] = (struct coarse_stage){.of = order[k], .degree = degree[k]};
        }
    }
    return l->n > 0;
}

/* ZeRO 0, and 1 where there may be several replicas; measured layers are planned as they were measured, with their state whole. */
static int zero_levels(const struct making *m)
{
    return !m->q->task->job->model.measured && (m->q->n_classes > 1 || m->replicas > 1) ? 2 : 1;
}

/* Whether all stages on several GPUs have rules of one kind. */
static bool one_kind(const struct making *m, const int32_t *order, int32_t n, const int32_t *degree)
{
    const struct coarse_degree *first = NULL;
    for (int32_t k = 0; k < n; k++) {
        const struct coarse_degree *x = &m->q->classes[order[k]].degree[degree[k]];
        if (x->n == 1) continue;
        if (first && x->kind != first->kind) return false;
        first = x;
    }
    return true;
}

static void try_degrees(struct making *m, const int32_t *order, int32_t n, const int32_t *degree)
{
    struct line l = {.q = m->q, .s = &m->q->spaces[m->q->size], .replicas = m->replicas};
    struct coarse_template x;
    if (!lay(m, &l, order, n, degree)) return;
    for (l.zero = 0; l.zero < zero_levels(m); l.zero++) {
        /* twice the best template's time is of no use to any mix */
        int64_t bar = m->n[l.zero] == m->most ? m->ns[l.zero][m->most - 1] : 0;
        l.most_ns = bar ? bar / m->microbatches + 1 : 0;
        if (balance(&l) && measure(&l, &x)) keep(m, &x);
    }
}

/* Numbers of GPUs a stage, one for each class of the order. */
struct choice {
    int32_t degree[COARSE_CLASSES];
    double ns; /* estimate of its pipeline's time if layers could be divided at will */
    int32_t at; /* of its enumeration: breaks ties */
};

static int by_estimate(const void *x, const void *y)
{
    const struct choice *a = x, *b = y;
    if (a->ns != b->ns) return a->ns < b->ns ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

/* 0: a class has no stage of these GPUs, or the model does not fit. */
static double estimate_of(const struct making *m, const int32_t *order, int32_t n,
                          const int32_t *degree)
{
    const struct space *s = &m->q->spaces[m->q->size];
    double rate = 0, stages = 0, held = 0; /* held: models that fit, with divided state */
    int32_t only = m->q->offer ? m->q->offer->n : 0;
    for (int32_t k = 0; k < n; k++) {
        const struct coarse_class *x = &m->q->classes[order[k]];
        const struct coarse_degree *d = &x->degree[degree[k]];
        int32_t here = x->n / m->replicas / d->n;
        if (!d->usable || !here || (only && d->n != only)) return 0;
        const struct stage_cost *c = space_stage_type(s, d->type, 0, s->n_layers - 1);
        rate += here / (double)(c->forward_ns + c->input_ns + c->weight_ns + 1);
        stages += here;
        int64_t bytes = c->parameter_bytes + c->gradient_bytes + c->state_bytes / m->replicas;
        held += here * ((double)s->cluster->types[d->type].memory_bytes / (double)(bytes + 1));
    }
    return held < 1 ? 0 : (m->microbatches - 1 + stages) / rate;
}

/* Whether templates of as many choices as are kept are better than this estimate, at a ZeRO level that fits. */
static bool beaten(const struct making *m, double ns)
{
    bool any = false;
    for (int z = 0; z < 2; z++) {
        if (m->n[z] == m->most && ns < (double)m->ns[z][m->most - 1]) return false;
        any |= m->n[z] == m->most;
    }
    return any;
}

/* The CHOICES best of all choices of degrees. */
static void try_order(struct making *m, const int32_t *order, int32_t n)
{
    struct choice *list = NULL, x = {.at = 0};
    size_t capacity = 0;
    int32_t found = 0, k = 0;
    struct arena *a = m->scratch;
    while (k < n) {
        x.ns = one_kind(m, order, n, x.degree) ? estimate_of(m, order, n, x.degree) : 0;
        if (x.ns > 0) {
            list = arena_grow(a, list, (size_t)found, &capacity, sizeof *list);
            x.at = found, list[found++] = x;
        }
        for (k = 0; k < n && ++x.degree[k] == m->q->classes[order[k]].n_degrees; k++)
            x.degree[k] = 0;
    }
    if (found) qsort(list, (size_t)found, sizeof *list, by_estimate);
    for (int32_t i = 0; i < found && i < CHOICES && (i < CHOICES_LEAST || !beaten(m, list[i].ns)); i++)
        try_degrees(m, order, n, list[i].degree);
}

static void swap(int32_t *x, int32_t *y)
{
    int32_t t = *x;
    *x = *y, *y = t;
}

int32_t coarse_templates(struct coarse *q, uint32_t classes, int32_t replicas, int32_t most,
                         struct coarse_template *out)
{
    struct making m = {.q = q,
                       .classes = classes,
                       .replicas = replicas,
                       .most = most,
                       .out = out,
                       .scratch = arena_new()};
    int32_t order[COARSE_CLASSES] = {0}, n = 0;
    m.microbatches = (int32_t)units_max(1, q->spaces[q->size].microbatches / replicas);
    for (int32_t k = 0; k < q->n_classes; k++)
        if (classes >> k & 1) order[n++] = k;
    for (int32_t i = 1; i < n;
         i++) /* slowest first: its stages hold more microbatches, and often have less memory */
        for (int32_t k = i; k > 0 && q->classes[order[k]].speed < q->classes[order[k - 1]].speed;
             k--)
            swap(&order[k], &order[k - 1]);
    try_order(&m, order, n);
    for (int32_t i = 0; i < n / 2; i++) swap(&order[i], &order[n - 1 - i]);
    if (n > 1) try_order(&m, order, n);
    memmove(out + m.n[0], out + most, (size_t)m.n[1] * sizeof *out);
    for (int32_t i = 0; i < m.n[0] + m.n[1]; i++)
        out[i].stages = arena_copy(q->templates, out[i].stages,
                                   (size_t)out[i].n_stages * sizeof *out[i].stages);
    arena_free(m.scratch);
    return m.n[0] + m.n[1];
}
