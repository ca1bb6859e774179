/* planner/coarse/sequence.c - the dynamic program over (GPUs used of each class, last stage), from the last stage to the first.
 *
 * An entry is the pipeline suffix that leaves the fewest layers in front at a given pace (ns for a microbatch), and of equal ones the one with
 * the shortest fill. Entries are visited in the order of the GPUs that they use, so each is final when it is extended. Bisection over the pace
 * gives the fastest chain.
 */
#include "planner/coarse/sequence.h"

#include "core/base/arena.h"
#include "core/base/units.h"

#include <string.h>

enum { HALVINGS = 7, OPTIONS = 24 };

struct option { /* a stage on some GPUs of a class */
    int32_t of, degree, n, type;
};
struct suffix { /* of a pipeline; none: first is INT32_MAX */
    int32_t first, from, length;
    int64_t fill_ns;
};

struct sequences {
    struct coarse *q;
    struct coarse_line line; /* the stage in question, before its successor */
    int32_t replicas, n_options, n_states, least_gpus;
    struct option option[OPTIONS];
    int32_t budget[COARSE_CLASSES], stride[COARSE_CLASSES]; /* GPUs of a replica; steps of a state */
    const struct device_route *route[OPTIONS][OPTIONS];
    int64_t beside_ns[OPTIONS]; /* least blocking time of messages with a preceding stage */
    struct suffix *suffix;      /* (n_states, n_options) */
    bool fewest;                /* stages, of pipelines that keep a pace */
};

static bool has_room(const struct sequences *p, int32_t state, const struct option *x)
{
    int32_t used = state / p->stride[x->of] % (p->budget[x->of] + 1);
    return x->n >= p->least_gpus && used + x->n <= p->budget[x->of];
}

static void set_stage(struct coarse_line *l, int32_t at, const struct option *x)
{
    l->stage[at] = (struct coarse_stage){.of = x->of, .degree = x->degree};
    l->device[at] = l->q->classes[x->of].device[0];
}

/* Prepends a stage to suffix `from` (-1: empty) if fewer layers remain, or equally many at less time. */
static void put_before(struct sequences *p, int32_t state, int32_t from, int32_t k, int64_t pace_ns)
{
    const struct option *o = &p->option[k];
    struct coarse_line *l = &p->line;
    struct suffix x = {.first = l->s->n_layers, .from = from};
    int32_t next = from % p->n_options;
    if (from >= 0) {
        x = p->suffix[from], x.from = from;
        if (!p->route[k][next]) return;
    }
    int32_t end = x.first, at = l->n - ++x.length;
    set_stage(l, at, o);
    l->route[at] = NULL;
    if (at) l->route[at - 1] = NULL;
    if (from >= 0) set_stage(l, at + 1, &p->option[next]), l->route[at] = p->route[k][next];
    x.first = coarse_line_longest(l, at, end, pace_ns);
    if (x.first > 0) x.first = coarse_line_longest(l, at, end, pace_ns - p->beside_ns[k]);
    if (x.first >= end) return;
    const struct stage_cost *c = space_stage_type(l->s, o->type, x.first, end - 1);
    x.fill_ns += c->forward_ns + c->input_ns + c->weight_ns + coarse_line_busy_ns(l, at, end - 1);
    struct suffix *to = &p->suffix[(state + o->n * p->stride[o->of]) * p->n_options + k];
    if (x.first < to->first || (x.first == to->first && x.fill_ns < to->fill_ns)) *to = x;
}

static bool better(const struct sequences *p, const struct suffix *x, const struct suffix *y)
{
    if (p->fewest && x->length != y->length) return x->length < y->length;
    return x->fill_ns < y->fill_ns;
}

/* The best complete pipeline at this pace, -1: none. */
static int32_t at_pace(struct sequences *p, int64_t pace_ns)
{
    int32_t best = -1, n = p->n_options;
    for (int32_t e = 0; e < p->n_states * n; e++)
        p->suffix[e] = (struct suffix){.first = INT32_MAX};
    for (int32_t k = 0; k < n; k++)
        if (has_room(p, 0, &p->option[k])) put_before(p, 0, -1, k, pace_ns);
    for (int32_t e = 0; e < p->n_states * n; e++) {
        const struct suffix *x = &p->suffix[e];
        if (x->first == 0 && (best < 0 || better(p, x, &p->suffix[best]))) best = e;
        if (x->first == 0 || x->first == INT32_MAX || x->length == SEQUENCE_STAGES) continue;
        for (int32_t k = 0; k < n; k++)
            if (has_room(p, e / n, &p->option[k])) put_before(p, e / n, e, k, pace_ns);
    }
    return best;
}

