/* core/lower/zero.c - ZeRO (plan.h's zero): owner groups and their flat parameters (FSDP).
 *
 * A ZeRO group reduce-scatters the gradients of its parameter uses. Its parameters are laid out in flat parameters (FSDP), of which
 * every member owns an equal n-th: members stay equal whatever their number, as in frameworks with flat parameters, so the
 * simulator can fold them. The price is padding: up to n · 64 bytes a flat parameter.
 * Rejected: dividing the list of gradients as a ring does, without padding, because each member would then cut other parameters.
 * In sharded stages each shard of a parameter is divided among the devices that keep it and have a partial value of its
 * gradient each; a parameter that one device keeps alone, or all compute alike, is not divided.
 * With local SGD a group has the replicas of one island, and equal islands have equal groups, because they exchange shards.
 * A tied parameter has a group for each use, which divide alike, and one owner group; if its uses are on
 * different stages of a replica it is not divided, because its full gradients are exchanged and all-reduced.
 */
#include "core/lower/zero.h"

#include "core/lower/hybrid.h"
#include "core/lower/param_uses.h"
#include "core/lower/shards.h"
#include "core/lower/slots.h"

#include <inttypes.h>

/* Both uses of the parameter of a parameter use; -1: none. */
static const int32_t *uses_of(const struct lowering *l, int32_t param_use)
{
    return lower_param_use(l, param_use)->uses;
}

static bool used_twice(const struct lowering *l, int32_t param_use)
{
    return uses_of(l, param_use)[0] >= 0 && uses_of(l, param_use)[1] >= 0;
}

static int32_t level_of(const struct lowering *l, int32_t param_use)
{
    const struct stage_build *first = lower_param_use_owner(l, 0, param_use);
    const int32_t *uses = uses_of(l, param_use);
    int32_t holders = 0; /* in one island, which the others equal */
    if (!first->plan->zero || lower_hybrid_part(l, param_use) == 1) return 0;
    for (int32_t r = 0; r < l->plan->n_replicas; r++) {
        const struct stage_build *b = lower_param_use_owner(l, r, param_use);
        if (plan_island(l->plan, r) == plan_island(l->plan, 0)) holders += b->n_shards / lower_shard_keys(b, param_use);
        if (!used_twice(l, param_use)) continue;
        if (lower_param_use_owner(l, r, uses[0]) != lower_param_use_owner(l, r, uses[1])) return 0;
        if (!lower_shard_same_keys(b, uses[0], uses[1])) return 0;
    }
    return holders > 1 ? first->plan->zero : 0;
}

int32_t lower_zero_of(const struct lowering *l, int32_t param_use)
{
    int8_t *known = &l->groups->zero[param_use];
    if (*known < 0) *known = (int8_t)level_of(l, param_use);
    return *known;
}

bool lower_zero_alone(const struct lowering *l, int32_t param_use)
{
    return lower_zero_of(l, param_use) && used_twice(l, param_use);
}

struct flat_param_place lower_zero_place(const struct lowering *l, const struct stage_build *b,
                                   int32_t tensor)
{
    const int32_t *uses = &b->v->param_uses_of[2 * tensor];
    int32_t param_use = uses[0] >= 0 ? uses[0] : uses[1];
    struct use_group of = {.group = -1};
    if (param_use >= 0) of = lower_group_of_param_use(l, b, param_use);
    if (of.group < 0 || !l->groups->plans[of.group].zero) return (struct flat_param_place){.group = -1};
    return lower_zero_group(l, of.group)->places[of.index];
}

/* --- do the stages agree? --- */

/* first: of replica 0; inside: of the first replica of b's island. */
static enum status check_alike(const struct lowering *l, const struct stage_build *b, const struct stage_build *first,
                               const struct stage_build *inside, struct error *err)
{
    if (b->plan->zero != first->plan->zero)
        return lower_error(l, b, err, ERR_INPUT,
                           "zero: %" PRId32 ", but replicas[%" PRId32 "].stages[%" PRId32
                           "], which holds the same layers, has %" PRId32,
                           b->plan->zero, first->replica, first->stage, first->plan->zero);
    if (b->plan->hybrid_shard != first->plan->hybrid_shard)
        return lower_error(l, b, err, ERR_INPUT,
                           "hybrid_shard: %s, but replicas[%" PRId32 "].stages[%" PRId32 "], which holds the same layers, has %s",
                           b->plan->hybrid_shard ? "true" : "false", first->replica, first->stage,
                           first->plan->hybrid_shard ? "true" : "false");
    if (b->plan->zero == 3 && (b->plan->recompute != inside->plan->recompute ||
                               b->plan->recompute_blocks != inside->plan->recompute_blocks))
        return lower_error(l, b, err, ERR_INPUT,
                           "zero: 3 needs the same recompute as replicas[%" PRId32
                           "].stages[%" PRId32 "], so that both gather parameters in one order",
                           inside->replica, inside->stage);
    if (b->plan->zero > 1 && b->s->microbatches != inside->s->microbatches)
        return lower_error(l, b, err, ERR_INPUT,
                           "zero: %" PRId32 " needs replicas with equal numbers of microbatches, "
                           "because their gradients are reduce-scattered in each; this one has %" PRId32
                           ", replicas[%" PRId32 "] %" PRId32,
                           b->plan->zero, b->s->microbatches, inside->replica,
                           inside->s->microbatches);
    return OK;
}

