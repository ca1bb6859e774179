/* planner/multi_device/small.c - evaluation of plans, and local search with small moves. */
#include "core/base/arena.h"
#include "planner/multi_device/internal.h"
#include "planner/multi_device/moves.h"
#include "planner/schedule/refine.h"

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

/* Whether it was made to fit by recomputation, or not at all. */
static bool is_tight(const struct multi_device_point *y)
{
    bool tight = y->x.iteration_ns == INT64_MAX;
    for (int32_t r = 0; r < y->x.plan.n_replicas; r++)
        for (int32_t i = 0; i < y->x.plan.replicas[r].n_stages; i++)
            tight |= y->x.plan.replicas[r].stages[i].recompute != RECOMPUTE_NONE;
    return tight;
}

static bool may_shard_state(const struct plan *p)
{
    bool several = p->n_replicas > 1;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            if (p->replicas[r].stages[i].zero) return false;
            several |= p->replicas[r].stages[i].n_shards > 1;
        }
    return several;
}

static bool has_pipeline(const struct plan *p)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        if (p->replicas[r].n_stages > 1) return true;
    return false;
}

/* The plan with warm-up counts that hide messages. What lacks memory is also tried with ZeRO 1, which costs less than recomputation, because
 * a reduce-scatter and an all-gather move the bytes of an all-reduce, and then with the default warm-up counts. */
static enum status score(struct multi_device *c, const struct space *s, const struct plan *plain,
                         struct multi_device_point *y, struct error *err)
{
    bool zero = may_shard_state(plain), ahead = has_pipeline(plain);
    for (int k = 0; k < 4 && !multi_device_over(c) && is_tight(y); k++) {
        struct multi_device_point x = *y;
        bool warm = k < 2, sharded = k % 2;
        if ((sharded && !zero) || (!warm && !ahead)) continue;
        x.x.plan = scorer_copy_plan(c->arena, plain);
        if (warm) refine_warmups(s, &x.x.plan, 0);
        for (int32_t r = 0; r < plain->n_replicas && sharded; r++)
            for (int32_t i = 0; i < plain->replicas[r].n_stages; i++)
                x.x.plan.replicas[r].stages[i].zero = 1;
        c->left--;
        TRY(search_context_score(c->t, s, &x.x.plan, &x.x.iteration_ns, err));
        if (y->x.iteration_ns == INT64_MAX || x.x.iteration_ns < y->x.iteration_ns) *y = x;
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
    TRY(score(c, s, p, y, err));
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
