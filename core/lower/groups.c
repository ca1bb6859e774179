/* core/lower/groups.c - gradient groups: their members, buckets and order.
 *
 * A parameter use is one use of one parameter. All parameter uses of the plan have one order (layer of the
 * use, parameter, use). Consecutive uses owned by the same stages in every replica form an
 * interval: the common refinement of the replicas' cuts. The uses of an interval whose gradients the same devices add
 * (lower_shard_key: replicated parameters of a tensor-sharded stage, sharded ones) have buckets of their own, as Megatron-LM's
 * gradient buffers by data-parallel group; uses of other devices between them do not end a bucket, because every further ring
 * costs the latency of its rounds. Buckets are filled from the back of the interval, in the order in which the backward
 * completes the gradients, and closed at bucket_bytes. Groups are numbered in the order in which they are closed, tied
 * exchanges last, and every device launches its groups by ascending number, so all devices launch them in the same
 * order. Tied parameters: each use is all-reduced over the replicas first; then, inside each replica,
 * the two owners add theirs (two addends: the order does not matter), over a link or within their common device, or
 * the single owner does.
 */
#include "core/lower/groups.h"

#include "core/base/sorted.h"
#include "core/lower/cells.h"
#include "core/lower/hybrid.h"
#include "core/lower/codes.h"
#include "core/lower/factors.h"
#include "core/lower/outer.h"
#include "core/lower/param_uses.h"
#include "core/lower/scale.h"
#include "core/lower/servers.h"
#include "core/lower/shards.h"
#include "core/lower/stage_scratch.h"
#include "core/lower/zero.h"
#include "core/lower/zero_slots.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool same_owners(const struct lowering *l, int32_t param_use, int32_t other)
{
    for (int32_t r = 0; r < l->plan->n_replicas; r++)
        if (lower_param_use_owner(l, r, param_use) != lower_param_use_owner(l, r, other)) return false;
    return true;
}

/* ZeRO's buckets are exchanged whole by local SGD. */
static bool same_turn(const struct lowering *l, int32_t param_use, int32_t other)
{
    return !lower_is_local(l) || !lower_param_use_owner(l, 0, param_use)->plan->zero ||
           lower_outer_fragment(l, param_use) == lower_outer_fragment(l, other);
}

static bool same_keys(const struct lowering *l, int32_t param_use, int32_t other)
{
    const struct lower_view *before = NULL;
    for (int32_t r = 0; r < l->plan->n_replicas; r++) {
        const struct stage_build *b = lower_param_use_owner(l, r, param_use);
        if (b->v != before && !lower_shard_same_keys(b, param_use, other)) return false;
        before = b->v;
    }
    return true;
}

/* Whether two uses of the same stages may be in one group. */
static bool joins(const struct lowering *l, int32_t param_use, int32_t other)
{
    bool alike = l->groups->mixed[param_use] ? l->groups->mixed[other]
                                        : !l->groups->mixed[other] && same_keys(l, param_use, other);
    return alike &&
           lower_zero_of(l, param_use) == lower_zero_of(l, other) && !lower_zero_alone(l, param_use) &&
           !lower_zero_alone(l, other);
}

/* A single owner needs no reduction, unless its gradients are kept per microbatch and still to be added in
 * order. */
static bool needs_group(const struct lowering *l, int32_t param_use)
{
    const struct stage_build *first = lower_param_use_owner(l, 0, param_use);
    if (lower_is_served(l)) return false;
    return l->plan->n_replicas > 1 || first->n_shards > 1 || first->order->apart;
}

static int64_t interval_bucket(const struct lowering *l, int32_t param_use)
{
    int64_t least = 0;
    /* ZeRO moves instructions, so launches are not tied to the completion of ordinary groups. */
    if (!lower_zero_of(l, param_use) && lower_param_use_owner(l, 0, param_use)->plan->zero) return 0;
    for (int32_t r = 0; r < l->plan->n_replicas; r++) {
        int64_t bytes = lower_param_use_owner(l, r, param_use)->plan->bucket_bytes;
        if (bytes > 0 && (!least || bytes < least)) least = bytes;
    }
    return least;
}

