/* core/lower_zero.c - what replicas divide among themselves (plan.h's zero): groups and their sections.
 *
 * A divided group scatters the gradients of its units. Its parameters are laid flat in sections, so that every member owns
 * the n-th part of each, of equal size for all: members stay alike whatever their number, which is what lets the
 * simulator fold them, and what frameworks do with flat parameters. The price is padding: up to n · 64 bytes a section.
 * Discarded: dividing the list of gradients as a ring does, without padding, where each member would cut other parameters.
 * A parameter that is used twice has a group for each use, which divide alike, and one home; where its uses are on
 * different stages of a replica it is not divided: its gradients are exchanged whole, and so it is summed whole.
 */
#include "core/lower_internal.h"

#include <inttypes.h>

int32_t lower_zero_of(const struct lowering *l, int32_t unit)
{
    const struct unit *u = &l->units[unit];
    const int32_t *uses = &l->use_unit[2 * u->parameter];
    int32_t zero = l->stages[lower_owner(l, 0, u->layer)].plan->zero;
    for (int32_t r = 0; zero && uses[0] >= 0 && uses[1] >= 0 && r < l->plan->n_replicas; r++)
        if (lower_owner(l, r, l->units[uses[0]].layer) !=
            lower_owner(l, r, l->units[uses[1]].layer))
            return 0;
    return l->plan->n_replicas > 1 ? zero : 0;
}

bool lower_zero_alone(const struct lowering *l, int32_t unit)
{
    const int32_t *uses = &l->use_unit[2 * l->units[unit].parameter];
    return lower_zero_of(l, unit) && uses[0] >= 0 && uses[1] >= 0;
}

/* --- do the stages agree? --- */

static enum status check_alike(const struct lowering *l, const struct stage_build *b,
                               const struct stage_build *first, struct error *err)
{
    if (b->plan->zero != first->plan->zero)
        return lower_error(l, b, err, ERR_INPUT,
                           "zero: %" PRId32 ", but replicas[%" PRId32 "].stages[%" PRId32
                           "], which holds the same layers, has %" PRId32,
                           b->plan->zero, first->replica, first->stage, first->plan->zero);
    if (b->plan->zero > 1 && b->s->microbatches != first->s->microbatches)
        return lower_error(l, b, err, ERR_INPUT,
                           "zero: %" PRId32 " needs replicas with equal numbers of microbatches, "
                           "because they meet in every one; this one has %" PRId32
                           ", replicas[%" PRId32 "] %" PRId32,
                           b->plan->zero, b->s->microbatches, first->replica,
                           first->s->microbatches);
    return OK;
}

/* Where the backward is split, gradients that are scattered come from W alone, and W needs no parameters. */
static enum status check_split(const struct lowering *l, const struct stage_build *b,
                               struct error *err)
{
    const struct graph *g = l->g;
    for (int32_t i = g->n_forward; b->split && b->plan->zero > 1 && i < g->n_ops; i++) {
        const struct graph_op *op = &g->ops[i];
        bool weight = op_part(b, op) == PART_WEIGHT, bad = false;
        if (!lower_owns(b, op->layer)) continue;
        for (int32_t k = 0; k < op->n_inputs; k++)
            bad |= weight && g->tensors[op->input[k]].role == TENSOR_PARAMETER;
        for (int32_t k = 0; k < op->n_outputs; k++)
            bad |= !weight && g->tensors[op->output[k]].role == TENSOR_PARAMETER_GRADIENT;
        if (bad)
            return lower_error(l, b, err, ERR_INPUT,
                               "zero: %" PRId32 " with I and W apart, but %s does of both",
                               b->plan->zero, op->name);
    }
    return OK;
}

enum status lower_zero_check(const struct lowering *l, struct error *err)
{
    for (int32_t i = 0; i < l->p->n_stages; i++) {
        const struct stage_build *b = &l->stages[i];
        if (!b->plan->zero) continue;
        if (l->plan->n_replicas < 2)
            return lower_error(l, b, err, ERR_INPUT,
                               "zero: %" PRId32 " divides over replicas, and there is one",
                               b->plan->zero);
        if (l->plan->deterministic)
            return lower_error(l, b, err, ERR_INPUT,
                               "zero: %" PRId32 " in a deterministic plan, whose chain gives the "
                               "whole sum to everybody",
                               b->plan->zero);
        TRY(check_split(l, b, err));
    }
    for (int32_t k = 0; k < l->g->n_layers; k++)
        for (int32_t r = 1; r < l->plan->n_replicas; r++)
            TRY(check_alike(l, &l->stages[lower_owner(l, r, k)], &l->stages[lower_owner(l, 0, k)],
                            err));
    return OK;
}

/* --- groups --- */

static int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

/* The section of the parameters that decay or do not, made where it is new. */
static int32_t find_section(struct group_plan *g, bool decay)
{
    int32_t k = 0;
    while (k < g->n_sections && g->section[k].decay != decay) k++;
    if (k == g->n_sections) g->section[g->n_sections++] = (struct section){.decay = decay};
    return k;
}

