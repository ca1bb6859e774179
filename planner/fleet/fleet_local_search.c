#include "planner/fleet/fleet_local_search.h"

#include "core/base/arena.h"
#include "planner/candidate/group.h"
#include "planner/fleet/replica_order.h"
#include "planner/schedule/refine.h"

#include <string.h>

enum { SMALL_PARTS = 8 }; /* small buckets: an 8th of a stage's parameters, the least of try_buckets */

struct improvement {
    struct search_context *q;
    const struct space *s;
    struct arena *arena; /* hashes of plans tried */
    struct plan *plan;
    int64_t *iteration_ns;
    int64_t left; /* simulations */
    struct fleet_local_search_score score;
    bool better; /* whether the last candidate improved */
    bool tight;  /* or did not fit, or only with more recomputation */
    int32_t n_groups;
    int32_t *group; /* (n_replicas) groups of equal replicas */
};

static bool over(struct improvement *x) { return x->left <= 0 || search_context_over(x->q); }

static struct plan copy_of(struct improvement *x) { return scorer_copy_plan(x->arena, x->plan); }

/* p: of as many replicas and stages as `than`. */
static bool recomputes_more(const struct plan *p, const struct plan *than)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            if (p->replicas[r].stages[i].recompute != RECOMPUTE_NONE &&
                than->replicas[r].stages[i].recompute == RECOMPUTE_NONE)
                return true;
    return false;
}

static enum status score_variant(struct improvement *x, struct plan *p, struct error *err)
{
    int64_t ns = INT64_MAX;
    x->better = x->tight = false;
    if (over(x)) return OK;
    x->left--;
    if (x->score.of_plan) {
        TRY(x->score.of_plan(x->score.of, p, &ns, err));
    } else {
        TRY(search_context_score(x->q, x->s, p, &ns, err));
        if (ns < INT64_MAX) incumbents_add(&x->q->incumbents, p, ns); /* may improve again */
    }
    x->tight = ns == INT64_MAX || recomputes_more(p, x->plan);
    if (ns >= *x->iteration_ns) return OK;
    *x->plan = *p;
    *x->iteration_ns = ns;
    x->better = true;
    return OK;
}

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

static void find_groups(struct improvement *x)
{
    const struct plan *p = x->plan;
    x->group = ARENA_ARRAY(x->arena, int32_t, (size_t)p->n_replicas);
    x->n_groups = 0;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        int32_t o = 0;
        while (o < r && !same_devices(p, &p->replicas[o], &p->replicas[r])) o++;
        x->group[r] = o < r ? x->group[o] : x->n_groups++;
    }
}

/* One n-th of each stage's parameters; false: the plan has no sums that overlap. */
static bool set_buckets(struct improvement *x, struct plan *p, int64_t parts)
{
    if (p->n_replicas < 2 || space_awaits(x->s)) return false;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            struct plan_stage *y = &p->replicas[r].stages[i];
            int64_t bytes = group_stage(x->s, y)->parameter_bytes;
            y->bucket_bytes = bytes / parts > 65536 ? bytes / parts : 65536;
        }
    return true;
}

static enum status try_buckets(struct improvement *x, struct error *err)
{
    static const int64_t parts[] = {4, 2, 8};
    for (size_t k = 0; k < sizeof parts / sizeof *parts && !over(x); k++) {
        struct plan p = copy_of(x);
        if (!set_buckets(x, &p, parts[k])) return OK;
        TRY(score_variant(x, &p, err));
    }
    return OK;
}

static enum status try_warmups(struct improvement *x, struct error *err)
{
    for (int rule = 0; rule < REFINE_WARMUPS && !over(x); rule++) {
        struct plan p = copy_of(x);
        refine_warmups(x->s, &p, rule);
        TRY(score_variant(x, &p, err));
    }
    return OK;
}

/* The plan with schedule k in the replicas of a group; group -1: in all. false: there is none. */
static bool schedule_of(struct improvement *x, int32_t group, int32_t k, struct plan *out)
{
    bool set = true;
    *out = copy_of(x);
    for (int32_t r = 0; r < out->n_replicas; r++)
        if (group < 0 || x->group[r] == group) set &= replica_order_set(&out->replicas[r], k);
    return set;
}