/* Elements per GPU of the stage. */
static int64_t elements_on(const struct stage_build *b, int32_t param_use)
{
    return shape_elements(&b->v->g->tensors[b->v->param_uses[param_use].gradient].shape);
}

static int64_t param_use_elements(const struct lowering *l, int32_t param_use)
{
    return elements_on(lower_param_use_owner(l, 0, param_use), param_use);
}

static int64_t param_use_bytes(const struct lowering *l, int32_t param_use)
{
    const struct lower_view *v = lower_param_use_owner(l, 0, param_use)->v;
    return param_use_elements(l, param_use) * dtype_bytes(v->g->tensors[v->param_uses[param_use].gradient].dtype);
}

/* A stage of the plan, on all its devices. */
static int32_t add_members(const struct stage_build *first, struct collective *g, int32_t n)
{
    for (int32_t k = 0; k < first->n_shards; k++)
        g->members[n++] = (struct collective_member){.stage = first->index + k, .chain_ring = -1};
    return n;
}

/* The devices of the stage with a partial value of one shard; g NULL: count only. */
static int32_t add_holders(const struct stage_build *first, int32_t param_use, int32_t key,
                           struct collective *g, int32_t n)
{
    for (int32_t k = 0; k < first->n_shards; k++) {
        if (lower_shard_key(first + k, param_use) != key) continue;
        if (g) g->members[n] = (struct collective_member){.stage = first->index + k, .chain_ring = -1};
        n++;
    }
    return n;
}

int32_t lower_group_members(const struct lowering *l, int32_t island, int32_t param_use, int32_t key,
                            struct collective *g, int32_t at)
{
    for (int32_t r = 0; r < l->plan->n_replicas; r++)
        if (island < 0 || plan_island(l->plan, r) == island)
            at = add_holders(lower_param_use_owner(l, r, param_use), param_use, key, g, at);
    return at;
}

static enum status make_reduce(struct lowering *l, struct group_plan plan, int32_t island, int32_t key, const char *name, struct error *err)
{
    int32_t first = plan.uses[0], zero = plan.zero = lower_zero_of(l, first),
            n = lower_group_members(l, island, first, key, NULL, 0);
    if (!l->plan->compression.gradients.between) plan.code = lower_code(l, false);
    if (n == 1 && !l->plan->deterministic) return OK; /* already complete */
    struct collective *g = lower_group_new(
        l, name, !zero && l->plan->deterministic ? ALGORITHM_CHAIN : ALGORITHM_RING, n, plan);
    if (zero) g->kind = COLLECTIVE_REDUCE_SCATTER;
    (void)lower_group_members(l, island, first, key, g, 0);
    const struct stage_build *holder = &l->stages[g->members[0].stage];
    g->repeated = lower_outer_steps(l, holder) > 1;
    if (plan.code.kind) g->elements = n * lower_code_words(holder, &plan);
    if (plan.factor) g->elements = lower_factor_elements(l, holder, &plan);
    for (int32_t i = 0; i < plan.n_uses && !plan.code.kind && !plan.factor; i++)
        g->elements += holder->plan->sharding ? elements_on(holder, plan.uses[i])
                                              : param_use_elements(l, plan.uses[i]);
    if (zero) lower_zero_flat_params(l, l->p->n_collectives - 1);
    TRY(lower_group_choose(l, l->p->n_collectives - 1, err));
    return lower_group_join(l, l->p->n_collectives - 1, err);
}

