/* core/plan/price.c - what a plan's GPUs cost. */
#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/plan/plan.h"

/* Whether all types that the plan uses have a price; *price: of their GPUs, per hour. */
static bool find_price(const struct plan *p, double *price)
{
    const struct cluster *c = &p->cluster;
    struct arena *scratch = arena_new();
    bool *counted = ARENA_ARRAY(scratch, bool, (size_t)c->n_devices);
    bool known = true;
    *price = 0;
    for (int32_t i = 0; i < p->servers.rule.n; i++) {
        const struct device_type *t = &c->types[c->devices[p->servers.devices[i]].type];
        known &= t->priced;
        *price += t->price_per_h;
    }
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t s = 0; s < p->replicas[r].n_stages; s++)
            for (int32_t k = 0; k < plan_stage_devices(&p->replicas[r].stages[s]); k++) {
                int32_t device = plan_stage_device(&p->replicas[r].stages[s], k);
                const struct device_type *t = &c->types[c->devices[device].type];
                if (counted[device]) continue;
                counted[device] = true;
                known &= t->priced;
                *price += t->price_per_h;
            }
    arena_free(scratch);
    return known;
}

bool plan_priced(const struct plan *p)
{
    double price;
    return find_price(p, &price);
}

double plan_price_per_h(const struct plan *p)
{
    double price;
    return find_price(p, &price) ? price : 0;
}

double plan_cost(const struct plan *p, int64_t ns)
{
    return plan_price_per_h(p) * ((double)ns / NS_PER_H);
}
