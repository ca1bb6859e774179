/* planner/coarse/combine.c - sets of teams and their shares of the batch. */
#include "planner/coarse/internal.h"

#include "core/base/arena.h"
#include "core/base/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COMBINATIONS = 200000 }; /* per size: about 0.1 s */
#define USED_LEAST                                                                                 \
    0.85 /* of the speed of a team's GPUs: numbers of replicas that leave more GPUs idle are left out */

struct counted {
    const struct coarse_template *of;
    int64_t most; /* microbatches within the limit */
};

struct combining {
    struct coarse *q;
    int32_t n;
    size_t capacity;
    struct coarse_template *templates;
    int64_t left; /* combinations */
    /* Microbatches a nanosecond, without fill and tail: of the best template of each set of classes, < 0: not made yet; and of teams of a set
     * at most. */
    double made[1 << COARSE_CLASSES], rate[1 << COARSE_CLASSES];
    double ideal[COARSE_CLASSES]; /* of a class whose GPUs never wait */
    struct counted *order;        /* (n) */
    int64_t most[COARSE_TEAM]
                [1 << COARSE_CLASSES]; /* microbatches of so many teams of a set of classes */
    int32_t n_teams;
    const struct coarse_template *team[COARSE_TEAM];
    int64_t tail_ns; /* of the current teams together */
};

/* --- shares --- */

/* Microbatches of one replica within T; 0: not even one. */
static int64_t within(const struct combining *m, const struct coarse_template *t, int64_t ns)
{
    int64_t rest = ns - t->fill_ns - m->tail_ns;
    return rest < 0 ? 0 : rest / t->pace_ns + 1;
}

static int64_t all_within(const struct combining *m, int64_t ns)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < m->n_teams; i++) {
        int64_t each = within(m, m->team[i], ns);
        if (!each) return 0; /* every replica takes part */
        sum += each * m->team[i]->replicas;
    }
    return sum;
}

/* The time of the worst candidate that may be kept. */
static int64_t kept_limit(const struct coarse *q)
{
    const struct coarse_offer *o = q->offer;
    int64_t most = q->most_ns ? q->most_ns : INT64_MAX;
    return o->n_kept < COARSE_KEPT ? most : units_min(most, o->kept[COARSE_KEPT - 1].estimate_ns);
}

/* Whether the teams may take the batch in less time than the worst candidate kept, with the least tail of each. */
static bool may_be_kept(struct combining *m, int64_t batch)
{
    int64_t most = kept_limit(m->q);
    m->tail_ns = 0;
    for (int32_t i = 0; i < m->n_teams; i++)
        m->tail_ns = units_max(m->tail_ns, m->team[i]->tail_ns);
    return most == INT64_MAX || all_within(m, most) >= batch;
}

/* The least time in which the teams take the batch together. */
static void share(struct combining *m)
{
    struct coarse *q = m->q;
    int64_t batch = q->spaces[q->size].microbatches, low = 0, high = 0;
    int32_t replicas = 0;
    struct coarse_candidate c = {.size = q->size, .n_teams = m->n_teams};
    for (int32_t i = 0; i < m->n_teams; i++) {
        const struct coarse_template *t = m->team[i];
        replicas += t->replicas;
        high = units_max(high, t->fill_ns + (batch / t->replicas + 1) * t->pace_ns);
    }
    if (replicas > batch || !may_be_kept(m, batch)) return;
    m->tail_ns = coarse_tail_ns(q, m->team, m->n_teams, replicas);
    high += m->tail_ns;
    if (kept_limit(q) < high) { /* whether it can be kept at all */
        high = kept_limit(q);
        if (all_within(m, high) < batch) return;
    }
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (all_within(m, middle) >= batch)
            high = middle;
        else
            low = middle + 1;
    }
    int64_t over = all_within(m, high) - batch;
    for (int32_t i = 0; i < m->n_teams; i++) {
        int64_t all = within(m, m->team[i], high) * m->team[i]->replicas,
                less = units_min(over, all - m->team[i]->replicas);
        over -= less;
        c.team[i] = m->team[i], c.share[i] = (int32_t)(all - less);
    }
    c.estimate_ns = high;
    c.apart = q->task->job->model.measured && m->team[0]->zero;
    if (over == 0) coarse_offer_keep(q->offer, &c);
}

