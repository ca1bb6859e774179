#include "planner/fleet/uniform.h"

#include "core/base/arena.h"

#include <string.h>

enum { HALVINGS = 7, CAPS = 5 };

struct part { /* suffix of a pipeline */
    int32_t first, from, length;
    int64_t fill_ns;
};

struct uniform {
    struct template_maker *m;
    int32_t microbatches, n_states, most, n_mixes;
    int32_t budget[DEVICE_CLASSES_MAX],
        stride[DEVICE_CLASSES_MAX]; /* GPUs of a replica; steps of a state */
    struct part *parts;             /* (n_states, n_classes) */
    int64_t *beside_ns;             /* (n_classes) least blocking time of messages with a preceding stage */
    int32_t least_tp;               /* classes of fewer are not used */
    bool fewest;                    /* stages, of pipelines that keep a pace */
    struct mix *mixes;
};

/* Smallest first layer of a stage within the pace; `end`: none. */
static int32_t reach(const struct uniform *q, int32_t device_class, int32_t end, int32_t warmup,
                     int64_t limit_ns, int64_t *t_ns)
{
    int32_t low = end - q->m->max_layers, high = end;
    struct template_time t;
    if (low < 0) low = 0;
    while (low < high) {
        int32_t first = low + (high - low) / 2;
        if (template_stage_time(q->m, device_class, first, end - 1, warmup, &t) &&
            t.t_ns <= limit_ns)
            high = first, *t_ns = t.t_ns;
        else
            low = first + 1;
    }
    return high;
}

static bool has_room(const struct uniform *q, int32_t state, int32_t device_class)
{
    const struct template_class *k = &q->m->classes[device_class];
    int32_t used = state / q->stride[k->pool] % (q->budget[k->pool] + 1);
    return k->tp >= q->least_tp && used + k->tp <= q->budget[k->pool];
}

/* Prepends a stage of `device_class` to suffix `from` (-1: empty) if fewer layers remain, or equally many at less time. */
static void put_before(struct uniform *q, int32_t state, int32_t from, int32_t device_class,
                       int64_t tau_ns)
{
    const struct template_maker *m = q->m;
    const struct template_class *k = &m->classes[device_class];
    struct part x = {.first = m->s->n_layers, .from = from};
    int64_t busy = 0, t_ns = 0;
    if (from >= 0) {
        int32_t next = from % m->n_classes;
        x = q->parts[from], x.from = from;
        if (!m->near[device_class * m->n_classes + next]) return;
        busy = template_busy_ns(m, device_class, next, x.first - 1);
    }
    int32_t end = x.first, first = reach(q, device_class, end, ++x.length, tau_ns - busy, &t_ns);
    if (first > 0)
        first = reach(q, device_class, end, x.length, tau_ns - busy - q->beside_ns[device_class],
                      &t_ns);
    if (first >= end) return;
    x.first = first, x.fill_ns += t_ns + busy;
    struct part *at = &q->parts[(state + k->tp * q->stride[k->pool]) * m->n_classes + device_class];
    if (first < at->first || (first == at->first && x.fill_ns < at->fill_ns)) *at = x;
}

static bool better(const struct uniform *q, const struct part *x, const struct part *y)
{
    if (q->fewest && x->length != y->length) return x->length < y->length;
    return x->fill_ns < y->fill_ns;
}

/* Entry of the best complete pipeline at this pace, -1: none. */
static int32_t at_pace(struct uniform *q, int64_t tau_ns)
{
    const struct template_maker *m = q->m;
    int32_t best = -1;
    for (int32_t e = 0; e < q->n_states * m->n_classes; e++)
        q->parts[e] = (struct part){.first = INT32_MAX};
    for (int32_t k = 0; k < m->n_classes; k++)
        if (has_room(q, 0, k)) put_before(q, 0, -1, k, tau_ns);
    for (int32_t e = 0; e < q->n_states * m->n_classes; e++) {
        const struct part *x = &q->parts[e];
        if (x->first == 0 && (best < 0 || better(q, x, &q->parts[best]))) best = e;
        if (x->first == 0 || x->first == INT32_MAX || x->length == UNIFORM_STAGES) continue;
        for (int32_t k = 0; k < m->n_classes; k++)
            if (has_room(q, e / m->n_classes, k)) put_before(q, e / m->n_classes, e, k, tau_ns);
    }
    return best;
}

static int32_t order_of(const struct uniform *q, int32_t entry, int32_t *classes)
{
    int32_t n = 0;
    for (; entry >= 0; entry = q->parts[entry].from) classes[n++] = entry % q->m->n_classes;
    return n;
}

