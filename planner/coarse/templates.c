/* planner/coarse/templates.c - pipelines of a team: degrees, order of classes, layers, recomputation. */
#include "planner/coarse/sequence.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/candidate/group.h"

#include <string.h>

enum { CHOICES = 12 }; /* of degrees of a team's classes, whose layers are divided */

/* --- enumeration ------------------------------------------------------------------------------- */

struct making {
    struct coarse *q;
    uint32_t classes;
    int32_t replicas, microbatches, most, n[COARSE_TEMPLATE_LISTS];
    struct coarse_need need;
    int64_t ns[COARSE_TEMPLATE_LISTS][COARSE_KEPT];
    struct coarse_template *out; /* (COARSE_TEMPLATE_LISTS, most) by ZeRO and placement */
    struct arena *scratch;
};

/* Measured layers are planned as they were measured, with their state whole: whether ZeRO changes no stage of a template that is kept without. */
static bool as_measured(const struct making *m, const struct coarse_template *x)
{
    int z = 2 * x->by_stage;
    for (int32_t i = 0; i < m->n[z] && x->zero && m->q->task->job->model.measured; i++) {
        const struct coarse_template *y = &m->out[z * m->most + i];
        bool same = x->n_stages == y->n_stages;
        for (int32_t k = 0; k < x->n_stages && same; k++) {
            const struct coarse_stage *a = &x->stages[k], *b = &y->stages[k];
            same = a->of == b->of && a->degree == b->degree && a->last == b->last && a->recompute == b->recompute;
        }
        if (same) return true;
    }
    return false;
}

