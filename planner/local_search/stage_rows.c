/* planner/local_search/stage_rows.c - rows of the table that change the stages and replicas of a group: merged, split, on other devices.
 *
 * All replicas of a group change alike. Groups with sharded stages are not changed, because their rules belong to their devices.
 * Orders written out and recomputation are reset; later rows and the fit set them again.
 */
#include "core/base/arena.h"
#include "planner/candidate/fitting.h"
#include "planner/candidate/group.h"
#include "planner/local_search/internal.h"
#include "planner/local_search/stage_moves.h"
#include "planner/schedule/refine.h"

#include <string.h>

/* --- places in a plan --- */

struct place { /* a stage of a group's replicas */
    int32_t group, stage;
};

static const struct plan_replica *example_of(const struct local_search *x, int32_t group)
{
    return &x->plan.replicas[x->example[group]];
}

static int32_t count_places(const struct local_search *x)
{
    int32_t n = 0;
    for (int32_t g = 0; g < x->n_groups; g++) n += example_of(x, g)->n_stages;
    return n;
}

static struct place place_of(const struct local_search *x, int32_t at)
{
    struct place p = {0, at};
    while (p.stage >= example_of(x, p.group)->n_stages)
        p.stage -= example_of(x, p.group++)->n_stages;
    return p;
}

static const struct plan_stage *stage_of(const struct local_search *x, struct place p)
{
    return &example_of(x, p.group)->stages[p.stage];
}

/* The largest number of devices of a stage. */
static int32_t widest(const struct local_search *x)
{
    int32_t n = 1;
    for (int32_t i = 0; i < count_places(x); i++)
        if (plan_stage_devices(stage_of(x, place_of(x, i))) > n)
            n = plan_stage_devices(stage_of(x, place_of(x, i)));
    return n;
}

static int32_t replicas_of(const struct local_search *x, int32_t group)
{
    int32_t n = 0;
    for (int32_t r = 0; r < x->plan.n_replicas; r++) n += x->group[r] == group;
    return n;
}

/* The k-th replica of a group. */
static int32_t replica_of(const struct local_search *x, int32_t group, int32_t k)
{
    int32_t r = 0;
    while (x->group[r] != group || k--) r++;
    return r;
}

static bool is_sharded(const struct local_search *x, int32_t group)
{
    for (int32_t i = 0; i < example_of(x, group)->n_stages; i++)
        if (example_of(x, group)->stages[i].sharding) return true;
    return false;
}

/* Interchangeable devices; of many devices, those of a type on a node. */
static bool alike(const struct space *s, int32_t d, int32_t e)
{
    const struct device *x = &s->cluster->devices[d], *y = &s->cluster->devices[e];
    if (s->n_devices <= SPACE_TABLES_MAX) return s->class_of[d] == s->class_of[e];
    return x->type == y->type && x->node == y->node;
}

bool local_search_reorder(const struct local_search *x, struct plan *p)
{
    bool named = false;
    local_search_plain(p);
    for (int32_t r = 0; r < p->n_replicas; r++) named |= p->replicas[r].schedule != NULL;
    if (!named) refine_warmups(x->s, p, 0);
    return true;
}

/* --- stages merged and split --- */

int32_t stage_rows_count_merges(const struct local_search *x) { return count_places(x); }

bool stage_rows_merge(const struct local_search *x, struct plan *p, int32_t variant)
{
    struct place at = place_of(x, variant);
    if (is_sharded(x, at.group) || at.stage + 1 == example_of(x, at.group)->n_stages) return false;
    for (int32_t r = 0; r < p->n_replicas; r++)
        if (x->group[r] == at.group && !stage_moves_merge(x->arena, x->s, p, r, at.stage))
            return false;
    return local_search_reorder(x, p);
}

/* variant = (place · devices + front) · 2 + behind */
int32_t stage_rows_count_splits(const struct local_search *x)
{
    return widest(x) > 1 ? 2 * widest(x) * count_places(x) : 0;
}

bool stage_rows_split(const struct local_search *x, struct plan *p, int32_t variant)
{
    int32_t front = variant / 2 % widest(x);
    struct place at = place_of(x, variant / 2 / widest(x));
    if (is_sharded(x, at.group)) return false;
    for (int32_t r = 0; r < p->n_replicas; r++)
        if (x->group[r] == at.group &&
            !stage_moves_split(x->arena, x->s, p, r, at.stage, front, variant % 2))
            return false;
    return local_search_reorder(x, p);
}