static void add_uniform(struct uniform *q, const struct template *t, int32_t replicas)
{
    struct mix x = {.n = 1};
    for (int32_t i = 0; i < q->n_mixes; i++)
        if (q->mixes[i].count[0] == replicas && q->mixes[i].templates[0].n_stages == t->n_stages &&
            q->mixes[i].templates[0].tau_ns == t->tau_ns &&
            q->mixes[i].templates[0].fill_ns == t->fill_ns)
            return;
    x.templates = arena_copy(q->m->arena, t, sizeof *t);
    x.count = ARENA_ARRAY(q->m->arena, int32_t, 1), x.least = ARENA_ARRAY(q->m->arena, int32_t, 1);
    x.more = ARENA_ARRAY(q->m->arena, int32_t, 1);
    x.count[0] = replicas;
    if (q->n_mixes < q->most && mix_share(&x, q->microbatches)) q->mixes[q->n_mixes++] = x;
}

/* The least pace of a number of replicas with stages of at most m->max_layers. */
static void min_pace(struct uniform *q, int32_t replicas, int64_t low, int64_t high)
{
    int32_t classes[UNIFORM_STAGES], n = 0, found = at_pace(q, high);
    struct template t;
    if (found < 0) return;
    n = order_of(q, found, classes);
    for (int k = 0; k < HALVINGS; k++) {
        int64_t tau = low + (high - low) / 2;
        found = at_pace(q, tau);
        if (found < 0) {
            low = tau;
            continue;
        }
        n = order_of(q, found, classes), high = tau;
    }
    if (template_balance(q->m, classes, n, high + high / 8, &t)) add_uniform(q, &t, replicas);
    q->fewest = true; /* a little slower, with fewer messages */
    found = at_pace(q, high + high / 8);
    q->fewest = false;
    if (found < 0) return;
    n = order_of(q, found, classes);
    if (template_balance(q->m, classes, n, high + high / 4, &t)) add_uniform(q, &t, replicas);
}

/* Whether this number of replicas is possible and maximal for its GPUs per replica. */
static bool set_budget(struct uniform *q, int32_t replicas)
{
    bool larger = false;
    q->n_states = 1;
    for (int32_t p = 0; p < q->m->n_pools; p++) {
        int32_t n = q->m->g->classes[p].n;
        q->budget[p] = n / replicas;
        larger |= n / (replicas + 1) < q->budget[p];
        q->stride[p] = q->n_states;
        if (q->n_states <= UNIFORM_STATES) q->n_states *= q->budget[p] + 1;
    }
    return larger && q->n_states > 1 && q->n_states <= UNIFORM_STATES;
}

static void price_beside(struct uniform *q)
{
    const struct template_maker *m = q->m;
    for (int32_t k = 0; k < m->n_classes; k++) {
        int64_t least = INT64_MAX;
        for (int32_t o = 0; o < m->n_classes && m->s->n_layers > 1; o++) {
            if (!m->near[k * m->n_classes + o]) continue;
            int64_t ns = template_busy_ns(m, k, o, m->s->n_layers / 2 - 1);
            if (ns < least) least = ns;
        }
        q->beside_ns[k] = least < INT64_MAX ? least : 0;
    }
}

void uniform_mixes(struct template_maker *m, int32_t microbatches, int32_t most, struct mix **out,
                   int32_t *n)
{
    struct uniform q = {.m = m, .microbatches = microbatches, .most = most};
    int32_t layers = m->s->n_layers;
    int64_t least, slowest;
    q.parts = ARENA_ARRAY(m->arena, struct part, (UNIFORM_STATES + 1) * (size_t)m->n_classes);
    q.beside_ns = ARENA_ARRAY(m->arena, int64_t, (size_t)m->n_classes);
    q.mixes = ARENA_ARRAY(m->arena, struct mix, (size_t)most);
    price_beside(&q);
    template_paces(m, &least, &slowest);
    for (int32_t replicas = m->g->n_devices; replicas >= 1; replicas--) {
        if (replicas > microbatches || !set_budget(&q, replicas)) continue;
        for (int32_t cap = 1; cap <= CAPS && cap <= layers; cap++)
            for (q.least_tp = 1; q.least_tp <= 2 && q.least_tp <= m->most_tp; q.least_tp++) {
                m->max_layers = (layers + cap - 1) / cap;
                min_pace(&q, replicas, least, 2 * slowest);
            }
    }
    m->max_layers = layers;
    *out = q.mixes, *n = q.n_mixes;
}