/* One group for each island, and with local SGD one over all. */
static enum status make_reduces(struct lowering *l, struct group_plan plan, int32_t key,
                                const char *name, struct error *err)
{
    int32_t n = plan_islands(l->plan), first = l->p->n_collectives, zero = lower_zero_of(l, plan.uses[0]);
    if (zero && lower_hybrid_part(l, plan.uses[0]) > 1) return lower_hybrid_groups(l, plan, key, name, err);
    for (int32_t i = 0; i < n; i++) /* names of ZeRO's groups are part of slots' names, and stages of all islands are equal */
        TRY(make_reduce(l, plan, n > 1 ? i : -1, key, n > 1 && !zero ? arena_printf(l->a, "%s@%" PRId32, name, i) : name, err));
    if (n > 1 && zero) return lower_outer_shard_groups(l, plan, first, name, err);
    return n > 1 && plan.factor != FACTOR_RIGHT ? lower_outer_group(l, plan, key, name, err) : OK;
}

static enum status make_mixed(struct lowering *l, struct group_plan plan, const char *name,
                              struct error *err)
{
    const struct stage_build **owner =
        ARENA_ARRAY(l->tables, const struct stage_build *, (size_t)l->plan->n_replicas);
    for (int32_t r = 0; r < l->plan->n_replicas; r++)
        owner[r] = lower_param_use_owner(l, r, plan.uses[0]);
    return lower_cells(l, owner, l->plan->n_replicas, name, plan, err);
}

/* Uses of the same stages in every replica: [first, last]. */
struct interval {
    int32_t first, last, n_buckets;
};

/* A bucket that is being filled, from the last use to the first. */
struct bucket {
    int32_t n, *uses; /* (n) descending */
    size_t capacity;
    int64_t bytes;
    struct bucket *next;
};

static int32_t *ascending_uses(struct arena *a, const struct bucket *x)
{
    int32_t *uses = ARENA_ARRAY(a, int32_t, (size_t)x->n);
    for (int32_t i = 0; i < x->n; i++) uses[i] = x->uses[x->n - 1 - i];
    return uses;
}

/* One group for each shard of the parameters. */
static enum status make_shards(struct lowering *l, struct group_plan plan, const char *name, struct error *err)
{
    int32_t first = plan.uses[0], n = lower_shard_keys(lower_param_use_owner(l, 0, first), first);
    for (int32_t k = 0; k < n; k++)
        TRY(make_reduces(l, plan, k, n > 1 ? arena_printf(l->a, "%s.%" PRId32, name, k) : name, err));
    return OK;
}

/* With PowerSGD the two factors of matrices, and all else. */
static enum status make_sums(struct lowering *l, struct group_plan plan, const char *name, struct error *err)
{
    struct group_plan matrices, others;
    if (!lower_factors_split(l, &plan, &matrices, &others)) return make_shards(l, plan, name, err);
    if (others.n_uses) TRY(make_shards(l, others, name, err));
    if (!matrices.n_uses) return OK;
    matrices.factor = FACTOR_LEFT;
    TRY(make_shards(l, matrices, arena_join(l->a, name, ".left"), err));
    matrices.factor = FACTOR_RIGHT;
    return make_shards(l, matrices, arena_join(l->a, name, ".right"), err);
}

static enum status close_bucket(struct lowering *l, struct interval *in, struct bucket *x,
                                struct error *err)
{
    struct group_plan plan = {.n_uses = x->n, .uses = ascending_uses(l->tables, x)};
    const char *name = arena_printf(l->a, "grad[%" PRId32 "..%" PRId32 "]#%" PRId32, in->first,
                                    in->last, in->n_buckets++);
    int32_t first = plan.uses[0];
    plan.bucketed = interval_bucket(l, first) > 0;
    x->n = 0, x->bytes = 0;
    if (l->groups->mixed[first] && plan_islands(l->plan) > 1)
        return lower_error(l, lower_param_use_owner(l, 0, first), err, ERR_INPUT,
                           "local_sgd: parameter %s is sharded differently in some replicas; all must keep the same shards of it",
                           lower_param_use(l, first)->parameter);
    if (l->groups->mixed[first]) {
        TRY(lower_codes_check(l, lower_param_use_owner(l, 0, first), lower_param_use(l, first)->parameter,
                              "is sharded differently in some replicas", err));
        return make_mixed(l, plan, name, err);
    }
    return make_sums(l, plan, name, err);
}

