/* core/lower/zero_slots.c - homes of what a stage divides with others, and when whole parameters are there.
 *
 * Regions hold, behind what is not divided, the flat parameters of one group after the other: whole, or this stage's part.
 * Whole parameters of zero 3 and whole gradients from zero 2 on live in scratch, in one procedure, from the launch that
 * fetches them or the operator that makes them until their last use or the end of their sum; a parameter's or gradient's
 * own slot lies inside, so that operators see the shapes they know. Padding in scratch is whatever was there, its sums go
 * into padding of the part and are never read.
 */
#include "core/lower/zero_slots.h"

#include "core/lower/outer.h"
#include "core/lower/slots.h"
#include "core/lower/zero.h"

#include <string.h>

struct flat_shard_maker {
    struct stage_scratch *h;
    struct flat_shard *f;
    int32_t own; /* 1 + index of its group among the stage's */
    const struct group_plan *g; /* of the flat shard's group */
};

static int64_t region_bytes(const struct flat_shard_maker *m, enum slot_class class, int64_t elements)
{
    int64_t wide = class == SLOT_PARAMETER ? 1 : lower_wide(m->h->v->g->dtype);
    return elements * dtype_bytes(m->h->v->g->dtype) * wide;
}

static int32_t flat_param_slot(const struct flat_shard_maker *m, enum slot_class class, const char *what,
                         int64_t offset, int64_t elements)
{
    enum dtype t = m->h->v->g->dtype;
    return lower_add_slot(
        m->h,
        (struct slot){
            .name = arena_printf(m->h->l->a, "%s.%s", m->h->l->p->collectives[m->f->group].name, what),
            .class = class,
            .dtype = class == SLOT_PARAMETER || !strcmp(what, "gathered") ? t : dtype_master(t),
            .shape = {.rank = 1, .dim = {elements}},
            .buffer_ring = -1,
            .parameter = -1,
            .input = -1,
            .offset_bytes = offset});
}

/* Room at the end of a region for a whole flat parameter or a part of it. */
static int64_t claim(const struct flat_shard_maker *m, enum slot_class class, int64_t elements)
{
    int64_t at = m->h->b->s->class_bytes[class];
    m->h->b->s->class_bytes[class] += region_bytes(m, class, elements);
    return at;
}

/* Whole and this member's part, or the part alone. */
static void place(const struct flat_shard_maker *m, enum slot_class class, const char *what,
                  int64_t elements, bool whole, int32_t *all, int32_t *own)
{
    int32_t n = m->h->l->p->collectives[m->f->group].n_members;
    int64_t part = elements / n, at = claim(m, class, whole ? elements : part);
    if (whole) *all = flat_param_slot(m, class, what, at, elements);
    *own = flat_param_slot(m, class, arena_printf(m->h->l->a, "own.%s", what), at, part);
    if (whole) m->h->b->s->slots[*own].own = m->own; /* the member's chunk of the flat parameter */
}

static void make_flat_param(const struct flat_shard_maker *m, int32_t k, bool owner_group)
{
    struct flat_shard *f = m->f;
    const struct program *p = m->h->l->p;
    int32_t n = p->collectives[f->group].n_members;
    int64_t elements = m->g->divided->flat_param[k].elements, part = elements / n;
    if (m->g->zero < 2)
        place(m, SLOT_GRADIENT, "grad", elements, true, &f->gradient[k], &f->own_gradient[k]);
    else
        f->gradient[k] = flat_param_slot(m, SLOT_SCRATCH, "grad", 0, elements);
    if (!owner_group) return;
    if (m->g->zero >= 2)
        place(m, SLOT_GRADIENT, "grad", elements, false, NULL, &f->own_gradient[k]);
    place(m, SLOT_PARAMETER, "parameters", elements, m->g->zero < 3, &f->parameter[k],
          &f->own_parameter[k]);
    if (m->g->zero == 3)
        for (int q = phase_index(PHASE_F); q <= phase_index(PHASE_I); q++)
            f->gather[q][k] = flat_param_slot(m, SLOT_SCRATCH, "gathered", 0, elements);
    for (int64_t s = 0; s < optimizer_state_tensors(&p->optimizer); s++)
        f->state[k][s] =
            flat_param_slot(m, SLOT_STATE, s ? "own.v" : "own.m", claim(m, SLOT_STATE, part), part);
    if (dtype_is_half(m->h->v->g->dtype))
        f->master[k] = flat_param_slot(m, SLOT_STATE, "own.master", claim(m, SLOT_STATE, part), part);
    static const char *const outer[PROGRAM_OUTER_SLOTS] = {"own.anchor", "own.velocity", "own.sum"};
    for (int i = 0; i < PROGRAM_OUTER_SLOTS; i++)
        if (lower_outer_place(m->h->l, i) >= 0) f->outer[k][i] = flat_param_slot(m, SLOT_STATE, outer[i], claim(m, SLOT_STATE, part), part);
}