/* The degree of all stages; 0: stages differ. */
static int32_t only_degree(const struct coarse *q, const struct coarse_template *t)
{
    int32_t n = 0;
    for (int32_t i = 0; i < t->n_stages; i++) {
        int32_t here = q->classes[t->stages[i].of].degree[t->stages[i].degree].n;
        if (i && here != n) return 0;
        n = here;
    }
    return n;
}

/* All teams have one ZeRO level, and with ZeRO a layer's parameters have the same shards everywhere. */
static bool may_join(const struct combining *m, const struct coarse_template *t)
{
    const struct coarse_template *first = m->team[0];
    if (first->zero != t->zero) return false;
    int32_t n = t->zero ? only_degree(m->q, t) : 1;
    return n && (!t->zero || n == only_degree(m->q, first));
}

static int compare(double x, double y) { return (x > y) - (x < y); }

/* Templates of one set of classes together, those that take most microbatches first. */
static int by_classes(const void *x, const void *y)
{
    const struct counted *a = x, *b = y;
    const struct coarse_template *t = a->of, *u = b->of;
    if (t->classes != u->classes) return t->classes > u->classes ? -1 : 1;
    if (a->most != b->most) return a->most > b->most ? -1 : 1;
    int by =
        compare((double)u->replicas / (double)u->pace_ns, (double)t->replicas / (double)t->pace_ns);
    if (by) return by;
    if (t->fill_ns != u->fill_ns) return t->fill_ns < u->fill_ns ? -1 : 1;
    return t < u ? -1 : t > u;
}

/* The time of the worst candidate that would be tried. */
static int64_t limit_of(const struct coarse *q)
{
    int64_t most = kept_limit(q);
    const struct coarse_offer *o = q->offer;
    return o->n_kept ? units_min(most, o->kept[0].estimate_ns / 100 * COARSE_FAR) : most;
}

/* The least tail of a team beside any others: their rings are no faster, and with ZeRO their updates are shorter. */
static int64_t least_tail(const struct coarse *q, const struct coarse_template *t)
{
    int64_t update = 0;
    for (int32_t i = 0; i < t->n_stages && t->zero; i++)
        update = units_max(update, t->stages[i].update_ns / t->replicas / t->stages[i].copies);
    return coarse_tail_ns(q, &t, 1, t->replicas) - update;
}

/* Microbatches that each template takes within the limit, and the most that so many teams of a set of classes take. */
static void find_most(struct combining *m)
{
    int64_t limit = limit_of(m->q), batch = m->q->spaces[m->q->size].microbatches;
    uint32_t all = (1U << m->q->n_classes) - 1;
    memset(m->most, 0, sizeof m->most);
    for (int32_t i = 0; i < m->n; i++) {
        struct counted *x = &m->order[i];
        x->of = &m->templates[i], x->most = batch;
        m->tail_ns = x->of->tail_ns;
        if (limit < INT64_MAX)
            x->most = units_min(batch, x->of->replicas * units_min(batch, within(m, x->of, limit)));
        m->most[1][x->of->classes] = units_max(m->most[1][x->of->classes], x->most);
    }
    qsort(m->order, (size_t)m->n, sizeof *m->order, by_classes);
    for (int32_t k = 1; k < COARSE_TEAM; k++)
        for (uint32_t set = 1; set <= all; set++)
            for (uint32_t one = set; one; one = (one - 1) & set) {
                int64_t sum = m->most[1][one] + (k > 1 ? m->most[k - 1][set & ~one] : 0);
                m->most[k][set] = units_max(m->most[k][set], sum);
            }
}

