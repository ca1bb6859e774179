/* core/lower/update.c - the procedure U of a stage.
 *
 * Waits for the gradient all-reduces, exchanges tied gradients, adds a second use's gradient to the first's; then updates: one for each
 * flat run, or one for each parameter, and ZeRO's shards. In half precision they change the master, and the parameter is
 * its rounded value. With two weight versions the latest is copied over the previous one first. With a loss scale or max_grad_norm (core/lower/scale.c) all gradients are awaited and checked first, in a call of
 * its own if the device has several chunks.
 */
#include "core/lower/codes.h"
#include "core/lower/factors.h"
#include "core/lower/groups.h"
#include "core/lower/noise.h"
#include "core/lower/outer.h"
#include "core/lower/procedures.h"
#include "core/lower/scale.h"
#include "core/lower/servers.h"
#include "core/lower/slots.h"
#include "core/lower/versions.h"
#include "core/lower/writer.h"
#include "core/lower/zero_slots.h"

int32_t writer_finish_update(struct writer *w, const char *variant)
{
    const struct stage_build *b = w->b;
    int32_t index = writer_finish(w, PHASE_U, variant), steps = lower_outer_steps(w->l, b);
    if (steps > 1) b->s->procedures[index].period = b->s->procedures[index].offset = steps;
    return index;
}

static void each_reduce(struct writer *w, const struct stage_build *b, enum instr_kind kind)
{
    for (int32_t i = 0; i < b->groups->n; i++) {
        const struct group_plan *g = lower_group_plan(w->l, b->groups->group[i]);
        if (!g->tied && !g->zero && !g->agrees && !g->outer && !lower_group_late(g))
            writer_emit(w, kind, b->groups->group[i]);
    }
}

/* All devices of a stage hold the same reduced gradient of a use; it counts once (core/lower/groups.c). */
static void clear_tied(struct writer *w, const int32_t *tied, int32_t n)
{
    const struct lowering *l = w->l;
    const struct stage_build *b = w->b;
    for (int32_t i = 0; b->shard > 0 && i < n; i++) {
        const struct group_plan *plan = lower_group_plan(l, tied[i]);
        bool first = lower_owns(b, w->h->v->param_uses[plan->uses[0]].layer);
        int32_t param_use = plan->uses[!first];
        if (l->p->collectives[tied[i]].algorithm == ALGORITHM_LOCAL || plan->cells)
            continue; /* are silent */
        writer_zero(w, PHASE_U, b->s->first_layer,
                    arena_join(l->a, b->s->slots[w->h->gradient_slot[param_use]].name, ".once"),
                    w->h->gradient_slot[param_use]);
    }
}

/* The first update of a device exchanges for both chunks, so the other chunk's gradients must be complete too. */
void lower_exchange_ties(struct writer *w, void (*await)(struct writer *, const struct stage_build *, enum instr_kind))
{
    const struct lowering *l = w->l;
    const struct stage_build *b = w->b;
    int32_t n = 0, *tied = ARENA_ARRAY(w->h->work, int32_t, (size_t)b->groups->n);
    for (int32_t i = 0; i < b->groups->n; i++) {
        int32_t group = b->groups->group[i];
        const struct group_plan *plan = lower_group_plan(l, group);
        if (!plan->tied || lower_exchanged_before(l, b, group)) continue;
        if (w->turn && lower_outer_fragment(l, plan->uses[0]) + 1 != w->turn) continue;
        const struct collective *g = &l->p->collectives[group];
        for (int32_t k = 0; g->algorithm == ALGORITHM_LOCAL && k < g->n_members; k++)
            if (g->members[k].stage != b->index) await(w, &l->stages[g->members[k].stage], INSTR_COLLECTIVE_WAIT);
        tied[n++] = group;
    }
    clear_tied(w, tied, n);
    for (int32_t i = 0; i < n; i++) writer_emit(w, INSTR_COLLECTIVE_START, tied[i]);
    for (int32_t i = 0; i < n; i++) writer_emit(w, INSTR_COLLECTIVE_WAIT, tied[i]);
}

