/* planner/multi_device/small.c - evaluation of plans, and local search with small moves. */
#include "core/base/arena.h"
#include "planner/multi_device/internal.h"
#include "planner/multi_device/moves.h"

bool multi_device_many(const struct multi_device *c)
{
    return c->spaces[0].n_devices > SPACE_DEVICES_MAX;
}

bool multi_device_over(const struct multi_device *c)
{
    return c->left <= 0 || c->looks <= 0 || search_context_over(c->t);
}

/* Lower bound: some device alone is busy for at least the best plan's iteration. */
static bool is_hopeless(const struct multi_device *c, const struct space *s, const struct plan *p,
                        const struct search_plan *best)
{
    if (c->t->o->objective == OBJECTIVE_COST || !incumbents_inside(&c->t->incumbents, best))
        return false;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            if (p->replicas[r].microbatches * multi_device_stage_ns(s, &p->replicas[r].stages[i]) >=
                best->iteration_ns)
                return true;
    return false;
}

enum status multi_device_graphs(struct arena *a, const struct lower_options *o, struct space *s,
                                const struct plan *p, struct error *err)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            const struct plan_stage *x = &p->replicas[r].stages[i];
            for (int32_t k = 0; k < x->n_shards && x->sequences; k++) {
                const struct graph *g;
                TRY(lower_graphs_need(a, &s->graphs, s->job, o, x->sequences[k], &g, err));
            }
        }
    return OK;
}

enum status multi_device_try(struct multi_device *c, struct plan *p, int32_t space,
                             const struct search_plan *best, struct multi_device_point *y,
                             struct error *err)
{
    struct space *s = &c->spaces[space];
    *y = (struct multi_device_point){.x = {.iteration_ns = INT64_MAX}, .space = space};
    if (multi_device_over(c) || is_hopeless(c, s, p, best) || !plan_set_add(&c->seen, p))
        return OK;
    TRY(multi_device_graphs(c->arena, c->t->lower, s, p, err));
    c->left--;
    TRY(search_context_score(c->t, s, p, &y->x.iteration_ns, err));
    y->x.plan = *p;
    if (y->x.iteration_ns < INT64_MAX) y->x.cost = plan_cost(p, y->x.iteration_ns);
    return OK;
}

struct plan multi_device_copy(struct multi_device *c, const struct plan *p)
{
    struct plan copy = scorer_copy_plan(c->arena, p);
    c->looks--;
    multi_device_plain(&copy);
    return copy;
}

/* --- small moves --- */

struct small {
    struct multi_device *c;
    struct multi_device_point *at;
    int64_t left;
    bool better;
};

static enum status take_if_better(struct small *x, struct plan *p, struct error *err)
{
    struct multi_device_point y;
    x->better = false;
    if (x->left <= 0) return OK;
    int64_t before = x->c->left;
    TRY(multi_device_try(x->c, p, x->at->space, &x->at->x, &y, err));
    x->left -= before - x->c->left;
    if (y.x.iteration_ns == INT64_MAX || !incumbents_better(&x->c->t->incumbents, &y.x, &x->at->x))
        return OK;
    *x->at = y;
    x->better = true;
    return OK;
}

static enum status shift_layers(struct small *x, bool *any, struct error *err)
{
    static const int32_t steps[] = {1, -1, 3, -3};
    for (int32_t r = 0; r < x->at->x.plan.n_replicas; r++)
        for (int32_t i = 0; i + 1 < x->at->x.plan.replicas[r].n_stages; i++)
            for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
                struct plan p = multi_device_copy(x->c, &x->at->x.plan);
                if (!multi_device_shift(&x->c->spaces[x->at->space], &p, r, i, steps[k])) continue;
                TRY(take_if_better(x, &p, err));
                if (x->better) *any = true, k--; /* an equal move */
            }
    return OK;
}

static enum status pass_sequences(struct small *x, bool *any, struct error *err)
{
    for (int32_t r = 0; r < x->at->x.plan.n_replicas; r++)
        for (int32_t i = 0; i < x->at->x.plan.replicas[r].n_stages; i++)
            for (int32_t k = 0; k < x->at->x.plan.replicas[r].stages[i].n_shards; k++)
                for (int32_t l = 0; l < x->at->x.plan.replicas[r].stages[i].n_shards; l++) {
                    struct plan p = multi_device_copy(x->c, &x->at->x.plan);
                    if (!multi_device_pass(&p, r, i, k, l)) continue;
                    TRY(take_if_better(x, &p, err));
                    if (x->better) *any = true, l--;
                }
    return OK;
}

static enum status share_microbatches(struct small *x, bool *any, struct error *err)
{
    for (int32_t r = 0; r < x->at->x.plan.n_replicas; r++)
        for (int32_t q = 0; q < x->at->x.plan.n_replicas; q++) {
            struct plan p = multi_device_copy(x->c, &x->at->x.plan);
            if (!multi_device_share(&p, r, q)) continue;
            TRY(take_if_better(x, &p, err));
            if (x->better) *any = true, q--;
        }
    return OK;
}

enum status multi_device_local_search_small(struct multi_device *c, struct multi_device_point *at,
                                            int64_t most, struct error *err)
{
    struct small x = {c, at, most, false};
    bool any = true;
    while (any && x.left > 0 && !multi_device_over(c)) {
        any = false;
        TRY(shift_layers(&x, &any, err));
        TRY(pass_sequences(&x, &any, err));
        TRY(share_microbatches(&x, &any, err));
    }
    return OK;
}
