#include "planner/fleet/template.h"

#include "core/base/arena.h"
#include "core/base/stop.h"

#include <string.h>

struct template_label {
    int32_t first, last, device_class, warmup, below; /* below: label of the next stage, -1 */
    int32_t length;                                   /* stages */
    bool recompute;
    int64_t t_ns;
    double cost;
};

/* Memo of `longest` at this pace for a class and a last layer. */
struct template_found {
    int64_t stamp, limit_ns;
    int32_t warmup, first;
    struct template_time time;
};

/* --- classes and their links --- */

static int32_t node_of(const struct device_graph *g, int32_t device)
{
    return g->cluster->devices[device].node;
}

/* Two devices of the pools on one node, or on two nodes; false: none. A near pair contains the first device of either pool,
 * because adjacent devices in the order are placed together. */
static bool pick_pair(const struct device_graph *g, const struct device_class *a,
                      const struct device_class *b, bool far, int32_t pair[2])
{
    for (int32_t k = 0; k < a->n + b->n; k++) {
        pair[0] = a->devices[k < b->n ? 0 : k - b->n];
        pair[1] = b->devices[k < b->n ? k : 0];
        if (pair[0] != pair[1] && (node_of(g, pair[0]) != node_of(g, pair[1])) == far) return true;
    }
    return false;
}

static void find_links(struct template_maker *m)
{
    const struct device_graph *g = m->g;
    for (int32_t i = 0; i < m->n_classes; i++)
        for (int32_t j = 0; j < m->n_classes; j++) {
            const struct template_class *a = &m->classes[i], *b = &m->classes[j];
            const struct device_class *pa = &g->classes[a->pool], *pb = &g->classes[b->pool];
            int32_t pair[2], at = i * m->n_classes + j;
            bool room = a->pool != b->pool || a->tp + b->tp <= pa->per_node;
            if (room && pick_pair(g, pa, pb, false, pair))
                m->near[at] = device_graph_route(g, pair[0], pair[1], a->type, b->type);
            if (pick_pair(g, pa, pb, true, pair))
                m->far[at] = device_graph_route(g, pair[0], pair[1], a->type, b->type);
            if (!m->near[at]) m->near[at] = m->far[at];
            if (!m->far[at]) m->far[at] = m->near[at];
        }
}

struct template_maker *template_maker_new(struct arena *a, const struct space *s,
                                          const struct device_graph *g,
                                          const struct template_class *classes, int32_t n_classes)
{
    size_t n = (size_t)n_classes;
    struct template_maker *m = ARENA_ARRAY(a, struct template_maker, 1);
    *m = (struct template_maker){.arena = a,
                                 .s = s,
                                 .g = g,
                                 .classes = classes,
                                 .n_classes = n_classes,
                                 .n_pools = g->n_classes,
                                 .max_layers = s->n_layers};
    m->near = ARENA_ARRAY(a, const struct device_route *, n *n);
    m->far = ARENA_ARRAY(a, const struct device_route *, n *n);
    m->busy_ns = ARENA_ARRAY(a, int64_t *, n * n);
    m->best = ARENA_ARRAY(a, int32_t, n * (size_t)s->n_layers);
    m->min_pool = INT32_MAX;
    for (int32_t k = 0; k < n_classes; k++) {
        if (classes[k].tp > m->most_tp) m->most_tp = classes[k].tp;
        if (g->classes[classes[k].pool].n < m->min_pool)
            m->min_pool = g->classes[classes[k].pool].n;
    }
    m->found = ARENA_ARRAY(a, struct template_found, n * (size_t)s->n_layers);
    find_links(m);
    return m;
}

static int64_t message_ns(const struct cost_link *l, int64_t bytes)
{
    return cost_occupancy_ns(l, bytes) + l->latency_ns;
}

int64_t template_transfer_ns(const struct template_maker *m, int32_t from, int32_t to, int32_t cut)
{
    int32_t at = from * m->n_classes + to;
    const struct template_class *k = &m->classes[from];
    int64_t bytes = m->s->cut_bytes[cut];
    if (!m->near[at]) return INT64_MAX;
    int64_t near = message_ns(&m->near[at]->link, bytes);
    if (from != to) return near;
    /* Of this many adjacent stages one is the last on its node. */
    int64_t far = message_ns(&m->far[at]->link, bytes),
            on_node = k->per_node < k->n ? k->per_node : k->n;
    return (near * (on_node - 1) + far) / on_node;
}