/* slot: (UPDATE_SLOTS). In half precision the master is updated and the parameter is its rounded value. */
void lower_write_update(struct writer *w, bool flat, const char *name, bool decay, const int32_t *slot)
{
    bool narrows = slot[UPDATE_MASTER] >= 0;
    int32_t n = 2 + (int32_t)optimizer_state_tensors(&w->l->p->optimizer);
    struct program_op op = {.kind = optimizer_op(&w->l->p->optimizer, flat),
                            .phase = PHASE_U,
                            .attrs = {.decay = decay || w->l->p->optimizer.decay_all,
                                      .narrows = narrows,
                                      .scaled = lower_scales(w->l),
                                      .clipped = lower_clips(w->l),
                                      .hosted = w->b->s->offloads && (n > 2 || narrows)},
                            .name = name,
                            .layer = w->b->s->first_layer,
                            .n_inputs = n,
                            .n_outputs = n};
    static const int results[] = {UPDATE_P, UPDATE_M, UPDATE_V};
    for (int k = 0; k < n; k++) {
        int out = k + 1 < n ? results[k] : UPDATE_G;
        op.input[k] = k == UPDATE_P && narrows ? slot[UPDATE_MASTER] : slot[k];
        op.output[k] = out == UPDATE_P && narrows ? slot[UPDATE_MASTER] : slot[out];
    }
    if (narrows) op.output[op.n_outputs++] = slot[UPDATE_P];
    writer_op(w, &op);
}

int32_t lower_primary_gradient(const struct stage_build *b, const struct program_parameter *p)
{
    if (p->gradient[0] < 0 || p->gradient[1] < 0)
        return p->gradient[0] >= 0 ? p->gradient[0] : p->gradient[1];
    const struct slot *x = b->s->slots;
    int64_t wide = dtype_bytes(x[p->gradient[0]].dtype) / dtype_bytes(x[p->slot].dtype);
    return p->gradient[x[p->gradient[0]].offset_bytes != x[p->slot].offset_bytes * wide];
}

/* Adds the gradient of a second use to this stage's shard of one group's gradients. */
static void await_own(struct writer *w, const struct flat_shard *f)
{
    struct lowering *l = w->l;
    const struct stage_flats *flat_shards = w->h->flat_shards;
    const struct group_plan *g = lower_group_plan(l, f->group);
    if (g->zero == 1 && !lower_codes_between(w->h, f->group)) writer_emit(w, INSTR_COLLECTIVE_WAIT, f->group);
    for (int32_t i = 0; g->zero == 1 && i < flat_shards->n; i++) {
        const struct flat_shard *other = &flat_shards->list[i];
        if (other == f || lower_zero_group(l, other->group)->owner_group != f->group) continue;
        if (!lower_codes_between(w->h, other->group)) writer_emit(w, INSTR_COLLECTIVE_WAIT, other->group);
        writer_accumulate(w, PHASE_U, w->b->s->first_layer,
                          arena_join(l->a, l->p->collectives[f->group].name, ".tie"),
                          other->own_gradient[0], f->own_gradient[0]);
    }
}

static void update_own(struct writer *w, const struct flat_shard *f)
{
    struct lowering *l = w->l;
    const struct zero_group *g = lower_zero_group(l, f->group);
    const char *name = l->p->collectives[f->group].name;
    if (!lower_agrees(l)) await_own(w, f);
    for (int32_t k = 0; k < g->n_flat_params; k++) {
        int32_t slot[UPDATE_SLOTS] = {f->own_parameter[k], f->own_gradient[k], f->state[k][0],
                                      f->state[k][1], f->master[k]};
        bool decay = g->flat_param[k].decay;
        lower_write_update(w, lower_runs_flat(l),
                     arena_join(l->a, name, decay ? ".update.decayed" : ".update.other"), decay,
                     slot);
    }
    if (g->gather[phase_index(PHASE_W)] >= 0) writer_emit(w, INSTR_COLLECTIVE_START, g->gather[phase_index(PHASE_W)]);
}

