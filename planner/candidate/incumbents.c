#include "planner/candidate/incumbents.h"

#include "core/base/arena.h"
#include "core/base/hash_map.h"
#include "core/base/units.h"
#include "planner/candidate/scorer.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t layout_of(const struct plan *p)
{
    struct arena *scratch = arena_new();
    uint64_t *replica = ARENA_ARRAY(scratch, uint64_t, (size_t)p->n_replicas);
    for (int32_t r = 0; r < p->n_replicas; r++) {
        const struct plan_replica *x = &p->replicas[r];
        replica[r] = hash_map_key(0, &x->microbatches, sizeof x->microbatches);
        for (int32_t i = 0; i < x->n_stages; i++) {
            int32_t stage[2] = {x->stages[i].device, x->stages[i].last_layer};
            replica[r] = hash_map_key(replica[r], stage, sizeof stage);
            for (int32_t j = 0; j < x->stages[i].n_shards; j++) {
                int64_t part[2] = {x->stages[i].devices[j],
                                   x->stages[i].sequences ? x->stages[i].sequences[j] : -1};
                replica[r] = hash_map_key(replica[r], part, sizeof part);
            }
        }
    }
    qsort(replica, (size_t)p->n_replicas, sizeof *replica, by_value);
    uint64_t hash =
        hash_map_key((uint64_t)p->microbatch, replica, (size_t)p->n_replicas * sizeof *replica);
    arena_free(scratch);
    return hash;
}

void incumbents_init(struct incumbents *k, struct arena *a, int32_t most,
                     const struct search_options *o, const struct cluster *c)
{
    *k = (struct incumbents){.arena = a, .o = o, .most = most};
    k->plans = ARENA_ARRAY(a, struct search_plan, (size_t)most);
    k->layout = ARENA_ARRAY(a, uint64_t, (size_t)most);
    for (int32_t i = 0; i < c->n_devices; i++) {
        double price = c->types[c->devices[i].type].price_per_h;
        if (i == 0 || price < k->min_price_per_h) k->min_price_per_h = price;
    }
}

/* Relative violation of the limits; at most 1: inside. */
static double excess_of(const struct search_options *o, double ns, double cost)
{
    double slow = ns * 1e-9 * o->min_rate, dear = o->max_cost > 0 ? cost / o->max_cost : 0;
    return slow > dear ? slow : dear;
}

double incumbents_max_ns(const struct search_options *o)
{
    return o->min_rate > 0 ? 1e9 / o->min_rate : 0;
}

bool incumbents_by_money(const struct search_options *o)
{
    return o->objective != OBJECTIVE_TIME || o->max_cost > 0;
}

bool incumbents_inside(const struct incumbents *k, const struct search_plan *x)
{
    return excess_of(k->o, (double)x->iteration_ns, x->cost) <= 1;
}

/* What a plan on GPUs of this price must be faster than in order to precede x. */
static int64_t limit_of(const struct incumbents *k, const struct search_plan *x, double price_per_h)
{
    double excess = excess_of(k->o, (double)x->iteration_ns, x->cost), ns = INFINITY,
           cost = price_per_h / NS_PER_H, each = excess_of(k->o, 1, cost);
    if (excess > 1) {
        if (each > 0) ns = excess / each;
    } else if (k->o->objective != OBJECTIVE_COST) {
        return x->iteration_ns;
    } else if (price_per_h > 0) {
        ns = x->cost / cost;
    }
    return ns < 9e18 ? (int64_t)ns + 1 : INT64_MAX;
}

int64_t incumbents_limit(const struct incumbents *k)
{
    return k->n < k->most ? INT64_MAX : limit_of(k, &k->plans[k->n - 1], k->min_price_per_h);
}

int64_t incumbents_reach_ns(const struct incumbents *k, double price_per_h)
{
    double each = excess_of(k->o, 1, price_per_h / NS_PER_H);
    if (!k->n) return INT64_MAX;
    int64_t ns = limit_of(k, &k->plans[0], price_per_h);
    bool inside = incumbents_inside(k, &k->plans[0]) && each > 0;
    return inside && (double)ns > 1 / each ? (int64_t)(1 / each) + 1 : ns;
}

bool incumbents_better(const struct incumbents *k, const struct search_plan *x,
                       const struct search_plan *y)
{
    double a = excess_of(k->o, (double)x->iteration_ns, x->cost),
           b = excess_of(k->o, (double)y->iteration_ns, y->cost);
    if ((a > 1 || b > 1) && a != b) return a < b;
    if (k->o->objective == OBJECTIVE_COST && x->cost != y->cost) return x->cost < y->cost;
    return x->iteration_ns < y->iteration_ns;
}

static int32_t place_of(const struct incumbents *k, uint64_t layout)
{
    int32_t at = 0;
    while (at < k->n && k->layout[at] != layout) at++;
    return at;
}

void incumbents_add(struct incumbents *k, const struct plan *p, int64_t iteration_ns)
{
    struct search_plan x = {.iteration_ns = iteration_ns};
    if (k->also) incumbents_add(k->also, p, iteration_ns);
    if (iteration_ns >= incumbents_limit(k)) return;
    x.cost = plan_cost(p, iteration_ns);
    if (k->n == k->most && !incumbents_better(k, &x, &k->plans[k->n - 1])) return;
    uint64_t layout = layout_of(p);
    int32_t at = place_of(k, layout);
    if (at < k->n && !incumbents_better(k, &x, &k->plans[at])) return;
    if (at == k->n && k->n < k->most) k->n++;
    if (at == k->most) at--;
    for (; at > 0 && incumbents_better(k, &x, &k->plans[at - 1]); at--) {
        k->plans[at] = k->plans[at - 1];
        k->layout[at] = k->layout[at - 1];
    }
    x.plan = scorer_copy_plan(k->arena, p);
    x.plan.predicted_ns = iteration_ns;
    k->plans[at] = x;
    k->layout[at] = layout;
}

void incumbents_add_all(struct incumbents *k, const struct incumbents *from)
{
    for (int32_t i = 0; i < from->n; i++)
        incumbents_add(k, &from->plans[i].plan, from->plans[i].iteration_ns);
}