/* Time of the receiver's GPUs to assemble a sharded message; 0 if the profile lacks it (lowering reports it). */
static int64_t assemble_ns(const struct template_maker *m, int32_t device_class, int32_t cut)
{
    struct program_op op = {
        .kind = OP_assemble, .phase = PHASE_F, .name = "assemble", .dtype = m->s->job->precision};
    struct shape whole = {.rank = 1, .dim = {m->s->cut_bytes[cut] / dtype_bytes(op.dtype)}};
    struct error unheard;
    int64_t ns = 0;
    op.shapes = (struct op_shapes){.n_inputs = 1, .input = {whole}};
    op.key = op_key(op.kind, &op.attrs, &op.shapes, op.dtype);
    return cost_op(m->s->cost, m->classes[device_class].type, &op, &ns, &unheard) == OK ? ns : 0;
}

int64_t template_busy_ns(const struct template_maker *m, int32_t device_class, int32_t other,
                         int32_t cut)
{
    int32_t at = device_class * m->n_classes + other;
    size_t n = (size_t)m->s->n_layers;
    if (!m->near[at] || !m->near[at]->blocking) return 0;
    if (!m->busy_ns[at]) {
        m->busy_ns[at] = ARENA_ARRAY(m->arena, int64_t, n);
        memset(m->busy_ns[at], -1, n * sizeof **m->busy_ns);
    }
    int64_t *ns = &m->busy_ns[at][cut];
    if (*ns < 0)
        *ns = template_transfer_ns(m, device_class, other, cut) +
              template_transfer_ns(m, other, device_class, cut) + assemble_ns(m, device_class, cut);
    return *ns;
}

int64_t template_busy_on(const struct template_maker *m, int32_t device_class,
                         const struct device_route *route, int32_t cut)
{
    if (!route || !route->blocking) return 0;
    return 2 * message_ns(&route->link, m->s->cut_bytes[cut]) + assemble_ns(m, device_class, cut);
}

/* --- stages --- */

bool template_stage_time(const struct template_maker *m, int32_t device_class, int32_t first,
                         int32_t last, int32_t warmup, struct template_time *out)
{
    const struct template_class *k = &m->classes[device_class];
    const struct stage_cost *c = space_stage_type(m->s, k->type, first, last);
    int64_t fixed = c->parameter_bytes + c->gradient_bytes + c->state_bytes + c->scratch_bytes;
    /* Receive and send buffers: two activations and two gradients. Plus 1/50 for bytes known only to lowering, because
     * recomputation for a few bytes costs a third of the pace. */
    int64_t memory = m->s->cluster->types[k->type].memory_bytes;
    int64_t room = memory - fixed - 4 * c->input_bytes;
    out->t_ns = c->forward_ns + c->input_ns + c->weight_ns;
    room -= memory / 50;
    out->recompute = warmup * c->activation_bytes > room;
    if (!out->recompute) return true;
    out->t_ns += c->recompute_ns;
    return (warmup + 1) * c->input_bytes + c->activation_bytes <= room;
}

/* Smallest first layer of a stage that ends at `last` within the pace; last + 1: none. */
static int32_t longest(const struct template_maker *m, int32_t device_class, int32_t last,
                       int32_t warmup, int64_t tau_ns, struct template_time *out)
{
    int32_t low = last + 1 - m->max_layers, high = last + 1;
    struct template_time t;
    if (low < 0) low = 0;
    while (low < high) {
        int32_t first = low + (high - low) / 2;
        if (template_stage_time(m, device_class, first, last, warmup, &t) && t.t_ns <= tau_ns)
            high = first;
        else
            low = first + 1;
    }
    while (m->starts && high <= last && !m->starts[high]) high++; /* shorter stages are within the pace as well */
    if (high <= last) template_stage_time(m, device_class, high, last, warmup, out);
    return high;
}

static int32_t warmup_before(int32_t warmup, int64_t t_ns, int64_t transfer_ns, int64_t tau_ns)
{
    /* A message below 1 % of the pace adds no warm-up, which would double the stage's activations. */
    int64_t more = tau_ns > 0 ? (t_ns + 2 * transfer_ns - tau_ns / 50 + tau_ns - 1) / tau_ns : 1;
    return warmup + (int32_t)(more > 1 ? more : 1);
}

/* --- the dynamic program --- */

/* GPUs of each pool in a label and those below. */
static void count_used(const struct template_maker *m, int32_t label, int32_t *use)
{
    for (; label >= 0; label = m->labels[label].below) {
        const struct template_class *k = &m->classes[m->labels[label].device_class];
        use[k->pool] += k->tp;
    }
}