/* ZeRO: updates, then all-gathers, during which the gradients owned by others are zeroed. */
static void update_divided(struct writer *w)
{
    struct lowering *l = w->l;
    const struct stage_flats *flat_shards = w->h->flat_shards;
    for (int32_t i = 0; i < flat_shards->n; i++) {
        const struct flat_shard *f = &flat_shards->list[i];
        if (lower_zero_group(l, f->group)->owner_group == f->group) update_own(w, f);
    }
    for (int32_t i = 0; i < flat_shards->n; i++) {
        const struct flat_shard *f = &flat_shards->list[i];
        const struct group_plan *g = lower_group_plan(l, f->group);
        for (int32_t k = 0; g->zero == 1 && k < g->divided->n_flat_params; k++)
            writer_zero(w, PHASE_U, w->b->s->first_layer,
                        arena_join(l->a, l->p->collectives[f->group].name, ".zero"), f->gradient[k]);
    }
    for (int32_t i = 0; i < flat_shards->n; i++) {
        int32_t gather = lower_zero_group(l, flat_shards->list[i].group)->gather[phase_index(PHASE_W)];
        if (gather >= 0) writer_emit(w, INSTR_COLLECTIVE_WAIT, gather);
    }
}

/* Adds both uses' gradients of a parameter. */
static void add_ties(struct writer *w)
{
    struct lowering *l = w->l;
    const struct stage_build *b = w->b;
    const struct program_stage *s = b->s;
    for (int32_t i = 0; i < s->n_parameters; i++) {
        const struct program_parameter *p = &s->parameters[i];
        if (p->gradient[0] < 0 || p->gradient[1] < 0 || p->shard) continue;
        int32_t sum = lower_primary_gradient(b, p),
                other = p->gradient[0] == sum ? p->gradient[1] : p->gradient[0];
        writer_accumulate(w, PHASE_U, s->first_layer, arena_join(l->a, p->name, ".tie"), other,
                          sum);
        writer_zero(w, PHASE_U, s->first_layer, arena_join(l->a, p->name, ".tie.zero"), other);
    }
}

/* All inputs of updates are awaited before the first update. */
static void check(struct writer *w)
{
    struct lowering *l = w->l;
    struct stage_build *b = w->b;
    const struct stage_flats *flat_shards = w->h->flat_shards;
    for (int32_t i = 0; i < flat_shards->n; i++) {
        const struct flat_shard *own = &flat_shards->list[i];
        if (lower_zero_group(l, own->group)->owner_group == own->group) await_own(w, own);
    }
    if (lower_scales(l)) lower_scale_look(w);
    if (lower_clips(l)) lower_clip_look(w);
    if (lower_checks_separately(l, &l->lanes[b->s->device]))
        b->procedures->check = writer_finish_update(w, "check");
    lower_scale_agree(w);
}

void lower_update_procedure(struct writer *w)
{
    struct lowering *l = w->l;
    struct stage_build *b = w->b;
    struct program_stage *s = b->s;
    bool flat = w->h->slots->run[0][0] >= 0 || w->h->slots->run[1][0] >= 0;
    lower_keep_versions(w); /* overlaps with the sums */
    each_reduce(w, b, INSTR_COLLECTIVE_WAIT);
    lower_decode(w, false);
    lower_factor_right(w);
    lower_exchange_between(w);
    if (lower_measures_noise(l)) lower_noise_look_reduced(w);
    if (!lower_agrees(l) && lower_checks_separately(l, &l->lanes[b->s->device]))
        b->procedures->check = writer_finish_update(w, "check");
    lower_exchange_ties(w, each_reduce);
    add_ties(w);
    if (lower_agrees(l)) check(w);
    if (lower_is_served(l)) {
        lower_worker_update(w);
        b->procedures->u = writer_finish_update(w, "");
        return;
    }
    for (int run = 0; run < 2; run++)
        if (w->h->slots->run[run][0] >= 0)
            lower_write_update(w, true, run ? "update.other" : "update.decayed", !run,
                         w->h->slots->run[run]);
    for (int32_t i = 0; i < s->n_parameters && !flat; i++) {
        const struct program_parameter *p = &s->parameters[i];
        if (p->shard) continue;
        int32_t slot[UPDATE_SLOTS] = {p->slot, lower_primary_gradient(b, p), p->state[0], p->state[1],
                                      p->master};
        if (slot[1] < 0) continue;
        lower_write_update(w, false, arena_join(l->a, p->name, ".update"), p->decay, slot);
    }
    update_divided(w);
    b->procedures->u = writer_finish_update(w, "");
}