/* --- the tensors' own slots --- */

static int32_t inner_slot(struct stage_scratch *h, int32_t tensor, int32_t whole, int64_t first,
                          int32_t index)
{
    const struct slot *w = &h->b->s->slots[whole];
    int64_t at = first * dtype_bytes(w->dtype);
    struct slot s = lower_slot_like(h, tensor, w->class);
    s.dtype = w->dtype, s.parameter = index;
    if (w->class != SLOT_SCRATCH) {
        s.offset_bytes = w->offset_bytes + at;
        return lower_add_slot(h, s);
    }
    s.parameter = -1;
    int32_t slot = lower_add_slot(h, s);
    struct stage_flats *f = h->flat_shards;
    f->inner =
        arena_grow(h->work, f->inner, (size_t)f->n_inner, &f->inner_capacity, sizeof *f->inner);
    f->inner[f->n_inner++] = (struct inner){slot, whole, at};
    return slot;
}

static void gradient_slots(struct stage_scratch *h, int32_t tensor, int32_t index)
{
    struct program_parameter *p = &h->b->s->parameters[index];
    const struct flat_param_place at = lower_zero_place(h->l, h->b, tensor);
    for (int k = 0; k < 2; k++) {
        int32_t u = h->v->param_uses_of[2 * tensor + k];
        if (u < 0) continue;
        const struct flat_shard *f = lower_zero_flat_shard(h, lower_group_of_param_use(h->l, h->b, u).group);
        int32_t gradient = h->v->param_uses[u].gradient;
        bool own_group = f->group == at.group;
        int32_t slot = inner_slot(h, gradient, f->gradient[own_group ? at.flat_param : 0],
                                  own_group ? at.first : 0, index);
        if (lower_zero_of(h->l, u) < 2)
            p->gradient[k] = h->gradient_slot[u] = slot;
        else
            h->slot_back[gradient] = slot;
    }
}

static void parameter_slots(struct stage_scratch *h, int32_t tensor)
{
    const struct tensor *t = &h->v->g->tensors[tensor];
    const struct flat_param_place place = lower_zero_place(h->l, h->b, tensor), *at = &place;
    const struct flat_shard *f = lower_zero_flat_shard(h, at->group);
    int32_t index = h->b->s->n_parameters++, k = at->flat_param;
    struct program_shard *shard = ARENA_ARRAY(h->l->a, struct program_shard, 1);
    *shard = (struct program_shard){.slot = f->own_parameter[k],
                                    .state = {f->state[k][0], f->state[k][1]},
                                    .master = f->master[k],
                                    .own = f->own,
                                    .first = at->first};
    for (int i = 0; i < PROGRAM_OUTER_SLOTS; i++) shard->outer[i] = 1 + f->outer[k][i];
    h->b->s->parameters[index] = (struct program_parameter){.name = t->name,
                                                            .shape = t->shape,
                                                            .init = t->init,
                                                            .init_std = t->init_std,
                                                            .decay = t->decay,
                                                            .slot = -1,
                                                            .gradient = {-1, -1},
                                                            .state = {-1, -1},
                                                            .master = -1,
                                                            .shard = shard};
    struct program_parameter *p = &h->b->s->parameters[index];
    if (lower_group_plan(h->l, at->group)->zero < 3) {
        p->slot = inner_slot(h, tensor, f->parameter[k], at->first, index);
        h->slot_forward[tensor] = h->slot_back[tensor] = p->slot;
    } else {
        h->slot_forward[tensor] = inner_slot(h, tensor, f->gather[phase_index(PHASE_F)][k], at->first, -1);
        h->slot_back[tensor] = inner_slot(h, tensor, f->gather[phase_index(PHASE_I)][k], at->first, -1);
    }
    if (lower_is_local(h->l)) p->fragment = lower_outer_fragment(h->l, lower_group_plan(h->l, at->group)->uses[0]);
    gradient_slots(h, tensor, index);
}

void lower_zero_chunks(const struct lowering *l, const struct stage_build *b)
{
    const struct stage_groups *in = b->groups;
    int32_t *chunk = NULL;
    for (int32_t i = 0; i < in->n; i++) {
        const struct group_plan *g = lower_group_plan(l, in->group[i]);
        if (!g->zero || g->divided->gathered >= 0) continue;
        if (!chunk) chunk = ARENA_ARRAY(l->a, int32_t, (size_t)in->n);
        chunk[i] = program_collective_own_chunk(in->member[i], l->p->collectives[in->group[i]].n_members);
    }
    b->s->own_chunk = chunk;
}