/* Where the backward is split, gradients that are scattered come from W alone, and W needs no parameters. */
static enum status check_split(const struct lowering *l, const struct stage_build *b,
                               struct error *err)
{
    const struct graph *g = b->v->g;
    for (int32_t i = g->n_forward; b->order->split && b->plan->zero > 1 && i < g->n_ops; i++) {
        const struct graph_op *op = &g->ops[i];
        bool weight = orders_op_phase(b, op) == PHASE_W, bad = false;
        if (!lower_owns(b, op->layer)) continue;
        for (int32_t k = 0; k < op->n_inputs; k++)
            bad |= weight && g->tensors[op->input[k]].role == TENSOR_PARAMETER;
        for (int32_t k = 0; k < op->n_outputs; k++)
            bad |= !weight && g->tensors[op->output[k]].role == TENSOR_PARAMETER_GRADIENT;
        if (bad)
            return lower_error(l, b, err, ERR_INPUT,
                               "zero: %" PRId32 " needs input- and weight-gradient operators to be separate; operator %s computes both",
                               b->plan->zero, op->name);
    }
    return OK;
}

static int32_t first_of_island(const struct lowering *l, int32_t replica)
{
    int32_t first = 0;
    while (plan_island(l->plan, first) != plan_island(l->plan, replica)) first++;
    return first;
}

/* Devices with the layer in each island: equally many, and two at least. devices: (islands) scratch. */
static enum status check_islands(const struct lowering *l, int32_t layer, int32_t *devices, struct error *err)
{
    int32_t n = plan_islands(l->plan);
    const struct stage_build *b = &l->stages[lower_owner(l, 0, layer)];
    if (n < 2 || !b->plan->zero) return OK;
    for (int32_t i = 0; i < n; i++) devices[i] = 0;
    for (int32_t r = 0; r < l->plan->n_replicas; r++) devices[plan_island(l->plan, r)] += l->stages[lower_owner(l, r, layer)].n_shards;
    for (int32_t i = 0; i < n; i++)
        if (devices[i] != devices[0])
            return lower_error(l, b, err, ERR_INPUT,
                               "zero: %" PRId32 " with local_sgd needs islands of equally many devices, because they exchange shards; these layers are on %" PRId32
                               " devices of island 0 and %" PRId32 " of island %" PRId32,
                               b->plan->zero, devices[0], devices[i], i);
    if (devices[0] > 1) return OK;
    return lower_error(l, b, err, ERR_INPUT, "zero: %" PRId32 " shards over the devices of an island, and there is only one with these layers",
                       b->plan->zero);
}

enum status lower_zero_check(const struct lowering *l, struct error *err)
{
    for (int32_t i = 0; i < l->p->n_stages; i++) {
        const struct stage_build *b = &l->stages[i];
        if (!b->plan->zero) continue;
        if (!plan_stage_replicated(l->plan, b->plan))
            return lower_error(l, b, err, ERR_INPUT,
                               "zero: %" PRId32 " shards over replicas, but there is only one",
                               b->plan->zero);
        if (l->plan->deterministic)
            return lower_error(l, b, err, ERR_INPUT,
                               "zero: %" PRId32 " in a deterministic plan, whose chain all-reduce leaves the "
                               "full gradient on every replica",
                               b->plan->zero);
        TRY(check_split(l, b, err));
    }
    int32_t *devices = ARENA_ARRAY(l->tables, int32_t, (size_t)plan_islands(l->plan));
    for (int32_t k = 0; k < l->n_layers; k++) {
        for (int32_t r = 1; r < l->plan->n_replicas; r++)
            TRY(check_alike(l, &l->stages[lower_owner(l, r, k)], &l->stages[lower_owner(l, 0, k)],
                            &l->stages[lower_owner(l, first_of_island(l, r), k)], err));
        TRY(check_islands(l, k, devices, err));
    }
    return OK;
}