/* --- devices --- */

/* Whether the two stages have devices of other types, or other numbers of them. */
static bool unlike(const struct local_search *x, const struct plan_stage *a,
                   const struct plan_stage *b)
{
    bool unlike = plan_stage_devices(a) != plan_stage_devices(b);
    for (int32_t k = 0; !unlike && k < plan_stage_devices(a); k++)
        unlike = x->plan.cluster.devices[plan_stage_device(a, k)].type !=
                 x->plan.cluster.devices[plan_stage_device(b, k)].type;
    return unlike;
}

/* variant = place · places + other stage of the replica */
int32_t stage_rows_count_swaps(const struct local_search *x)
{
    return count_places(x) * count_places(x);
}

bool stage_rows_swap(const struct local_search *x, struct plan *p, int32_t variant)
{
    struct place at = place_of(x, variant / count_places(x));
    int32_t other = variant % count_places(x);
    if (is_sharded(x, at.group) || other <= at.stage ||
        other >= example_of(x, at.group)->n_stages ||
        !unlike(x, stage_of(x, at), &example_of(x, at.group)->stages[other]))
        return false;
    for (int32_t r = 0; r < p->n_replicas; r++)
        if (x->group[r] == at.group && !stage_moves_swap(x->arena, x->s, p, r, at.stage, other))
            return false;
    return local_search_reorder(x, p);
}

/* A device of a stage to another stage, or idle: variant = ((place · devices + device) · (places + 1) + to) · 2 + behind */
int32_t stage_rows_count_devices(const struct local_search *x)
{
    return 2 * widest(x) * count_places(x) * (count_places(x) + 1);
}

/* Whether a device earlier in the stage stands for device k. */
static bool has_double(const struct space *s, const struct plan_stage *x, int32_t k)
{
    for (int32_t l = 0; l < k; l++)
        if (alike(s, plan_stage_device(x, l), plan_stage_device(x, k))) return true;
    return false;
}

bool stage_rows_device(const struct local_search *x, struct plan *p, int32_t variant)
{
    int32_t places = count_places(x), to = variant / 2 % (places + 1),
            k = variant / 2 / (places + 1) % widest(x);
    struct place at = place_of(x, variant / 2 / (places + 1) / widest(x)),
                 there = to < places ? place_of(x, to) : (struct place){-1, -1};
    const struct plan_stage *stage = stage_of(x, at);
    bool idle = to == places, own = there.group == at.group;
    if (k >= plan_stage_devices(stage) || has_double(x->s, stage, k) || is_sharded(x, at.group) ||
        (!idle && is_sharded(x, there.group)) || (own && there.stage == at.stage))
        return false;
    if (!idle && replicas_of(x, there.group) != replicas_of(x, at.group)) return false;
    /* added before the removal, which may renumber stages; removed from the last replica on, as a replica may go with its device */
    for (int32_t i = 0; i < replicas_of(x, at.group) && !idle; i++) {
        int32_t r = replica_of(x, at.group, i), to_r = own ? r : replica_of(x, there.group, i),
                device = plan_stage_device(&p->replicas[r].stages[at.stage], k);
        if (!stage_moves_add(x->arena, x->s, p, to_r, there.stage, device)) return false;
    }
    for (int32_t i = replicas_of(x, at.group) - 1; i >= 0; i--)
        if (!stage_moves_drop(x->arena, x->s, p, replica_of(x, at.group, i), at.stage, k,
                              variant % 2))
            return false;
    for (int32_t r = 0; r < p->n_replicas; r++) stage_moves_balance_replica(x->s, p, r);
    return local_search_reorder(x, p);
}

/* --- idle devices --- */

static void mark_used(const struct local_search *x, bool *used)
{
    const struct plan *p = &x->plan;
    if (x->task->idle) memcpy(used, x->task->idle, (size_t)x->s->n_devices * sizeof *used);
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            for (int32_t k = 0; k < plan_stage_devices(&p->replicas[r].stages[i]); k++)
                used[plan_stage_device(&p->replicas[r].stages[i], k)] = true;
}

/* The next unused device like d, from d on; -1: none. Marks it as used. */
static int32_t take_like(const struct space *s, bool *used, int32_t d)
{
    for (int32_t e = d; e < s->n_devices; e++)
        if (!used[e] && alike(s, d, e)) return used[e] = true, e;
    return -1;
}