/* The bucket of the uses whose gradients the same devices hold. */
static struct bucket *find_bucket(const struct lowering *l, struct bucket **all, int32_t param_use)
{
    struct bucket **at = all;
    while (*at && !joins(l, (*at)->uses[0], param_use)) at = &(*at)->next;
    if (!*at) *at = ARENA_ARRAY(l->tables, struct bucket, 1);
    return *at;
}
static bool in_layers(const struct lowering *l, const struct bucket *x)
{
    return lower_zero_of(l, x->uses[0]) > 1; /* full parameters, by default one layer each */
}

/* Of the buckets that end with this layer, or of all with the interval's first, the one that is complete first. */
static struct bucket *next_complete(const struct lowering *l, struct bucket *all, bool end)
{
    struct bucket *best = NULL;
    for (struct bucket *x = all; x; x = x->next) {
        bool closes = end || (in_layers(l, x) && x->bytes >= interval_bucket(l, x->uses[0]));
        if (x->n && closes && (!best || x->uses[x->n - 1] > best->uses[best->n - 1])) best = x;
    }
    return best;
}

static enum status make_interval(struct lowering *l, struct interval in, struct error *err)
{
    struct bucket *all = NULL, *x;
    for (int32_t u = in.last; u >= in.first; u--) {
        x = find_bucket(l, &all, u);
        x->uses = arena_grow(l->tables, x->uses, (size_t)x->n, &x->capacity, sizeof *x->uses);
        x->uses[x->n++] = u, x->bytes += param_use_bytes(l, u);
        int64_t bucket = interval_bucket(l, u);
        bool full = !in_layers(l, x) && bucket && x->bytes >= bucket;
        if (full || lower_zero_alone(l, u)) TRY(close_bucket(l, &in, x, err));
        if (u > in.first && lower_param_use(l, u - 1)->layer == lower_param_use(l, u)->layer)
            continue;
        while ((x = next_complete(l, all, u == in.first))) TRY(close_bucket(l, &in, x, err));
    }
    return OK;
}

/* Every device of both stages holds the reduced gradient of its use. The first of each stage
 * contributes, the others have zeroed theirs (core/lower/procedures.c), and all receive the sum. */
static enum status exchange_far(struct lowering *l, const char *name, struct group_plan plan,
                                const struct stage_build *a, const struct stage_build *b,
                                struct error *err)
{
    struct collective *g =
        lower_group_new(l, name, ALGORITHM_RING, a->n_shards + b->n_shards, plan);
    add_members(b, g, add_members(a, g, 0));
    g->elements = elements_on(a, plan.uses[0]);
    return lower_group_join(l, l->p->n_collectives - 1, err);
}

/* On devices with both uses, locally. */
static void exchange_local(struct lowering *l, const char *name, struct group_plan plan,
                           const struct stage_build *a, const struct stage_build *b)
{
    for (int32_t k = 0; k < a->n_shards; k++) {
        const char *own = a->n_shards > 1 ? arena_printf(l->a, "%s.%" PRId32, name, k) : name;
        struct collective *g = lower_group_new(l, own, ALGORITHM_LOCAL, 2, plan);
        g->members[0] = (struct collective_member){.stage = a->index + k, .chain_ring = -1};
        g->members[1] = (struct collective_member){.stage = b->index + k, .chain_ring = -1};
        g->elements = elements_on(a + k, plan.uses[0]);
        for (int32_t i = 0; i < 2; i++) g->link[i] = -1;
    }
}