void lower_zero_sections(struct lowering *l, int32_t group)
{
    struct group_plan *g = &l->group_plans[group];
    struct group *x = &l->p->groups[group];
    int64_t align = SLOT_ALIGN / dtype_bytes(l->g->dtype);
    const int32_t *uses = &l->use_unit[2 * l->units[g->first_unit].parameter];
    bool second = uses[0] >= 0 && uses[1] >= 0 && uses[0] != g->first_unit;
    g->home = group;
    for (int32_t u = g->first_unit; u <= g->last_unit; u++) {
        const struct tensor *t = &l->g->tensors[l->units[u].parameter];
        int32_t section = find_section(g, t->decay);
        if (!second)
            l->places[l->units[u].parameter] =
                (struct flat_place){group, section, g->section[section].elements};
        g->section[section].elements += round_up(shape_elements(&t->shape), align);
    }
    x->elements = 0;
    for (int32_t k = 0; k < g->n_sections; k++) {
        g->section[k].elements = round_up(g->section[k].elements, align * x->n_members);
        x->elements += g->section[k].elements;
    }
}

/* Members and links are those of the group whose parameters it gathers. */
static void make_gather(struct lowering *l, int32_t of, enum part part)
{
    static const char *const names[PART_COUNT] = {"forward", "backward", "update"};
    int32_t n = l->p->groups[of].n_members, index = l->p->n_groups;
    struct group_plan plan = {
        .first_unit = 1, .last_unit = 0, .zero = l->group_plans[of].zero}; /* of no unit */
    struct group *g =
        lower_group_new(l, arena_printf(l->a, "gather@%s %s", names[part], l->p->groups[of].name),
                        GROUP_GATHER, n, plan);
    const struct group *x = &l->p->groups[of];
    g->elements = x->elements, g->link = x->link, g->direction = x->direction;
    for (int32_t i = 0; i < n; i++)
        g->members[i] = (struct group_member){.stage = x->members[i].stage, .apart = -1};
    l->group_plans[index].gathered = of;
    l->group_plans[of].gather[part] = index;
}

void lower_zero_gathers(struct lowering *l)
{
    int32_t n = l->p->n_groups;
    for (int32_t i = 0; i < n; i++) {
        struct group_plan *g = &l->group_plans[i];
        if (!g->zero) continue;
        g->home = l->places[l->units[g->first_unit].parameter].group;
        if (g->home != i) continue;
        if (g->zero < 3)
            make_gather(l, i, PART_WEIGHT);
        else
            make_gather(l, i, PART_FORWARD), make_gather(l, i, PART_BACK);
    }
}

/* --- members --- */

const struct flat *lower_zero_flat(const struct lowering *l, const struct stage_build *b,
                                   int32_t group)
{
    int32_t of = l->group_plans[group].gathered >= 0 ? l->group_plans[group].gathered : group;
    int32_t low = 0, high = b->n_flats;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (b->flats[middle].group < of)
            low = middle + 1;
        else
            high = middle;
    }
    return low < b->n_flats && b->flats[low].group == of ? &b->flats[low] : NULL;
}

static enum part part_of(const struct lowering *l, int32_t gather)
{
    const int32_t *all = l->group_plans[l->group_plans[gather].gathered].gather;
    return all[PART_FORWARD] == gather ? PART_FORWARD
           : all[PART_BACK] == gather  ? PART_BACK
                                       : PART_WEIGHT;
}

/* What the group gathers or scatters, whole. */
static const int32_t *whole_slots(const struct lowering *l, const struct flat *f, int32_t group)
{
    if (l->group_plans[group].gathered < 0) return f->gradient;
    return l->group_plans[group].zero < 3 ? f->parameter : f->gather[part_of(l, group)];
}

int32_t lower_zero_scratch(const struct lowering *l, const struct stage_build *b, int32_t group,
                           int32_t out[SECTIONS_MAX])
{
    const struct group_plan *g = &l->group_plans[group];
    if (g->zero < 2 || (g->gathered >= 0 && g->zero < 3)) return 0;
    const struct flat *f = lower_zero_flat(l, b, group);
    const int32_t *whole = whole_slots(l, f, group);
    int32_t n = l->group_plans[f->group].n_sections;
    for (int32_t k = 0; k < n; k++) out[k] = whole[k];
    return n;
}

void lower_zero_segments(struct lowering *l, const struct stage_build *b, int32_t group,
                         struct group_member *m)
{
    const struct group_plan *g = &l->group_plans[group];
    const struct flat *f = lower_zero_flat(l, b, group);
    const int32_t *whole = whole_slots(l, f, group);
    const int32_t *own = g->gathered >= 0 ? f->own_parameter : f->own_gradient;
    int32_t n = m->n_segments = l->group_plans[f->group].n_sections;
    m->segments = ARENA_ARRAY(l->a, int32_t, (size_t)n);
    for (int32_t k = 0; k < n; k++) m->segments[k] = whole[k];
    if (g->zero < (g->gathered >= 0 ? 3 : 2)) return;
    m->own = ARENA_ARRAY(l->a, int32_t, (size_t)n);
    for (int32_t k = 0; k < n; k++) m->own[k] = own[k];
}