/* An idle device of each kind: shares a stage, has a stage of its own before or behind it, or stands in for a device of it.
 * variant = ((place · devices of the cluster + idle device) · (3 + devices of a stage)) + how */
int32_t stage_rows_count_idle(const struct local_search *x)
{
    return count_places(x) * x->s->n_devices * (3 + widest(x));
}

static bool use_idle(const struct local_search *x, struct plan *p, int32_t r, int32_t stage,
                     int32_t d, int32_t how)
{
    if (how == 0) return stage_moves_add(x->arena, x->s, p, r, stage, d);
    if (how < 3) return stage_moves_insert(x->arena, x->s, p, r, stage, d, how == 2);
    if (how - 3 >= plan_stage_devices(&p->replicas[r].stages[stage])) return false;
    return stage_moves_replace(x->arena, x->s, p, r, stage, how - 3, d);
}

bool stage_rows_idle(const struct local_search *x, struct plan *p, int32_t variant)
{
    const struct space *s = x->s;
    int32_t ways = 3 + widest(x), how = variant % ways, first = variant / ways % s->n_devices,
            e = 0;
    struct place at = place_of(x, variant / ways / s->n_devices);
    bool *used = ARENA_ARRAY(x->arena, bool, (size_t)s->n_devices);
    mark_used(x, used);
    while (e < first && (used[e] || !alike(s, e, first))) e++;
    if (used[first] || e < first || is_sharded(x, at.group)) return false;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        int32_t d = x->group[r] == at.group ? take_like(s, used, first) : -1;
        if (x->group[r] != at.group) continue;
        if (d < 0 || !use_idle(x, p, r, at.stage, d, how)) return false;
        stage_moves_balance_replica(s, p, r);
    }
    return local_search_reorder(x, p);
}

/* A sequence of every microbatch from a device of a stage to another: variant = (place · devices + from) · devices + to */
int32_t stage_rows_count_sequences(const struct local_search *x)
{
    int32_t n = widest(x);
    return n > 1 ? n * n * count_places(x) : 0;
}

bool stage_rows_sequence(const struct local_search *x, struct plan *p, int32_t variant)
{
    int32_t n = widest(x), from = variant / n % n, to = variant % n;
    struct place at = place_of(x, variant / n / n);
    const struct plan_stage *stage = stage_of(x, at);
    if (!stage->sequences || from >= stage->n_shards || to >= stage->n_shards) return false;
    for (int32_t r = 0; r < p->n_replicas; r++)
        if (x->group[r] == at.group && !stage_moves_pass(p, r, at.stage, from, to)) return false;
    return true;
}

/* --- replicas --- */

/* Replicas of a group in pairs, or each with one of another group of as many replicas: variant = group · groups + other. The last
 * variant: all replicas with as many stages as the first. */
int32_t stage_rows_count_joins(const struct local_search *x)
{
    return x->n_groups * x->n_groups + 1;
}

static bool join_all(const struct local_search *x, struct plan *p)
{
    bool *set = ARENA_ARRAY(x->arena, bool, (size_t)p->n_replicas);
    for (int32_t r = 0; r < p->n_replicas; r++) {
        if (is_sharded(x, x->group[r])) return false;
        set[r] = p->replicas[r].n_stages == p->replicas[0].n_stages;
    }
    return stage_moves_join(x->arena, x->s, p, set);
}

static bool join_pairs(const struct local_search *x, struct plan *p, int32_t g, int32_t h)
{
    int32_t n = replicas_of(x, g), pairs = g == h ? n / 2 : n;
    if ((g == h && n % 2) || replicas_of(x, h) != n || is_sharded(x, g) || is_sharded(x, h))
        return false;
    /* from the last on, as a joined replica stands at the first one's index */
    for (int32_t k = pairs - 1; k >= 0; k--) {
        bool *set = ARENA_ARRAY(x->arena, bool, (size_t)x->plan.n_replicas);
        set[replica_of(x, g, g == h ? 2 * k : k)] = true;
        set[replica_of(x, h, g == h ? 2 * k + 1 : k)] = true;
        if (!stage_moves_join(x->arena, x->s, p, set)) return false;
    }
    return pairs > 0;
}