struct chain {
    int32_t n;
    struct coarse_stage stage[SEQUENCE_STAGES];
};

static bool chain_at(struct sequences *p, int64_t pace_ns, struct chain *out)
{
    int32_t at = at_pace(p, pace_ns);
    if (at < 0) return false;
    for (out->n = 0; at >= 0; at = p->suffix[at].from) {
        const struct option *o = &p->option[at % p->n_options];
        out->stage[out->n++] = (struct coarse_stage){.of = o->of, .degree = o->degree};
    }
    return true;
}

/* The least pace; also one a little slower, with fewer messages. */
static void min_pace(struct sequences *p, int64_t low, int64_t high, sequence_found *found, void *of)
{
    struct chain best, few;
    if (!chain_at(p, high, &best)) return;
    for (int k = 0; k < HALVINGS; k++) {
        int64_t pace = low + (high - low) / 2;
        if (chain_at(p, pace, &few))
            high = pace, best = few;
        else
            low = pace;
    }
    found(of, best.stage, best.n);
    p->fewest = true;
    if (chain_at(p, high + high / 8, &few)) found(of, few.stage, few.n);
    p->fewest = false;
}

static void list_options(struct sequences *p, uint32_t classes)
{
    p->n_states = 1;
    for (int32_t k = 0; k < p->q->n_classes && p->n_states <= SEQUENCE_STATES; k++) {
        const struct coarse_class *x = &p->q->classes[k];
        if (!(classes >> k & 1)) continue;
        p->budget[k] = x->n / p->replicas, p->stride[k] = p->n_states;
        p->n_states *= p->budget[k] + 1;
        for (int32_t d = 0; d < x->n_degrees && p->n_options < OPTIONS; d++)
            if (x->degree[d].usable && x->degree[d].n <= p->budget[k])
                p->option[p->n_options++] =
                    (struct option){k, d, x->degree[d].n, x->degree[d].type};
    }
}

/* Neighbours on one node, if a node has room for both. */
static void find_routes(struct sequences *p)
{
    struct coarse_line *l = &p->line;
    const struct device_graph *g = p->q->graph;
    for (int32_t i = 0; i < p->n_options; i++) {
        const struct option *a = &p->option[i];
        const struct coarse_class *x = &p->q->classes[a->of];
        int64_t least = INT64_MAX;
        for (int32_t k = 0; k < p->n_options; k++) {
            const struct option *b = &p->option[k];
            int32_t at = a->of != b->of                  ? 0
                         : a->n + b->n > x->per_node ? x->per_node
                                                     : a->n;
            if (at >= p->q->classes[b->of].n) continue;
            p->route[i][k] = device_graph_route(g, x->device[0], p->q->classes[b->of].device[at],
                                                a->type, b->type);
            set_stage(l, 0, b), set_stage(l, 1, a);
            l->route[0] = p->route[i][k];
            if (l->route[0])
                least = units_min(least, coarse_line_busy_ns(l, 0, l->s->n_layers / 2 - 1));
        }
        p->beside_ns[i] = least < INT64_MAX ? least : 0;
    }
}

/* Paces of the whole model on all GPUs at the fastest, and on the slowest option alone. */
static void paces(const struct sequences *p, int64_t *least, int64_t *most)
{
    double rate = 0;
    *most = 0;
    for (int32_t i = 0; i < p->n_options; i++) {
        const struct option *o = &p->option[i];
        const struct stage_cost *c =
            space_stage_type(p->line.s, o->type, 0, p->line.s->n_layers - 1);
        int64_t ns = c->forward_ns + c->input_ns + c->weight_ns + 1;
        rate += p->budget[o->of] / (double)o->n / (double)ns;
        *most = units_max(*most, ns);
    }
    *least = (int64_t)(1 / rate);
}

void coarse_sequences(struct coarse *q, uint32_t classes, int32_t replicas, sequence_found *found,
                      void *of)
{
    struct arena *a = arena_new();
    struct sequences *p = ARENA_ARRAY(a, struct sequences, 1);
    *p = (struct sequences){.q = q,
                            .replicas = replicas,
                            .line = {.q = q,
                                     .s = &q->spaces[q->size],
                                     .replicas = replicas,
                                     .n = SEQUENCE_STAGES}};
    int64_t low, high;
    list_options(p, classes);
    if (p->n_options && p->n_states > 1 && p->n_states <= SEQUENCE_STATES) {
        p->suffix = ARENA_ARRAY(a, struct suffix, (size_t)(p->n_states * p->n_options));
        find_routes(p);
        paces(p, &low, &high);
        for (p->least_gpus = 1; p->least_gpus <= 2; p->least_gpus++)
            min_pace(p, low, 2 * high, found, of);
    }
    arena_free(a);
}