static enum status make_exchange(struct lowering *l, int32_t replica, int32_t first, int32_t second,
                                 struct error *err)
{
    const struct stage_build *a = lower_param_use_owner(l, replica, first),
                             *b = lower_param_use_owner(l, replica, second);
    if (a == b) return OK;
    bool whole = lower_parameter_replicated(a, first) && lower_parameter_replicated(b, second);
    const struct tensor *t = &a->v->g->tensors[a->v->param_uses[first].parameter];
    const char *name = arena_printf(l->a, "tied[%s]@%" PRId32, t->name, replica);
    int32_t *uses = ARENA_ARRAY(l->tables, int32_t, 2);
    uses[0] = first, uses[1] = second;
    struct group_plan plan = {.n_uses = 2, .uses = uses, .tied = true};
    if (a->s->device != b->s->device && !whole)
        return lower_cells(l, (const struct stage_build *[]){a, b}, 2, name, plan, err);
    if (a->s->device != b->s->device) return exchange_far(l, name, plan, a, b, err);
    if (!whole && !lower_shards_equal(a, b, first))
        return lower_error(l, b, err, ERR_INPUT,
                           "sharding: parameter %s is used in two stages of the same devices, "
                           "which keep different shards of it in each",
                           t->name);
    TRY(lower_codes_check(l, b, t->name, "is used in two chunks of one device", err));
    exchange_local(l, name, plan, a, b);
    return OK;
}

static void tell_members(struct lowering *l)
{
    const struct program *p = l->p;
    struct stage_groups *all = ARENA_ARRAY(l->tables, struct stage_groups, (size_t)p->n_stages);
    for (int32_t s = 0; s < p->n_stages; s++) l->stages[s].groups = &all[s];
    for (int32_t i = 0; i < p->n_collectives; i++)
        for (int32_t k = 0; k < p->collectives[i].n_members; k++)
            l->stages[p->collectives[i].members[k].stage].groups->n++;
    for (int32_t s = 0; s < p->n_stages; s++) {
        struct stage_groups *g = l->stages[s].groups;
        g->group = ARENA_ARRAY(l->tables, int32_t, (size_t)g->n);
        g->member = ARENA_ARRAY(l->tables, int32_t, (size_t)g->n);
        g->n = 0;
    }
    for (int32_t i = 0; i < p->n_collectives; i++)
        for (int32_t k = 0; k < p->collectives[i].n_members; k++) {
            struct stage_build *b = &l->stages[p->collectives[i].members[k].stage];
            b->groups->member[b->groups->n] = k;
            b->groups->group[b->groups->n++] = i;
        }
}

enum status lower_groups(struct lowering *l, struct error *err)
{
    TRY(lower_zero_check(l, err));
    l->groups = ARENA_ARRAY(l->tables, struct lower_groups, 1);
    l->groups->mixed = ARENA_ARRAY(l->tables, bool, (size_t)l->uses->n_param_uses);
    l->groups->zero = ARENA_ARRAY(l->tables, int8_t, (size_t)l->uses->n_param_uses);
    memset(l->groups->zero, -1, (size_t)l->uses->n_param_uses);
    l->groups->of_use = ARENA_ARRAY(l->tables, struct use_group, (size_t)l->uses->n_param_uses);
    TRY(lower_shard_mixed(l, l->groups->mixed, err));
    TRY(lower_hybrid_check(l, err));
    for (int32_t last = l->uses->n_param_uses - 1, first; last >= 0; last = first - 1) {
        for (first = last; first > 0 && same_owners(l, first - 1, last) && same_turn(l, first - 1, last);) first--;
        if (needs_group(l, last))
            TRY(make_interval(l, (struct interval){first, last, 0}, err));
    }
    for (int32_t u = 0; u < l->uses->n_param_uses; u++)
        if (lower_param_use(l, u)->use == 1)
            for (int32_t r = 0; r < l->plan->n_replicas; r++)
                TRY(make_exchange(l, r, lower_param_use(l, u)->uses[0], u, err));
    TRY(lower_groups_check_rounds(l, err));
    if (lower_agrees(l)) TRY(lower_scale_groups(l, err));
    lower_zero_gathers(l);
    lower_group_reserve(l, l->n_tensor_collectives);
    tell_members(l);
    return OK;
}