/* A stop counts from the first candidate on, so that there is a plan. */
static bool is_over(struct combining *m)
{
    return m->left <= 0 || (m->q->offer->n_kept && search_context_stopped(m->q->t));
}

/* All sets of so many more teams that may take the batch within the limit. sum: what those so far take at most. */
static void add_teams(struct combining *m, int32_t from, uint32_t used, int64_t sum, int32_t teams)
{
    uint32_t all = (1U << m->q->n_classes) - 1;
    int64_t batch = m->q->spaces[m->q->size].microbatches;
    for (int32_t i = from, next; i < m->n && !is_over(m); i = next) {
        uint32_t here = m->order[i].of->classes;
        for (next = i; next < m->n && m->order[next].of->classes == here;) next++;
        int64_t more = teams > 1 ? m->most[teams - 1][all & ~(used | here)] : 0;
        if (here & used || (teams > 1 && !more)) continue;
        for (int32_t k = i; k < next && !is_over(m) && sum + m->order[k].most + more >= batch;
             k++) {
            if (m->n_teams && !may_join(m, m->order[k].of)) continue;
            m->team[m->n_teams++] = m->order[k].of, m->left--;
            if (teams == 1)
                share(m);
            else
                add_teams(m, next, used | here, sum + m->order[k].most, teams - 1);
            m->n_teams--;
        }
    }
}

/* --- teams --- */

static double speed_of(const struct coarse *q, uint32_t classes, int32_t replicas)
{
    double sum = 0;
    for (int32_t k = 0; k < q->n_classes; k++)
        if (classes >> k & 1)
            sum += q->classes[k].speed *
                   (replicas ? q->classes[k].n / replicas * replicas : q->classes[k].n);
    return sum;
}

static bool takes_part(const struct coarse *q, uint32_t classes, int32_t replicas)
{
    for (int32_t k = 0; k < q->n_classes; k++)
        if ((classes >> k & 1) && q->classes[k].n < replicas) return false;
    return true;
}

/* GPUs of a class in a replica: every number up to two nodes of 8, then eight numbers to each doubling. */
static int32_t next_number(int32_t each)
{
    int32_t step = 1;
    while (each >= 16 * step) step *= 2;
    return each + step;
}

/* Whether a class of the set gives a replica fewer GPUs than it could. */
static bool gives_fewer(const struct coarse *q, uint32_t classes, int32_t replicas,
                        const int32_t *whole)
{
    for (int32_t k = 0; k < q->n_classes; k++)
        if ((classes >> k & 1) && q->classes[k].n / replicas != whole[k] / replicas) return true;
    return false;
}

/* What a team of so many replicas must do so that it takes the batch within the limit beside teams of all other classes. */
static struct coarse_need need_of(const struct combining *m, uint32_t classes, int32_t replicas)
{
    const struct coarse *q = m->q;
    int64_t limit = limit_of(q);
    uint32_t others = ((1U << q->n_classes) - 1) & ~classes;
    double rest = m->rate[others] * (double)limit;
    return (struct coarse_need){limit, (q->spaces[q->size].microbatches - rest) / replicas - 1};
}

/* The candidates of one team, at once: they limit the templates of other teams. */
static void share_alone(struct combining *m, const struct coarse_template *t)
{
    m->team[0] = t, m->n_teams = 1;
    share(m);
    m->n_teams = 0;
}

/* Descending, each once. */
static int32_t add_number(int32_t *numbers, int32_t n, int32_t replicas)
{
    int32_t at = n;
    for (int32_t i = 0; i < n; i++)
        if (numbers[i] == replicas) return n;
    if (n == COARSE_REPLICAS) return n;
    for (; at > 0 && numbers[at - 1] < replicas; at--) numbers[at] = numbers[at - 1];
    numbers[at] = replicas;
    return n + 1;
}