static void keep(struct making *m, struct coarse_template *x)
{
    int z = x->zero + 2 * x->by_stage;
    if (as_measured(m, x)) return;
    const struct coarse_template *team = x;
    int64_t ns = x->fill_ns + (m->microbatches - 1) * x->pace_ns +
                 coarse_tail_ns(m->q, &team, 1, x->replicas);
    int32_t at = m->n[z];
    for (int like = x->zero; like <= z; like += 2) /* also one placed in the other way */
        for (int32_t i = 0; i < m->n[like]; i++)
            if (m->ns[like][i] == ns && m->out[like * m->most + i].n_stages == x->n_stages) return;
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

static struct coarse_line line_of(const struct making *m)
{
    return (struct coarse_line){.q = m->q,
                                .s = &m->q->spaces[m->q->size],
                                .replicas = m->replicas,
                                .alone = m->classes == (1U << m->q->n_classes) - 1};
}

/* Stages of a class in a replica, of which so many are laid before those of the other part of its nodes. */
struct laid {
    struct coarse_stage stage;
    int32_t left, at_once;
};

/* alone: the class has no other part. */
static struct laid laid_of(const struct making *m, int32_t of, int32_t degree, bool alone)
{
    const struct coarse_class *x = &m->q->classes[of];
    int32_t gpus = x->degree[degree].n, n = coarse_class_groups(x, gpus) / m->replicas;
    return (struct laid){{.of = of, .degree = degree}, n, alone ? n : x->per_node / gpus};
}

/* false: too many. */
static bool lay_some(struct coarse_line *l, struct laid *x)
{
    for (int32_t i = 0; i < x->at_once && x->left; i++, x->left--) {
        if (l->n == COARSE_STAGES) return false;
        l->stage[l->n++] = x->stage;
    }
    return true;
}

/* Stages of the classes in this order, each by its degree; of two parts of the same nodes node by node. false: none, or too many. */
static bool lay(struct making *m, struct coarse_line *l, const int32_t *order, int32_t n,
                const int32_t *degree)
{
    l->n = 0;
    for (int32_t k = 0, parts; k < n; k += parts) {
        struct laid x[2] = {{.left = 0}};
        parts = k + 1 < n && m->q->of_whole[order[k]] == m->q->of_whole[order[k + 1]] ? 2 : 1;
        for (int32_t i = 0; i < parts; i++) {
            x[i] = laid_of(m, order[k + i], degree[k + i], parts == 1);
            if (!x[i].left) return false;
        }
        while (x[0].left || x[1].left)
            if (!lay_some(l, &x[0]) || !lay_some(l, &x[1])) return false;
    }
    return l->n > 0;
}

/* The index behind `count` groups of n GPUs, each on one node, from `at` on. */
static int32_t behind_groups(const struct coarse_class *x, int32_t at, int32_t n, int32_t count)
{
    int32_t here = (x->per_node - at % x->per_node) / n, each = x->per_node / n;
    if (count <= here) return at + count * n;
    int32_t node = at / x->per_node + 1 + (count - here - 1) / each;
    return node * x->per_node + ((count - here - 1) % each + 1) * n;
}

/* The first GPUs of every class that replica 0 has, each stage on one node; false: they do not suffice, or have no routes. */
static bool give_devices(const struct making *m, struct coarse_line *l)
{
    int32_t used[COARSE_CLASSES] = {0};
    for (int32_t i = 0; i < l->n; i++) {
        const struct coarse_class *x = &m->q->classes[l->stage[i].of];
        int32_t n = x->degree[l->stage[i].degree].n, *at = &used[l->stage[i].of];
        int32_t behind = behind_groups(x, *at, n, 1);
        if (behind > x->n) return false;
        l->device[i] = x->device[behind - n];
        *at = l->by_stage ? behind_groups(x, *at, n, m->replicas) : behind;
    }
    return coarse_line_routes(l) < 0;
}

/* ZeRO 0, and 1 where a parameter may have several holders. */
static int zero_levels(const struct making *m, const struct coarse_line *l)
{
    bool shared = m->q->n_classes > 1 || m->replicas > 1;
    for (int32_t i = 0; i < l->n && !shared; i++)
        shared = m->q->classes[l->stage[i].of].degree[l->stage[i].degree].copies > 1;
    return shared && !m->q->t->o->no_zero ? 2 : 1;
}

/* The first microbatch's way down and up takes at least as long as its forwards and input gradients on the fastest stage. */
static int64_t least_fill(const struct coarse_line *l)
{
    int64_t least = INT64_MAX;
    for (int32_t i = 0; i < l->n; i++) {
        const struct stage_cost *c = coarse_line_cost(l, i, 0, l->s->n_layers - 1);
        least = units_min(least, c->forward_ns + c->input_ns);
    }
    return least;
}

/* The slowest stage of a line that is of use: better than the templates that are kept, and fast enough for a candidate. */
static int64_t slowest_of_use(const struct making *m, const struct coarse_line *l)
{
    int z = l->zero;
    int64_t fill = least_fill(l), most = m->need.ns > 0 && fill > m->need.ns ? 0 : INT64_MAX;
    if (m->n[z] == m->most && m->microbatches > 1)
        most = (m->ns[z][m->most - 1] - fill) / (m->microbatches - 1);
    if (m->need.microbatches > 0)
        most = units_min(most, (int64_t)((double)(m->need.ns - fill) / m->need.microbatches));
    return most;
}

/* Layers of a line whose devices are given; false: none that is of use. */
static bool balance(const struct making *m, struct coarse_line *l)
{
    int64_t most = slowest_of_use(m, l);
    l->most_ns = most < INT64_MAX ? units_max(most, 0) + 1 : 0, l->laid = 0;
    bool balanced = coarse_line_balance(l);
    m->q->stages_laid += l->n + l->laid;
    return balanced;
}

/* Keeps a balanced line in every placement. Only measured layers are divided by their messages, which depend on it. Returns whether weight
 * gradients apart would take more recomputation. */
static bool try_placements(struct making *m, struct coarse_line *l)
{
    int placements = l->n > 1 && m->replicas > 1 ? 2 : 1;
    bool measured = m->q->task->job->model.measured, balanced = false, tight = false;
    for (int k = 0; k < placements; k++) {
        struct coarse_template x;
        l->by_stage = k;
        if (!give_devices(m, l)) continue;
        if (k == 0 || measured) balanced = balance(m, l);
        if (!balanced) continue;
        coarse_line_measure(l, &x);
        keep(m, &x);
        tight |= !measured && l->n > 1 && x.schedule == COARSE_1F1B;
    }
    return tight;
}

static void try_line(struct making *m, struct coarse_line *l)
{
    for (l->zero = 0; l->zero < zero_levels(m, l); l->zero++) {
        l->split = l->eager = false;
        bool tight = try_placements(m, l);
        l->split = tight;
        if (tight) (void)try_placements(m, l);
        l->split = false, l->eager = tight;
        if (tight) (void)try_placements(m, l);
    }
}

static void try_degrees(struct making *m, const int32_t *order, int32_t n, const int32_t *degree)
{
    struct coarse_line l = line_of(m);
    if (lay(m, &l, order, n, degree)) try_line(m, &l);
}

static void try_sequence(void *of, const struct coarse_stage *stages, int32_t n)
{
    struct making *m = of;
    struct coarse_line l = line_of(m);
    l.n = n;
    memcpy(l.stage, stages, (size_t)n * sizeof *stages);
    try_line(m, &l);
}

/* Numbers of GPUs a stage, one for each class of the order. */
struct choice {
    int32_t degree[COARSE_CLASSES];
    double ns; /* estimate of its pipeline's time if layers could be divided at will */
};

/* What a class adds to a pipeline by one of its degrees. */
struct part {
    int32_t degree, kind;      /* kind: -1 on one GPU */
    double rate, stages, held; /* held: models that fit, with divided state */
};

struct choosing {
    const struct making *m;
    int32_t n_parts[COARSE_CLASSES], n_best;
    struct part parts[COARSE_CLASSES][COARSE_DEGREES];
    struct choice at, best[CHOICES];
};

/* false: the class has no stages of this degree. */
static bool part_of(const struct making *m, const struct coarse_class *x, int32_t degree,
                    struct part *out)
{
    const struct coarse_degree *d = &x->degree[degree];
    const struct space *s = &m->q->spaces[m->q->size];
    int32_t only = m->q->offer ? m->q->offer->n : 0, here = coarse_class_groups(x, d->n) / m->replicas;
    if (!d->usable || !here || (only && d->n != only)) return false;
    const struct stage_cost *c = space_stage_type(s, d->type, 0, s->n_layers - 1);
    int64_t state = group_zero_bytes(s, d->type, 0, s->n_layers - 1, m->replicas),
            bytes = c->parameter_bytes + c->gradient_bytes + state;
    *out = (struct part){
        .degree = degree,
        .kind = d->n > 1 ? (int32_t)d->kind : -1,
        .stages = here,
        .rate = here / (double)(c->forward_ns + c->input_ns + c->weight_ns + 1),
        .held = here * ((double)s->cluster->types[d->type].memory_bytes / (double)(bytes + 1))};
    return true;
}

/* Among equal estimates the first one stays first. */
static void keep_choice(struct choosing *c, double ns)
{
    int32_t at = c->n_best;
    if (at == CHOICES && c->best[at - 1].ns <= ns) return;
    if (at == CHOICES)
        at--;
    else
        c->n_best++;
    for (; at > 0 && c->best[at - 1].ns > ns; at--) c->best[at] = c->best[at - 1];
    c->at.ns = ns;
    c->best[at] = c->at;
}

/* All choices of the first k classes beside those of the others, whose sums are given. All stages on several GPUs have rules of one kind. */
static void choose(struct choosing *c, int32_t k, int32_t kind, double rate, double stages,
                   double held)
{
    if (!k) {
        if (held >= 1 && rate * (double)c->m->need.ns >= c->m->need.microbatches)
            keep_choice(c, (c->m->microbatches - 1 + stages) / rate);
        return;
    }
    for (int32_t i = 0; i < c->n_parts[k - 1]; i++) {
        const struct part *x = &c->parts[k - 1][i];
        if (kind >= 0 && x->kind >= 0 && x->kind != kind) continue;
        c->at.degree[k - 1] = x->degree;
        choose(c, k - 1, x->kind >= 0 ? x->kind : kind, rate + x->rate, stages + x->stages,
               held + x->held);
    }
}

/* Whether templates of as many choices as are kept are better than this estimate, at a ZeRO level that fits. */
static bool beaten(const struct making *m, double ns)
{
    bool any = false;
    for (int z = 0; z < COARSE_TEMPLATE_LISTS; z++) {
        if (m->n[z] == m->most && ns < (double)m->ns[z][m->most - 1]) return false;
        any |= m->n[z] == m->most;
    }
    return any;
}

/* The CHOICES best of all choices of degrees. O(degrees of one kind ^ classes). */
static void try_order(struct making *m, const int32_t *order, int32_t n)
{
    struct choosing c = {.m = m};
    for (int32_t k = 0; k < n; k++) {
        const struct coarse_class *x = &m->q->classes[order[k]];
        for (int32_t d = 0; d < x->n_degrees; d++)
            c.n_parts[k] += part_of(m, x, d, &c.parts[k][c.n_parts[k]]);
    }
    choose(&c, n, -1, 0, 0, 0);
    for (int32_t i = 0; i < c.n_best && !beaten(m, c.best[i].ns); i++)
        try_degrees(m, order, n, c.best[i].degree);
}

/* The least estimate of all lists; INT64_MAX: none. *best: its template. */
static int64_t best_of(const struct making *m, const struct coarse_template **best)
{
    int64_t least = INT64_MAX;
    for (int z = 0; z < COARSE_TEMPLATE_LISTS; z++)
        if (m->n[z] && m->ns[z][0] < least) least = m->ns[z][0], *best = &m->out[z * m->most];
    return least;
}

/* The last stage becomes the first one, or the first one the last. */
static void rotate(struct coarse_line *l, bool forward)
{
    struct coarse_stage end = l->stage[forward ? l->n - 1 : 0];
    memmove(&l->stage[forward], &l->stage[!forward], (size_t)(l->n - 1) * sizeof end);
    l->stage[forward ? 0 : l->n - 1] = end;
}

/* The best template with stages moved from one end to the other, so that the faster class is at both, as long as the estimate falls: the embedding
 * and the output matrix are not divided, and a stage of another class may lack the speed, the memory or the links for them. O(stages) lines. */
static void try_rotations(struct making *m)
{
    const struct coarse_template *best;
    int64_t before = best_of(m, &best);
    struct coarse_line first = line_of(m);
    if (before == INT64_MAX) return;
    first.n = best->n_stages;
    memcpy(first.stage, best->stages, (size_t)first.n * sizeof *first.stage);
    const struct coarse_class *k = m->q->classes;
    bool forward = k[first.stage[first.n - 1].of].speed > k[first.stage[0].of].speed;
    for (int64_t last = INT64_MAX, now = before; now < last; now = best_of(m, &best)) {
        last = now;
        rotate(&first, forward);
        if (first.stage[0].of != first.stage[first.n - 1].of) break; /* another order of the classes */
        try_line(m, &first);
    }
}

static void swap(int32_t *x, int32_t *y)
{
    int32_t t = *x;
    *x = *y, *y = t;
}

/* The smaller part of divided nodes stays behind the larger one: its GPUs hold larger shards, and a later stage fewer microbatches. */
static void reverse(const struct coarse *q, int32_t *order, int32_t n)
{
    for (int32_t i = 0; i < n / 2; i++) swap(&order[i], &order[n - 1 - i]);
    for (int32_t i = 0; i + 1 < n; i++)
        if (q->of_whole[order[i]] == q->of_whole[order[i + 1]]) swap(&order[i], &order[i + 1]);
}

int32_t coarse_templates(struct coarse *q, uint32_t classes, int32_t replicas, int32_t most,
                         bool any_order, struct coarse_need need, struct coarse_template *out)
{
    struct making m = {.q = q,
                       .classes = classes,
                       .replicas = replicas,
                       .most = most,
                       .need = need,
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
    reverse(q, order, n);
    if (n > 1) {
        try_order(&m, order, n);
        try_rotations(&m);
    }
    if (any_order) coarse_sequences(q, classes, replicas, try_sequence, &m);
    int32_t found = m.n[0];
    for (int z = 1; z < COARSE_TEMPLATE_LISTS; z++) {
        memmove(out + found, out + z * most, (size_t)m.n[z] * sizeof *out);
        found += m.n[z];
    }
    for (int32_t i = 0; i < found; i++)
        out[i].stages = arena_copy(q->templates, out[i].stages,
                                   (size_t)out[i].n_stages * sizeof *out[i].stages);
    arena_free(m.scratch);
    return found;
}