/* --- groups of each stage --- */

/* Updates run by descending chunk. */
bool lower_exchanged_before(const struct lowering *l, const struct stage_build *b, int32_t group)
{
    const struct collective *g = &l->p->collectives[group];
    for (int32_t k = 0; g->algorithm == ALGORITHM_LOCAL && k < g->n_members; k++)
        if (l->stages[g->members[k].stage].chunk > b->chunk) return true;
    return false;
}

static void find_groups_of_uses(const struct lowering *l, const struct stage_build *b)
{
    struct use_group *of = l->groups->of_use;
    for (int32_t u = 0; u < l->uses->n_param_uses; u++) of[u].group = -1;
    for (int32_t i = b->groups->n; i-- > 0;) { /* the first group of a use goes before later ones */
        const struct group_plan *g = lower_group_plan(l, b->groups->group[i]);
        for (int32_t k = 0; k < g->n_uses && !g->tied && !g->outer && !g->between; k++)
            of[g->uses[k]] = (struct use_group){b->groups->group[i], k};
    }
    l->groups->of_stage = b->groups;
}

struct use_group lower_group_of_param_use(const struct lowering *l, const struct stage_build *b, int32_t param_use)
{
    if (l->groups->of_stage != b->groups) find_groups_of_uses(l, b);
    return l->groups->of_use[param_use];
}

/* at: index of the group among the stage's. */
static void segments_of(const struct stage_scratch *h, int32_t at, struct collective_member *m)
{
    const struct lowering *l = h->l;
    const struct stage_build *b = h->b;
    int32_t group = b->groups->group[at];
    const struct group_plan *plan = &l->groups->plans[group];
    if (plan->code.kind) {
        lower_code_segments(h, at, m);
        return;
    }
    if (plan->factor) {
        lower_factor_segments(h, at, m);
        return;
    }
    if (plan->agrees) {
        lower_scale_segments(h, plan->back, m);
        return;
    }
    if (plan->zero) {
        lower_zero_segments(h, group, m);
        return;
    }
    if (plan->between || (plan->outer && lower_zero_of(l, plan->uses[0]))) {
        lower_hybrid_segments(h, group, m);
        return;
    }
    const struct cells *cells = plan->cells;
    int32_t n = cells ? cells->n : plan->tied ? 1 : plan->n_uses;
    m->segments = ARENA_ARRAY(l->a, int32_t, (size_t)n);
    m->n_segments = n;
    if (cells)
        m->within = cells_within(cells, (int32_t)(m - l->p->collectives[group].members));
    if (plan->tied) {
        bool first = lower_owns(b, lower_param_use(l, plan->uses[0])->layer);
        for (int32_t i = 0; i < n; i++) m->segments[i] = h->gradient_slot[plan->uses[!first]];
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t gradient = h->gradient_slot[cells ? cells->param_use[i] : plan->uses[i]];
        m->segments[i] = plan->outer ? lower_outer_segment(h, gradient) : gradient;
    }
    if (!b->order->apart) return;
    m->chain_segments = ARENA_ARRAY(l->a, int32_t, (size_t)n);
    for (int32_t i = 0; i < n; i++) m->chain_segments[i] = h->chain_slot[plan->uses[i]];
    m->chain_ring = b->s->slots[m->chain_segments[0]].buffer_ring;
}

/* Collectives run one at a time, so all share the largest staging area. */
void lower_group_segments(const struct stage_scratch *h)
{
    struct stage_build *b = h->b;
    for (int32_t i = 0; i < b->groups->n; i++) {
        struct collective *g = &h->l->p->collectives[b->groups->group[i]];
        struct collective_member *m = &g->members[b->groups->member[i]];
        segments_of(h, i, m);
        int64_t bytes = program_collective_staging_bytes(g, m, b->s);
        if (bytes > b->s->buffer_bytes) b->s->buffer_bytes = bytes;
    }
}
