#include "planner/local_search/local_search.h"

#include "core/base/arena.h"
#include "planner/candidate/group.h"
#include "planner/local_search/internal.h"
#include "planner/local_search/stage_moves.h"

/* --- groups of replicas --- */

static bool same_devices(const struct plan *p, const struct plan_replica *a,
                         const struct plan_replica *b)
{
    if (a->n_stages != b->n_stages) return false;
    for (int32_t i = 0; i < a->n_stages; i++) {
        const struct plan_stage *x = &a->stages[i], *y = &b->stages[i];
        if (x->last_layer != y->last_layer || x->n_shards != y->n_shards ||
            !x->sharding != !y->sharding)
            return false;
        if (x->sharding && !sharding_equal(x->sharding, y->sharding)) return false;
        for (int32_t k = 0; k < plan_stage_devices(x); k++)
            if (p->cluster.devices[plan_stage_device(x, k)].type !=
                    p->cluster.devices[plan_stage_device(y, k)].type ||
                (x->sequences && y->sequences && x->sequences[k] != y->sequences[k]))
                return false;
    }
    return true;
}

static void find_groups(struct local_search *x)
{
    const struct plan *p = &x->plan;
    x->group = ARENA_ARRAY(x->arena, int32_t, (size_t)p->n_replicas);
    x->example = ARENA_ARRAY(x->arena, int32_t, (size_t)p->n_replicas);
    x->n_groups = 0;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        int32_t g = 0;
        while (g < x->n_groups && !same_devices(p, &p->replicas[x->example[g]], &p->replicas[r])) g++;
        if (g == x->n_groups) x->example[x->n_groups++] = r;
        x->group[r] = g;
    }
}

/* --- variants --- */

struct batch {
    int32_t n, variant[LOCAL_SEARCH_BATCH], size[LOCAL_SEARCH_BATCH];
    struct plan plan[LOCAL_SEARCH_BATCH];
    int64_t ns[LOCAL_SEARCH_BATCH];
};

/* Plans that may be scored at once. */
static int32_t room(const struct local_search *x)
{
    const struct search_context *t = x->task->t;
    if (!x->task->each_ns || !t->work_end) return LOCAL_SEARCH_BATCH;
    int64_t n = (t->work_end - scorer_work(t->scorer)) / x->task->each_ns;
    return n < LOCAL_SEARCH_BATCH ? (int32_t)n : LOCAL_SEARCH_BATCH;
}

static bool over(struct local_search *x)
{
    return x->left <= 0 || search_context_over(x->task->t) || room(x) < 1;
}

/* Whether the objective is not the time. */
static bool by_cost(const struct local_search *x)
{
    const struct search_options *o = x->task->t->o;
    return x->task->stages &&
           (o->objective != OBJECTIVE_TIME || o->min_rate > 0 || o->max_cost > 0);
}

static bool is_better(const struct local_search *x, const struct plan *p, int64_t ns,
                      const struct plan *than, int64_t than_ns)
{
    struct search_plan a = {.iteration_ns = ns}, b = {.iteration_ns = than_ns};
    if (!by_cost(x) || ns == INT64_MAX || than_ns == INT64_MAX) return ns < than_ns;
    a.cost = plan_cost(p, ns), b.cost = plan_cost(than, than_ns);
    return incumbents_better(&x->task->t->incumbents, &a, &b);
}

/* Whether a stage alone computes for as long as the best plan takes: a lower bound in every order. */
static bool is_hopeless(const struct local_search *x, const struct plan *p)
{
    if (x->s->job->model.measured || by_cost(x)) return false;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            const struct plan_stage *y = &p->replicas[r].stages[i];
            if (!y->sharding &&
                p->replicas[r].microbatches * group_stage_ns(x->s, y) >= *x->iteration_ns)
                return true;
        }
    return false;
}

/* The move at another microbatch size: of `by` steps. */
static bool make(struct local_search *x, const struct local_search_move *m, int32_t variant,
                 int32_t by, struct plan *p)
{
    const struct space *before = x->s;
    int32_t size = x->size + by;
    x->s = &x->own[size];
    bool made = m->make(x, p, variant);
    if (made && by) made = stage_moves_resize(x->arena, x->s, p) && local_search_reorder(x, p);
    made = made && !is_hopeless(x, p);
    x->s = before;
    return made;
}

/* variant: of the move, times the sizes if it is tried at all. */
static void add_variant(struct local_search *x, const struct local_search_move *m, int32_t variant,
                        struct batch *b)
{
    int32_t by = m->sizes ? variant % x->n_sizes - x->size : 0;
    struct plan p = scorer_copy_plan(x->arena, &x->plan);
    if (!make(x, m, m->sizes ? variant / x->n_sizes : variant, by, &p) ||
        !plan_set_add(x->tried, &p))
        return;
    b->size[b->n] = x->size + by;
    b->variant[b->n] = variant, b->plan[b->n++] = p;
}