static int32_t longest_kept(struct template_maker *m, int32_t device_class, int32_t last,
                            int32_t warmup, int64_t limit_ns, struct template_time *out)
{
    struct template_found *f = &m->found[last * m->n_classes + device_class];
    if (f->stamp != m->stamp || f->warmup != warmup || f->limit_ns != limit_ns) {
        *f = (struct template_found){.stamp = m->stamp, .limit_ns = limit_ns, .warmup = warmup};
        f->first = longest(m, device_class, last, warmup, limit_ns, &f->time);
    }
    *out = f->time;
    return f->first;
}

static void add_label(struct template_maker *m, const struct template_label *x)
{
    int32_t *best = &m->best[x->first * m->n_classes + x->device_class];
    if (*best >= 0 && m->labels[*best].cost <= x->cost) return;
    m->labels = arena_grow(m->arena, m->labels, m->n_labels, &m->capacity, sizeof *m->labels);
    *best = (int32_t)m->n_labels;
    m->labels[m->n_labels++] = *x;
}

/* Extends a label by the longest stage of every class. If messages block the stage, the same time is reserved for the
 * messages with the stage before it, which is not known yet. */
static void extend(struct template_maker *m, int32_t below, int64_t tau_ns, const double *price)
{
    struct template_label from = {.first = m->s->n_layers};
    int32_t use[DEVICE_CLASSES_MAX] = {0};
    if (below >= 0) from = m->labels[below];
    if (from.length >= TEMPLATE_STAGES_MAX) return;
    if ((from.length + 1) * m->most_tp > m->min_pool) count_used(m, below, use);
    for (int32_t k = 0; k < m->n_classes; k++) {
        const struct template_class *device_class = &m->classes[k];
        int64_t transfer = 0, busy = 0;
        int32_t warmup = 1;
        struct template_time t;
        if (price[k] < 0 ||
            use[device_class->pool] + device_class->tp > m->g->classes[device_class->pool].n)
            continue;
        if (below >= 0) {
            transfer = template_transfer_ns(m, k, from.device_class, from.first - 1);
            busy = template_busy_ns(m, k, from.device_class, from.first - 1);
            if (transfer > tau_ns || 2 * busy > tau_ns) continue;
            warmup = warmup_before(from.warmup, from.t_ns, transfer, tau_ns);
        } else if (m->s->n_layers > 1) {
            busy = template_busy_ns(m, k, k, m->s->n_layers - 2) / 2;
        }
        int32_t first = longest_kept(m, k, from.first - 1, warmup, tau_ns - 2 * busy, &t);
        if (first > 0 && busy && longest(m, k, from.first - 1, warmup, tau_ns - busy, &t) == 0)
            first = 0; /* no stage before it */
        if (first >= from.first) continue;
        double cost = from.cost + (double)(t.t_ns + 2 * transfer) / (double)tau_ns + price[k];
        add_label(m, &(struct template_label){first, from.first - 1, k, warmup, below,
                                              from.length + 1, t.recompute, t.t_ns, cost});
    }
}

static void take(const struct template_maker *m, int32_t label, struct template *out)
{
    int32_t n = 0;
    *out = (struct template){0};
    for (int32_t l = label; l >= 0; l = m->labels[l].below) out->n_stages++;
    out->stages = ARENA_ARRAY(m->arena, struct template_stage, (size_t)out->n_stages);
    for (int32_t l = label; l >= 0; l = m->labels[l].below) {
        const struct template_label *x = &m->labels[l];
        out->stages[n++] =
            (struct template_stage){x->device_class, x->first, x->last, x->warmup, x->recompute};
    }
    template_measure(m, out);
}

bool template_cheapest(struct template_maker *m, int64_t tau_ns, const double *price,
                       struct template *out)
{
    int32_t n_classes = m->n_classes, best = -1;
    m->n_labels = 0;
    m->stamp++;
    memset(m->best, -1, (size_t)m->s->n_layers * (size_t)n_classes * sizeof *m->best);
    extend(m, -1, tau_ns, price);
    for (size_t i = 0; i < m->n_labels; i++) {
        const struct template_label *x = &m->labels[i];
        if (stop_requested()) return false;
        if (m->best[x->first * n_classes + x->device_class] != (int32_t)i)
            continue; /* dominated since */
        if (x->first > 0) extend(m, (int32_t)i, tau_ns, price);
    }
    for (int32_t k = 0; k < n_classes; k++) {
        int32_t at = m->best[k];
        if (at >= 0 && (best < 0 || m->labels[at].cost < m->labels[best].cost)) best = at;
    }
    if (best >= 0) take(m, best, out);
    return best >= 0;
}

/* --- a given order of classes --- */