/* --- groups --- */

static int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

static struct zero_group *new_divided(struct arena *a)
{
    struct zero_group *z = ARENA_ARRAY(a, struct zero_group, 1);
    z->owner_group = z->gathered = -1;
    for (int p = 0; p < PHASE_INDICES; p++) z->gather[p] = -1;
    return z;
}

/* The flat parameter of the parameters that decay or do not, made where it is new. */
static int32_t find_flat_param(struct zero_group *z, bool decay)
{
    int32_t k = 0;
    while (k < z->n_flat_params && z->flat_param[k].decay != decay) k++;
    if (k == z->n_flat_params) z->flat_param[z->n_flat_params++] = (struct flat_param){.decay = decay};
    return k;
}

void lower_zero_flat_params(struct lowering *l, int32_t group)
{
    struct group_plan *g = &l->groups->plans[group];
    struct zero_group *z = g->divided = new_divided(l->a);
    struct collective *x = &l->p->collectives[group];
    const struct lower_view *v = l->stages[x->members[0].stage].v;
    int64_t align = SLOT_ALIGN / dtype_bytes(v->g->dtype);
    z->owner_group =
        used_twice(l, g->uses[0]) && uses_of(l, g->uses[0])[0] != g->uses[0] ? -1 : group;
    z->places = ARENA_ARRAY(l->a, struct flat_param_place, (size_t)g->n_uses);
    for (int32_t i = 0; i < g->n_uses; i++) {
        const struct tensor *t = &v->g->tensors[v->param_uses[g->uses[i]].parameter];
        int32_t flat_param = find_flat_param(z, t->decay);
        z->places[i] =
            (struct flat_param_place){group, flat_param, z->flat_param[flat_param].elements};
        z->flat_param[flat_param].elements += round_up(shape_elements(&t->shape), align);
    }
    x->elements = 0;
    for (int32_t k = 0; k < z->n_flat_params; k++) {
        z->flat_param[k].elements = round_up(z->flat_param[k].elements, align * x->n_members);
        x->elements += z->flat_param[k].elements;
    }
}

/* Members and links are those of the group whose parameters it gathers. */
static void make_gather(struct lowering *l, int32_t of, enum phase phase)
{
    static const char *const names[] = {"forward", "backward", "update"};
    int32_t n = l->p->collectives[of].n_members, index = l->p->n_collectives;
    struct group_plan plan = {.zero = l->groups->plans[of].zero};
    struct collective *g =
        lower_group_new(l, arena_printf(l->a, "gather@%s %s", names[phase_index(phase)], l->p->collectives[of].name),
                        ALGORITHM_RING, n, plan);
    g->kind = COLLECTIVE_ALL_GATHER;
    const struct collective *x = &l->p->collectives[of];
    g->elements = x->elements, g->link = x->link, g->direction = x->direction;
    for (int32_t i = 0; i < n; i++)
        g->members[i] = (struct collective_member){.stage = x->members[i].stage, .chain_ring = -1};
    struct zero_group *gather = l->groups->plans[index].divided = new_divided(l->a);
    gather->gathered = of;
    lower_zero_group(l, of)->gather[phase_index(phase)] = index;
}

/* Of a second use's group: that of the first use, of the same members. */
static int32_t owner_group_of(const struct lowering *l, int32_t group)
{
    int32_t first = uses_of(l, l->groups->plans[group].uses[0])[0], owner_group = 0;
    while (!l->groups->plans[owner_group].zero || l->groups->plans[owner_group].uses[0] != first ||
           l->p->collectives[owner_group].members[0].stage != l->p->collectives[group].members[0].stage)
        owner_group++;
    return owner_group;
}

void lower_zero_gathers(struct lowering *l)
{
    int32_t n = l->p->n_collectives;
    for (int32_t i = 0; i < n; i++) {
        const struct group_plan *g = &l->groups->plans[i];
        if (!g->zero) continue;
        if (g->divided->owner_group < 0) g->divided->owner_group = owner_group_of(l, i);
        if (g->divided->owner_group != i) continue;
        if (g->zero < 3)
            make_gather(l, i, PHASE_W);
        else
            make_gather(l, i, PHASE_F), make_gather(l, i, PHASE_I);
    }
}