static void make_flat_shards(struct stage_scratch *h)
{
    const struct stage_groups *in = h->b->groups;
    struct stage_flats *all = h->flat_shards = ARENA_ARRAY(h->work, struct stage_flats, 1);
    all->list = ARENA_ARRAY(h->work, struct flat_shard, (size_t)in->n);
    lower_zero_chunks(h->l, h->b);
    memset(all->list, -1, (size_t)in->n * sizeof *all->list);
    for (int32_t i = 0; i < in->n; i++) {
        const struct group_plan *g = lower_group_plan(h->l, in->group[i]);
        if (!g->zero || g->divided->gathered >= 0) continue;
        struct flat_shard *f = &all->list[all->n++];
        f->group = in->group[i], f->member = in->member[i], f->own = i + 1;
        struct flat_shard_maker m = {h, f, i + 1, g};
        for (int32_t k = 0; k < g->divided->n_flat_params; k++)
            make_flat_param(&m, k, g->divided->owner_group == f->group);
    }
    for (int32_t i = 0; i < all->n; i++) { /* a second use adds to what its owner group owns */
        struct flat_shard *f = &all->list[i];
        const struct group_plan *g = lower_group_plan(h->l, f->group);
        if (g->zero > 1 && g->divided->owner_group != f->group)
            f->own_gradient[0] = lower_zero_flat_shard(h, g->divided->owner_group)->own_gradient[0];
    }
}

static bool is_divided_here(const struct stage_scratch *h, int32_t tensor)
{
    if (h->v->g->tensors[tensor].role != TENSOR_PARAMETER) return false;
    int32_t group = lower_zero_place(h->l, h->b, tensor).group;
    return group >= 0 && lower_zero_flat_shard(h, group);
}

void lower_zero_slots(struct stage_scratch *h)
{
    make_flat_shards(h);
    if (!h->flat_shards->n) return;
    int32_t more = 0;
    for (int32_t t = 0; t < h->v->g->n_tensors; t++) more += is_divided_here(h, t);
    struct program_parameter *all =
        ARENA_ARRAY(h->work, struct program_parameter, (size_t)(h->b->s->n_parameters + more));
    if (h->b->s->n_parameters)
        memcpy(all, h->b->s->parameters, (size_t)h->b->s->n_parameters * sizeof *all);
    h->b->s->parameters = all;
    for (int32_t t = 0; t < h->v->g->n_tensors; t++)
        if (is_divided_here(h, t)) parameter_slots(h, t);
}

/* --- what members bring and keep --- */

const struct flat_shard *lower_zero_flat_shard(const struct stage_scratch *h, int32_t group)
{
    const struct stage_flats *f = h->flat_shards;
    int32_t gathered = lower_zero_group(h->l, group)->gathered;
    int32_t of = gathered >= 0 ? gathered : group;
    int32_t low = 0, high = f->n;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (f->list[middle].group < of)
            low = middle + 1;
        else
            high = middle;
    }
    return low < f->n && f->list[low].group == of ? &f->list[low] : NULL;
}

static enum phase phase_of(const struct lowering *l, int32_t gather)
{
    const int32_t *all = lower_zero_group(l, lower_zero_group(l, gather)->gathered)->gather;
    return all[phase_index(PHASE_F)] == gather ? PHASE_F
           : all[phase_index(PHASE_I)] == gather  ? PHASE_I
                                       : PHASE_W;
}

/* What the group gathers or scatters, whole. */
static const int32_t *whole_slots(const struct lowering *l, const struct flat_shard *f, int32_t group)
{
    if (lower_zero_group(l, group)->gathered < 0) return f->gradient;
    return lower_group_plan(l, group)->zero < 3 ? f->parameter : f->gather[phase_index(phase_of(l, group))];
}

int32_t lower_zero_scratch(const struct stage_scratch *h, int32_t group, int32_t out[FLAT_PARAMS_MAX])
{
    const struct lowering *l = h->l;
    const struct group_plan *g = lower_group_plan(l, group);
    if (g->zero < 2 || (g->divided->gathered >= 0 && g->zero < 3)) return 0;
    const struct flat_shard *f = lower_zero_flat_shard(h, group);
    const int32_t *whole = whole_slots(l, f, group);
    int32_t n = lower_zero_group(l, f->group)->n_flat_params;
    for (int32_t k = 0; k < n; k++) out[k] = whole[k];
    return n;
}