static bool fill_back(const struct template_maker *m, struct template *t, int64_t tau_ns)
{
    int32_t end = m->s->n_layers, warmup = 1;
    struct template_time time = {0, false};
    for (int32_t i = t->n_stages - 1; i >= 0; i--) {
        struct template_stage *x = &t->stages[i];
        if (end <= i) return false; /* one layer for each stage before */
        if (i + 1 < t->n_stages) {
            int64_t transfer =
                template_transfer_ns(m, x->device_class, t->stages[i + 1].device_class, end - 1);
            if (transfer == INT64_MAX) return false;
            warmup =
                warmup_before(warmup, time.t_ns, transfer, tau_ns > transfer ? tau_ns : transfer);
        }
        int64_t busy = 0;
        if (i + 1 < t->n_stages)
            busy += template_busy_ns(m, x->device_class, t->stages[i + 1].device_class, end - 1);
        if (i) /* the next cut has about the same size */
            busy += template_busy_ns(m, x->device_class, t->stages[i - 1].device_class,
                                     end > 1 ? end - 2 : 0);
        int32_t first = longest(m, x->device_class, end - 1, warmup, tau_ns - busy, &time);
        if (first >= end) return false;
        if (first < i || (i == 0 && first > 0)) {
            if (i == 0) return false;
            first = i;
            if (m->starts && !m->starts[first]) return false;
            if (!template_stage_time(m, x->device_class, first, end - 1, warmup, &time))
                return false;
        }
        x->first = first, x->last = end - 1, x->warmup = warmup, x->recompute = time.recompute;
        end = first;
    }
    return end == 0;
}

bool template_balance(struct template_maker *m, const int32_t *classes, int32_t n, int64_t most_ns,
                      struct template *out)
{
    int64_t low, high = most_ns;
    if (n > m->s->n_layers) return false;
    *out = (struct template){.n_stages = n};
    out->stages = ARENA_ARRAY(m->arena, struct template_stage, (size_t)n);
    for (int32_t i = 0; i < n; i++) out->stages[i].device_class = classes[i];
    if (!fill_back(m, out, high)) return false;
    low = high / 4;
    while (low < high - high / 512) {
        int64_t tau = low + (high - low) / 2;
        if (fill_back(m, out, tau))
            high = tau;
        else
            low = tau + 1;
    }
    if (!fill_back(m, out, high)) return false;
    template_measure(m, out);
    return true;
}

void template_measure(const struct template_maker *m, struct template *t)
{
    t->tau_ns = 1, t->fill_ns = 0, t->tail_ns = 0;
    t->use = ARENA_ARRAY(m->arena, int32_t, (size_t)m->n_pools);
    for (int32_t i = 0; i < t->n_stages; i++) {
        struct template_stage *x = &t->stages[i];
        struct template_time time;
        template_stage_time(m, x->device_class, x->first, x->last, x->warmup, &time);
        int64_t update =
            space_stage_type(m->s, m->classes[x->device_class].type, x->first, x->last)->update_ns;
        int64_t transfer = i ? template_transfer_ns(m, t->stages[i - 1].device_class,
                                                    x->device_class, x->first - 1)
                             : 0;
        int64_t busy = time.t_ns;
        if (i)
            busy +=
                template_busy_ns(m, x->device_class, t->stages[i - 1].device_class, x->first - 1);
        if (i + 1 < t->n_stages)
            busy += template_busy_ns(m, x->device_class, t->stages[i + 1].device_class, x->last);
        t->use[m->classes[x->device_class].pool] += m->classes[x->device_class].tp;
        t->fill_ns += time.t_ns + 2 * transfer;
        if (busy > t->tau_ns) t->tau_ns = busy;
        if (transfer > t->tau_ns) t->tau_ns = transfer;
        if (update > t->tail_ns) t->tail_ns = update;
    }
}

void template_paces(const struct template_maker *m, int64_t *least_ns, int64_t *most_ns)
{
    *least_ns = 1, *most_ns = 0;
    for (int32_t l = 0; l <= m->s->n_layers; l++) {
        int64_t best = INT64_MAX; /* least time of layer l; last round: of the whole model */
        for (int32_t k = 0; k < m->n_classes; k++) {
            bool all = l == m->s->n_layers;
            const struct stage_cost *c = space_stage_type(m->s, m->classes[k].type, all ? 0 : l,
                                                          all ? m->s->n_layers - 1 : l);
            int64_t t = c->forward_ns + c->input_ns + c->weight_ns;
            if (all && t + c->recompute_ns > *most_ns) *most_ns = t + c->recompute_ns;
            if (t < best) best = t;
        }
        if (l < m->s->n_layers && best > *least_ns) *least_ns = best;
    }
}