bool stage_rows_join(const struct local_search *x, struct plan *p, int32_t variant)
{
    int32_t g = variant / x->n_groups, h = variant % x->n_groups;
    if (g == x->n_groups) return join_all(x, p) && local_search_reorder(x, p);
    return g <= h && join_pairs(x, p, g, h) && local_search_reorder(x, p);
}

int32_t stage_rows_count_divisions(const struct local_search *x) { return x->n_groups; }

bool stage_rows_divide(const struct local_search *x, struct plan *p, int32_t variant)
{
    if (is_sharded(x, variant)) return false;
    for (int32_t r = x->plan.n_replicas - 1; r >= 0; r--)
        if (x->group[r] == variant && !stage_moves_divide(x->arena, x->s, p, r)) return false;
    return local_search_reorder(x, p);
}

/* The microbatch size alone, which the driver changes. */
int32_t stage_rows_count_sizes(const struct local_search *x) { return x->plan.n_replicas > 0; }

bool stage_rows_size(const struct local_search *x, struct plan *p, int32_t variant)
{
    (void)variant;
    return local_search_reorder(x, p);
}

/* --- memory --- */

/* Optimizer state of all stages whole, sharded over the holders of a layer, or over those of a node. Plans of measured layers keep it whole,
 * as it was measured. */
enum { STATE_WHOLE, STATE_SHARDED, STATE_IN_NODES };
int32_t stage_rows_count_zero(const struct local_search *x)
{
    if (x->s->job->model.measured || x->task->t->o->no_zero) return 0;
    bool several = x->plan.n_replicas > 1 || widest(x) > 1;
    return !several ? 0 : x->s->cluster->n_nodes > 1 ? STATE_IN_NODES + 1 : STATE_SHARDED + 1;
}

/* Whether some layer is on devices of several nodes. */
static bool spans_nodes(const struct local_search *x, const struct plan *p)
{
    const struct device *d = x->s->cluster->devices;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            const struct plan_stage *y = &p->replicas[r].stages[i], *first = p->replicas[0].stages;
            while (first->last_layer < y->first_layer) first++;
            for (int32_t k = 0; k < plan_stage_devices(y); k++)
                if (d[plan_stage_device(y, k)].node != d[first->device].node) return true;
        }
    return false;
}

bool stage_rows_zero(const struct local_search *x, struct plan *p, int32_t variant)
{
    if (variant == STATE_IN_NODES && !spans_nodes(x, p)) return false;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            struct plan_stage *y = &p->replicas[r].stages[i];
            if (y->zero > 1) return false;
            y->zero = variant != STATE_WHOLE && plan_stage_replicated(p, y);
            y->hybrid_shard = variant == STATE_IN_NODES && y->zero;
            if (y->zero && !y->hybrid_shard) y->all_reduce = ALGORITHM_RING;
            y->recompute = RECOMPUTE_NONE; /* where memory is then missing, the fit sets it again */
            y->recompute_blocks = 0, y->offload = false;
        }
    return x->plan.n_replicas > 0;
}

/* A stage's activations kept, recomputed by block, or offloaded where the types of all its devices allow it. */
enum { ACTIVATIONS_KEPT, ACTIVATIONS_RECOMPUTED, ACTIVATIONS_OFFLOADED, ACTIVATIONS_VARIANTS };

static int32_t activation_variants(const struct local_search *x) { return fitting_offers(x->s) ? ACTIVATIONS_VARIANTS : ACTIVATIONS_OFFLOADED; }

int32_t stage_rows_count_recompute(const struct local_search *x) { return activation_variants(x) * count_places(x); }

bool stage_rows_recompute(const struct local_search *x, struct plan *p, int32_t variant)
{
    struct place at = place_of(x, variant / activation_variants(x));
    int how = variant % activation_variants(x);
    const struct plan_stage *now = stage_of(x, at);
    if (how == ACTIVATIONS_OFFLOADED ? !fitting_may_offload(x->s, now) : now->recompute == RECOMPUTE_NONE && !now->offload) return false;
    for (int32_t r = 0; r < p->n_replicas; r++)
        if (x->group[r] == at.group) {
            struct plan_stage *y = &p->replicas[r].stages[at.stage];
            fitting_set_offload(y);
            y->offload = how == ACTIVATIONS_OFFLOADED;
            if (how == ACTIVATIONS_RECOMPUTED) y->recompute = RECOMPUTE_BLOCKS;
        }
    return true;
}