void lower_zero_segments(const struct stage_scratch *h, int32_t group, struct collective_member *m)
{
    const struct lowering *l = h->l;
    const struct group_plan *g = lower_group_plan(l, group);
    const struct flat_shard *f = lower_zero_flat_shard(h, group);
    const int32_t *whole = whole_slots(l, f, group);
    const int32_t *own = g->divided->gathered >= 0 ? f->own_parameter : f->own_gradient;
    int32_t n = m->n_segments = lower_zero_group(l, f->group)->n_flat_params;
    m->segments = ARENA_ARRAY(l->a, int32_t, (size_t)n);
    for (int32_t k = 0; k < n; k++) m->segments[k] = whole[k];
    if (g->zero < (g->divided->gathered >= 0 ? 3 : 2)) return;
    m->own = ARENA_ARRAY(l->a, int32_t, (size_t)n);
    for (int32_t k = 0; k < n; k++) m->own[k] = own[k];
}

/* --- when parameters are gathered --- */

struct gathering {
    const struct flat_shard *shard;
    int32_t gather;
    int64_t first_use; /* instruction; 0 where no operator reads it: other members' may */
};

static int by_use(const struct gathering *a, const struct gathering *b)
{
    return (a->first_use > b->first_use) - (a->first_use < b->first_use);
}

/* O(groups²), of which a stage has some tens. */
static void sort_by_use(struct gathering *g, int32_t n)
{
    for (int32_t i = 1; i < n; i++)
        for (int32_t k = i; k > 0 && by_use(&g[k - 1], &g[k]) > 0; k--) {
            struct gathering t = g[k];
            g[k] = g[k - 1], g[k - 1] = t;
        }
}

static void note_uses(const struct stage_build *b, const struct instr *instrs, size_t n,
                      const int32_t *gathering_of, struct gathering *all)
{
    for (size_t i = n; i-- > 0;) {
        if (instrs[i].kind != INSTR_COMPUTE) continue;
        const struct program_op *op = &b->s->ops[instrs[i].arg];
        for (int32_t k = 0; k < op->n_inputs; k++)
            if (gathering_of[op->input[k]] >= 0)
                all[gathering_of[op->input[k]]].first_use = (int64_t)i;
    }
}

static int32_t find_gatherings(const struct stage_scratch *h, enum phase phase,
                               const struct instr *instrs, size_t n, struct gathering **out)
{
    int32_t n_all = 0, *of = ARENA_ARRAY(h->work, int32_t, (size_t)h->b->s->n_slots);
    *out = ARENA_ARRAY(h->work, struct gathering, (size_t)h->flat_shards->n);
    memset(of, -1, (size_t)h->b->s->n_slots * sizeof *of);
    for (int32_t i = 0; i < h->flat_shards->n; i++) {
        const struct group_plan *g = lower_group_plan(h->l, h->flat_shards->list[i].group);
        if (g->zero < 3 || g->divided->gather[phase_index(phase)] < 0) continue;
        for (int32_t k = 0; k < g->divided->n_flat_params; k++)
            of[h->flat_shards->list[i].gather[phase_index(phase)][k]] = n_all;
        (*out)[n_all++] = (struct gathering){&h->flat_shards->list[i], g->divided->gather[phase_index(phase)], 0};
    }
    for (int32_t i = 0; i < h->flat_shards->n_inner; i++)
        of[h->flat_shards->inner[i].slot] = of[h->flat_shards->inner[i].whole];
    note_uses(h->b, instrs, n, of, *out);
    sort_by_use(*out, n_all);
    return n_all;
}

void lower_zero_insert(const struct stage_scratch *h, enum phase phase, struct instr **instrs,
                       size_t *n)
{
    struct gathering *all;
    int32_t n_all = 0, next = 0;
    if (h->b->plan->zero < 3 || !h->flat_shards->n) return;
    n_all = find_gatherings(h, phase, *instrs, *n, &all);
    if (!n_all) return;
    struct instr *out = ARENA_ARRAY(h->work, struct instr, *n + 2 * (size_t)n_all);
    size_t at = 0;
    out[at++] = (struct instr){INSTR_COLLECTIVE_START, all[0].gather};
    for (size_t i = 0; i < *n; i++) {
        for (; next < n_all && all[next].first_use == (int64_t)i; next++) {
            if (next + 1 < n_all) out[at++] = (struct instr){INSTR_COLLECTIVE_START, all[next + 1].gather};
            out[at++] = (struct instr){INSTR_COLLECTIVE_WAIT, all[next].gather};
        }
        out[at++] = (*instrs)[i];
    }
    *instrs = out, *n = at;
}