/* Numbers of replicas that give each of them as many GPUs of some class as it could have: with others, GPUs of every class would be idle.
 * (n), descending. */
static int32_t numbers_of_replicas(const struct coarse *q, uint32_t classes, const int32_t *whole,
                                   int32_t *out)
{
    int32_t n = 0, most = q->spaces[q->size].microbatches;
    bool idle = gives_fewer(q, classes, 1, whole);
    for (int32_t k = 0; k < q->n_classes; k++)
        for (int32_t each = 1; (classes >> k & 1) && each <= q->classes[k].n;
             each = next_number(each)) {
            int32_t replicas = q->classes[k].n / each;
            if (replicas > most || !takes_part(q, classes, replicas)) continue;
            if (speed_of(q, classes, replicas) < USED_LEAST * speed_of(q, classes, 0)) continue;
            if (!idle || gives_fewer(q, classes, replicas, whole)) n = add_number(out, n, replicas);
        }
    return n;
}

/* Templates for all useful numbers of replicas. whole: GPUs of the classes, of which some may be left idle. */
static void add_team(struct combining *m, uint32_t classes, const int32_t *whole)
{
    struct coarse *q = m->q;
    bool idle = gives_fewer(q, classes, 1, whole);
    int32_t tried[COARSE_REPLICAS], n = numbers_of_replicas(q, classes, whole, tried);
    bool any_order = !idle && !q->offer->n && q->task->job->model.measured;
    for (int32_t i = 0; i < n && !search_context_stopped(q->t); i++) {
        struct coarse_template out[COARSE_TEMPLATE_LISTS * COARSE_ALIKE];
        int32_t found = coarse_templates(q, classes, tried[i], COARSE_ALIKE, any_order,
                                         need_of(m, classes, tried[i]), out);
        for (int32_t k = 0; k < found; k++) {
            m->templates =
                arena_grow(q->templates, m->templates, (size_t)m->n, &m->capacity, sizeof *out);
            out[k].idle = idle, out[k].tail_ns = least_tail(q, &out[k]);
            m->templates[m->n++] = out[k];
            double rate = (double)out[k].replicas / (double)out[k].pace_ns;
            if (rate > m->made[classes]) m->made[classes] = rate;
            share_alone(m, arena_copy(q->templates, &out[k], sizeof *out));
        }
    }
}

/* Also with a part of one class idle: a node of it, all but a power of two, or any number of as few as a search lists all sets of. Of more GPUs than a stage may have, another number of replicas uses
 * them better. */
static void add_teams_of(struct combining *m, uint32_t classes)
{
    struct coarse *q = m->q;
    int32_t whole[COARSE_CLASSES];
    for (int32_t k = 0; k < q->n_classes; k++) whole[k] = q->classes[k].n;
    add_team(m, classes, whole);
    for (int32_t k = 0; k < q->n_classes; k++) {
        int32_t *n = &q->classes[k].n;
        if (!(classes >> k & 1) || whole[k] > COARSE_GPUS) continue;
        for (*n = whole[k] - 1; *n > 0; --*n)
            if (whole[k] <= SEARCH_DEVICES_MAX || *n == whole[k] - q->classes[k].per_node || !(*n & (*n - 1)))
                add_team(m, classes, whole);
        *n = whole[k];
    }
}

static int32_t count(uint32_t set)
{
    int32_t n = 0;
    for (; set; set &= set - 1) n++;
    return n;
}

/* The templates of the kept candidates of the current size remain; all others are dropped. */
static void keep_templates(struct coarse *q)
{
    for (int32_t i = 0; i < q->offer->n_kept; i++) {
        struct coarse_candidate *c = &q->offer->kept[i];
        for (int32_t k = 0; k < c->n_teams && c->size == q->size; k++) {
            struct coarse_template *t = arena_copy(q->arena, c->team[k], sizeof *t);
            t->stages = arena_copy(q->arena, t->stages, (size_t)t->n_stages * sizeof *t->stages);
            c->team[k] = t;
        }
    }
}