/* Schedules of the replicas of a group; group -1: of all. They divide the backward, so measured layers have none. What does not fit, or only with
 * recomputation, is tried with small buckets, because a sum of all gradients at once needs a copy of them. */
static enum status try_schedules(struct improvement *x, int32_t group, struct error *err)
{
    bool more = !x->s->job->model.measured;
    for (int k = 1; more && !over(x); k++) {
        struct plan p;
        if (!schedule_of(x, group, k, &p)) return OK;
        TRY(score_variant(x, &p, err));
        if (x->better || !x->tight || !schedule_of(x, group, k, &p)) continue;
        if (set_buckets(x, &p, SMALL_PARTS)) TRY(score_variant(x, &p, err));
    }
    return OK;
}

/* Moves one layer in every replica of the group from stage i to its neighbour; up: 1 to the stage before, -1 to the one
 * after. */
static bool move_layer(struct improvement *x, struct plan *p, int32_t group, int32_t i, int32_t up)
{
    for (int32_t r = 0; r < p->n_replicas; r++) {
        if (x->group[r] != group) continue;
        struct plan_stage *a = &p->replicas[r].stages[i], *b = a + 1;
        struct plan_stage *gives = up > 0 ? b : a;
        if (gives->first_layer == gives->last_layer) return false;
        a->last_layer += up, b->first_layer += up;
    }
    return true;
}

static enum status try_layers(struct improvement *x, struct error *err)
{
    for (int32_t g = 0; g < x->n_groups; g++) {
        int32_t r = 0;
        while (x->group[r] != g) r++;
        for (int32_t i = 0; i + 1 < x->plan->replicas[r].n_stages; i++)
            for (int32_t up = 1; up >= -1 && !over(x); up -= 2) {
                struct plan p = copy_of(x);
                if (!move_layer(x, &p, g, i, up)) continue;
                TRY(score_variant(x, &p, err));
                if (x->better) up += 2; /* an equal candidate */
            }
    }
    return OK;
}

/* Moves one microbatch from each replica of a group to another group, evenly distributed. */
static bool move_shares(struct improvement *x, struct plan *p, int32_t from, int32_t to)
{
    int32_t moved = 0;
    for (int32_t r = 0; r < p->n_replicas; r++)
        if (x->group[r] == from && p->replicas[r].microbatches > 1)
            p->replicas[r].microbatches--, moved++;
    if (!moved) return false;
    while (moved)
        for (int32_t r = 0; r < p->n_replicas && moved; r++)
            if (x->group[r] == to) p->replicas[r].microbatches++, moved--;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            if (p->replicas[r].stages[i].warmup > p->replicas[r].microbatches)
                p->replicas[r].stages[i].warmup = p->replicas[r].microbatches;
    return true;
}

static enum status try_shares(struct improvement *x, struct error *err)
{
    for (int32_t from = 0; from < x->n_groups; from++)
        for (int32_t to = 0; to < x->n_groups && !over(x); to++) {
            struct plan p = copy_of(x);
            if (from == to || !move_shares(x, &p, from, to)) continue;
            TRY(score_variant(x, &p, err));
            if (x->better) to--;
        }
    return OK;
}

enum status fleet_local_search_plan(struct search_context *q, const struct space *s,
                                    struct plan *plan, int64_t *iteration_ns, int64_t evaluations,
                                    struct fleet_local_search_score score, struct error *err)
{
    struct arena *a = arena_new();
    struct plan best = scorer_copy_plan(a, plan);
    struct improvement x = {.q = q,
                            .s = s,
                            .arena = a,
                            .plan = &best,
                            .iteration_ns = iteration_ns,
                            .left = evaluations,
                            .score = score};
    int64_t before;
    enum status st = OK;
    do {
        before = *iteration_ns;
        find_groups(&x);
        st = try_buckets(&x, err);
        if (st == OK && x.score.of_plan) st = try_schedules(&x, -1, err);
        if (st == OK) st = try_warmups(&x, err);
        if (st == OK) st = try_shares(&x, err);
        if (st == OK) st = try_layers(&x, err);
    } while (st == OK && *iteration_ns < before && !over(&x));
    *plan = scorer_copy_plan(q->arena, &best);
    arena_free(a);
    return st;
}