/* Whether the time is as much shorter as the move requires. */
static bool is_worth(const struct local_search *x, const struct local_search_move *m, int64_t ns)
{
    return !m->least_percent || (double)ns <= (double)*x->iteration_ns * (1 - 0.01 * m->least_percent);
}

static enum status score(struct local_search *x, const struct local_search_move *m, struct batch *b, struct error *err)
{
    const struct local_search_task *k = x->task;
    const struct space *spaces[LOCAL_SEARCH_BATCH];
    x->left -= b->n;
    for (int32_t i = 0; i < b->n; i++) {
        spaces[i] = &x->own[b->size[i]];
        TRY(space_shard_graphs(x->arena, &x->own[b->size[i]], &b->plan[i], err));
    }
    if (k->score.of_plans) return k->score.of_plans(k->score.of, b->plan, spaces, b->n, b->ns, err);
    for (int32_t i = 0; i < b->n; i++) {
        TRY(search_context_score(k->t, spaces[i], &b->plan[i], &b->ns[i], err));
        if (b->ns[i] < INT64_MAX && is_worth(x, m, b->ns[i])) incumbents_add(&k->t->incumbents, &b->plan[i], b->ns[i]);
    }
    return OK;
}

/* Scores a batch and takes its best plan if it is better. *taken: its variant; -1: none. */
static enum status try_batch(struct local_search *x, const struct local_search_move *m,
                             struct batch *b, int32_t *taken, struct error *err)
{
    int32_t best = -1;
    *taken = -1;
    if (b->n > x->left) b->n = (int32_t)x->left;
    if (b->n) TRY(score(x, m, b, err));
    for (int32_t i = 0; i < b->n; i++) {
        if (is_worth(x, m, b->ns[i]) && is_better(x, &b->plan[i], b->ns[i], best < 0 ? &x->plan : &b->plan[best],
                      best < 0 ? *x->iteration_ns : b->ns[best]))
            best = i;
    }
    if (best < 0) return OK;
    x->plan = b->plan[best], *x->iteration_ns = b->ns[best], *taken = b->variant[best];
    x->size = b->size[best], x->s = &x->own[x->size], x->better = true;
    (void)plan_set_add(x->tried, &x->plan); /* as fitted */
    if (m->stages) find_groups(x);
    return OK;
}

static int32_t count(const struct local_search *x, const struct local_search_move *m)
{
    return (m->sizes ? x->n_sizes : 1) * m->count(x);
}

static enum status try_move(struct local_search *x, const struct local_search_move *m,
                            struct error *err)
{
    int32_t next = 0, again = -1;
    for (int32_t n = count(x, m); (next < n || again >= 0) && !over(x); n = count(x, m)) {
        struct batch b = {.n = 0};
        int32_t most = room(x);
        if (again >= 0) add_variant(x, m, again, &b);
        while (next < n && b.n < most) add_variant(x, m, next++, &b);
        TRY(try_batch(x, m, &b, &again, err));
        if (!m->repeats) again = -1;
    }
    return OK;
}

static enum status search(struct local_search *x, struct error *err)
{
    int32_t n;
    const struct local_search_move *m = local_search_moves(&n);
    do {
        x->better = false;
        find_groups(x);
        if (x->task->orders_only) n = LOCAL_SEARCH_ORDERS;
        for (int32_t k = 0; k < n && !over(x); k++)
            if ((x->task->stages || !m[k].stages) && !(m[k].last && x->better)) TRY(try_move(x, &m[k], err));
    } while (x->better && !x->task->orders_only && !over(x));
    return OK;
}

enum status local_search_plan(const struct local_search_task *task, struct plan *plan,
                              int64_t *iteration_ns, struct error *err)
{
    struct arena *a = arena_new();
    struct plan_set own = {.known = {.arena = a}};
    struct local_search x = {.task = task,
                             .n_sizes = task->n_sizes ? task->n_sizes : 1,
                             .arena = a,
                             .plan = scorer_copy_plan(a, plan),
                             .iteration_ns = iteration_ns,
                             .left = task->evaluations,
                             .tried = task->tried ? task->tried : &own};
    x.own = arena_copy(a, task->n_sizes ? task->sizes : task->s, (size_t)x.n_sizes * sizeof *x.own);
    while (x.own[x.size].microbatch != plan->microbatch) x.size++;
    x.s = &x.own[x.size];
    (void)plan_set_add(x.tried, &x.plan);
    enum status st = search(&x, err);
    *plan = scorer_copy_plan(task->t->arena, &x.plan);
    arena_free(a);
    return st;
}