/* Microbatches a nanosecond of a class, in its best degree (only: of so many GPUs; 0: any) and without waits; 0: no degree is usable. */
static double class_rate(const struct space *s, const struct coarse_class *x, int32_t only)
{
    double best = 0;
    for (int32_t i = 0; i < x->n_degrees; i++) {
        const struct coarse_degree *d = &x->degree[i];
        if (!d->usable || (only && d->n != only)) continue;
        const struct stage_cost *c = space_stage_type(s, d->type, 0, s->n_layers - 1);
        double ns = (double)(c->forward_ns + c->input_ns + c->weight_ns + 1),
               rate = coarse_class_groups(x, d->n) / ns;
        if (rate > best) best = rate;
    }
    return best;
}

/* Sets m->rate: a team has the rate of its best template, before they are made that of its classes. O(3^classes). */
static void set_rates(struct combining *m)
{
    const struct coarse *q = m->q;
    uint32_t all = (1U << q->n_classes) - 1;
    double own[1 << COARSE_CLASSES] = {0};
    for (uint32_t set = 1; set <= all; set++) {
        int32_t k = 0;
        while (!(set >> k & 1)) k++;
        own[set] = own[set & (set - 1)] + m->ideal[k];
        m->rate[set] = m->rate[set & (set - 1)];
        for (uint32_t one = set; one; one = (one - 1) & set) {
            if (one != all && count(one) > COARSE_TEAM) continue;
            double here = (m->made[one] < 0 ? own[one] : m->made[one]) + m->rate[set & ~one];
            if (here > m->rate[set]) m->rate[set] = here;
        }
    }
}

static void add_templates(struct combining *m, uint32_t classes)
{
    set_rates(m);
    add_teams_of(m, classes);
    if (m->made[classes] < 0) m->made[classes] = 0;
}

/* The templates of all classes first, because their candidates limit those of others; then small sets, which limit what others are of use
 * beside. */
static void add_all_templates(struct combining *m)
{
    const struct coarse *q = m->q;
    uint32_t all = (1U << q->n_classes) - 1;
    if (!all) return;
    for (uint32_t set = 0; set <= all; set++) m->made[set] = -1;
    for (int32_t k = 0; k < q->n_classes; k++)
        m->ideal[k] = class_rate(&q->spaces[q->size], &q->classes[k], q->offer->n);
    add_templates(m, all);
    for (int32_t n = 1; n <= COARSE_TEAM; n++)
        for (uint32_t set = all - 1; set; set--)
            if (count(set) == n) add_templates(m, set);
}

void coarse_combine(struct coarse *q)
{
    struct combining m = {.q = q, .left = COMBINATIONS};
    arena_reset(q->templates);
    add_all_templates(&m);
    m.order = ARENA_ARRAY(q->templates, struct counted, (size_t)m.n + 1);
    for (int32_t teams = 2; teams <= COARSE_TEAM; teams++) {
        find_most(&m);
        add_teams(&m, 0, 0, 0, teams);
    }
    q->sets_made += COMBINATIONS - m.left;
    keep_templates(q);
}

int64_t coarse_least_ns(const struct coarse *q, const int32_t *count)
{
    double least = INFINITY;
    for (int32_t i = 0; i < q->task->n_sizes; i++) {
        double rate = 0;
        for (int32_t k = 0; k < q->n_classes && q->at_size[i]; k++) {
            struct coarse_class part = q->at_size[i][k];
            part.n = count[k];
            rate += class_rate(&q->spaces[i], &part, 0);
        }
        if (rate > 0) least = fmin(least, q->spaces[i].microbatches / rate);
    }
    return least < 9e18 ? (int64_t)least : INT64_MAX;
}
