/* core/lower/outer.c - local SGD in a program (core/plan/plan.h, struct plan_local_sgd).
 *
 * Every stage keeps an anchor, its parameters after the last exchange, with Nesterov momentum a velocity, and with a delay the sum in
 * flight; all have the flat layout of the optimizer's state. Behind the update, once in a period for each fragment (core/program/period.h),
 *   delta   sum = weight of the replica's samples · (anchor - parameter), then the sums over all islands start
 *   sum     with a delay, that many steps later: when they have ended, gradient = sum
 *   outer   the outer optimizer's step: anchor, velocity, parameter; the gradient is zero again
 * With ZeRO a device does so with its shards, and behind the outer step of zero 1 and 2 the parameters are gathered again.
 * Without a delay the sums use the gradients' slots, which are zero behind an update. A device with several chunks calls a part of all
 * its chunks before the next part, so that tied parameters of two chunks can be exchanged in the first outer step, as in updates
 * (core/lower/update.c). The sums queue on the device's collective stream with all other collectives: gradient all-reduces inside an
 * island wait for a delayed sum that is in front of them.
 */
#include "core/lower/outer.h"

#include "core/lower/codes.h"
#include "core/lower/orders.h"
#include "core/lower/param_uses.h"
#include "core/lower/procedures.h"
#include "core/lower/slots.h"
#include "core/lower/writer.h"
#include "core/lower/zero_slots.h"
#include "core/program/period.h"

#include <inttypes.h>

static const struct outer_optimizer *outer_of(const struct lowering *l) { return &l->plan->local_sgd.outer; }

int32_t lower_outer_states(const struct lowering *l)
{
    const struct outer_optimizer *o = outer_of(l);
    return !o->every ? 0 : 1 + (o->kind == OUTER_NESTEROV) + (o->delay > 0);
}

int32_t lower_outer_place(const struct lowering *l, int k)
{
    const struct outer_optimizer *o = outer_of(l);
    bool has[PROGRAM_OUTER_SLOTS] = {o->every > 0, o->kind == OUTER_NESTEROV, o->delay > 0};
    int32_t place = 0;
    for (int i = 0; i < k; i++) place += has[i];
    return has[0] && has[k] ? place : -1;
}

double lower_outer_loss_factor(const struct stage_build *b, const struct lowering *l)
{
    if (!lower_is_local(l)) return 1;
    int32_t island = plan_island(l->plan, b->replica);
    return (double)l->p->microbatches / (double)plan_island_microbatches(l->plan, island) / lower_outer_steps(l, b);
}

/* --- groups --- */

/* Of the two uses of a tied parameter the one of the lower number: its gradient has the parameter's place in the flat layout wherever
 * both are on one stage. */
static bool is_first_use(const struct lowering *l, int32_t param_use)
{
    const int32_t *both = lower_param_use(l, param_use)->uses;
    return both[0] < 0 || both[1] < 0 || param_use == (both[0] < both[1] ? both[0] : both[1]);
}

int32_t lower_outer_fragment(const struct lowering *l, int32_t param_use)
{
    const int32_t *both = lower_param_use(l, param_use)->uses;
    int32_t first = both[0] < 0 || (both[1] >= 0 && both[1] < both[0]) ? both[1] : both[0];
    return l->fragment_of_layer[lower_param_use(l, first)->layer];
}

/* Whether the member before has the same values, which count once. */
static bool is_repeated(const struct lowering *l, const struct collective *g, int32_t member)
{
    return member && l->stages[g->members[member].stage].replica == l->stages[g->members[member - 1].stage].replica;
}

/* Of several devices of a replica that hold the same shard the first one contributes. */
static enum status make_group(struct lowering *l, struct group_plan plan, int32_t key, const char *name,
                              struct error *err)
{
    int32_t n = lower_group_members(l, -1, plan.uses[0], key, NULL, 0);
    struct collective *g = lower_group_new(l, name, ALGORITHM_RING, n, plan);
    (void)lower_group_members(l, -1, plan.uses[0], key, g, 0);
    for (int32_t i = 0; i < n && !plan.code.kind; i++) g->members[i].silent = is_repeated(l, g, i);
    const struct stage_build *b = &l->stages[g->members[0].stage];
    if (plan.code.kind) g->elements = n * lower_code_words(b, &plan);
    for (int32_t i = 0; i < plan.n_uses && !plan.code.kind; i++)
        g->elements += shape_elements(&b->v->g->tensors[b->v->param_uses[plan.uses[i]].gradient].shape);
    return lower_group_join(l, l->p->n_collectives - 1, err);
}

enum status lower_outer_group(struct lowering *l, struct group_plan plan, int32_t key,
                              const char *name, struct error *err)
{
    int32_t fragments = outer_of(l)->fragments;
    for (int32_t f = 0; f < fragments; f++) {
        int32_t n_uses = 0, *uses = ARENA_ARRAY(l->tables, int32_t, (size_t)plan.n_uses);
        for (int32_t i = 0; i < plan.n_uses; i++)
            if (is_first_use(l, plan.uses[i]) && lower_outer_fragment(l, plan.uses[i]) == f)
                uses[n_uses++] = plan.uses[i];
        struct group_plan own = {.n_uses = n_uses, .uses = uses, .outer = true, .fragment = f, .code = lower_code(l, true)};
        const char *full = fragments > 1 ? arena_printf(l->a, "%s.outer%" PRId32, name, f) : arena_join(l->a, name, ".outer");
        if (n_uses) TRY(make_group(l, own, key, full, err));
    }
    return OK;
}

enum status lower_outer_shard_groups(struct lowering *l, struct group_plan plan, int32_t first, const char *name, struct error *err)
{
    int32_t islands = plan_islands(l->plan), n = l->p->collectives[first].n_members, fragment = lower_outer_fragment(l, plan.uses[0]);
    int64_t elements = l->p->collectives[first].elements;
    if (lower_zero_group(l, first)->owner_group != first) return OK;
    for (int32_t k = 1; k < islands; k++)
        if (l->p->collectives[first + k].n_members != n || l->p->collectives[first + k].elements != elements)
            return lower_error(l, lower_param_use_owner(l, 0, plan.uses[0]), err, ERR_INPUT,
                               "zero: parameter %s is sharded over %" PRId32 " devices in island 0 and %" PRId32 " in island %" PRId32
                               ", and local_sgd exchanges equal shards",
                               lower_param_use(l, plan.uses[0])->parameter, n, l->p->collectives[first + k].n_members, k);
    struct group_plan own = {.n_uses = plan.n_uses, .uses = plan.uses, .outer = true, .fragment = fragment};
    const char *full = outer_of(l)->fragments > 1 ? arena_printf(l->a, "%s.outer%" PRId32, name, fragment) : arena_join(l->a, name, ".outer");
    for (int32_t i = 0; i < n; i++) {
        struct collective *g = lower_group_new(l, full, ALGORITHM_RING, islands, own);
        for (int32_t k = 0; k < islands; k++)
            g->members[k] = (struct collective_member){.stage = l->p->collectives[first + k].members[i].stage, .chain_ring = -1};
        g->elements = elements / n;
        TRY(lower_group_join(l, l->p->n_collectives - 1, err));
    }
    return OK;
}

/* --- procedures --- */

static bool has_first_use(const struct writer *w, const struct program_parameter *p)
{
    const struct stage_build *b = w->b;
    int32_t slot = lower_primary_gradient(b, p);
    for (int32_t u = 0; u < w->l->uses->n_param_uses; u++)
        if (w->h->gradient_slot[u] == slot) return is_first_use(w->l, u);
    return false;
}

/* Of a shard an island has one member, of a parameter one for each replica. */
static void write_delta(struct writer *w, const char *name, const int32_t *slot, bool shard)
{
    int64_t samples = shard ? plan_island_microbatches(w->l->plan, plan_island(w->l->plan, w->b->replica)) : w->b->s->microbatches;
    double weight = (double)samples / (double)w->l->p->microbatches;
    bool half = slot[UPDATE_MASTER] >= 0;
    writer_op(w, &(struct program_op){.kind = OP_outer_delta,
                                      .phase = PHASE_U,
                                      .attrs = {.scale = weight},
                                      .name = arena_join(w->l->a, name, ".delta"),
                                      .layer = w->b->s->first_layer,
                                      .n_inputs = 2,
                                      .n_outputs = 1,
                                      .input = {slot[UPDATE_ANCHOR], half ? slot[UPDATE_MASTER] : slot[UPDATE_P]},
                                      .output = {slot[slot[UPDATE_SUM] >= 0 ? UPDATE_SUM : UPDATE_G]}});
}

static void write_sum(struct writer *w, const char *name, const int32_t *slot, bool shard)
{
    (void)shard;
    writer_accumulate(w, PHASE_U, w->b->s->first_layer, arena_join(w->l->a, name, ".sum"), slot[UPDATE_SUM], slot[UPDATE_G]);
}

static void write_outer(struct writer *w, const char *name, const int32_t *slot, bool shard)
{
    (void)shard;
    bool half = slot[UPDATE_MASTER] >= 0, nesterov = outer_of(w->l)->kind == OUTER_NESTEROV;
    struct program_op op = {.kind = nesterov ? OP_outer_nesterov : OP_outer_average,
                            .phase = PHASE_U,
                            .attrs = {.narrows = half, .scale = outer_of(w->l)->alpha},
                            .name = arena_join(w->l->a, name, ".outer"),
                            .layer = w->b->s->first_layer};
    op.output[op.n_outputs++] = half ? slot[UPDATE_MASTER] : slot[UPDATE_P];
    op.output[op.n_outputs++] = slot[UPDATE_ANCHOR];
    if (nesterov) op.output[op.n_outputs++] = slot[UPDATE_VELOCITY];
    op.output[op.n_outputs++] = slot[UPDATE_G];
    for (; op.n_inputs < op.n_outputs; op.n_inputs++) op.input[op.n_inputs] = op.output[op.n_inputs];
    if (half) op.output[op.n_outputs++] = slot[UPDATE_P];
    writer_op(w, &op);
}

/* Of one of the stage's flat parameters (ZeRO): whether it is of this turn and has a shard that is updated. */
static bool in_turn(const struct writer *w, const struct flat_shard *f)
{
    const struct group_plan *g = lower_group_plan(w->l, f->group);
    return g->divided->owner_group == f->group && lower_outer_fragment(w->l, g->uses[0]) + 1 == w->turn;
}

static void write_shards(struct writer *w, void (*write)(struct writer *, const char *, const int32_t *, bool))
{
    for (int32_t i = 0; i < w->h->flat_shards->n; i++) {
        const struct flat_shard *f = &w->h->flat_shards->list[i];
        const struct zero_group *z = lower_zero_group(w->l, f->group);
        for (int32_t k = 0; k < z->n_flat_params && in_turn(w, f); k++) {
            int32_t slot[UPDATE_SLOTS] = {[UPDATE_P] = f->own_parameter[k],
                                          [UPDATE_G] = f->own_gradient[k],
                                          [UPDATE_MASTER] = f->master[k],
                                          [UPDATE_ANCHOR] = f->outer[k][0],
                                          [UPDATE_VELOCITY] = f->outer[k][1],
                                          [UPDATE_SUM] = f->outer[k][2]};
            write(w, arena_join(w->l->a, w->l->p->collectives[f->group].name, z->flat_param[k].decay ? ".decayed" : ".other"), slot, true);
        }
    }
}

/* Over flat runs, or parameter by parameter; with several fragments the parameters of this one; then over shards. */
static void write_all(struct writer *w, void (*write)(struct writer *, const char *, const int32_t *, bool))
{
    const struct program_stage *s = w->b->s;
    const int32_t (*run)[UPDATE_SLOTS] = (const int32_t (*)[UPDATE_SLOTS])w->h->slots->run;
    bool flat = outer_of(w->l)->fragments == 1 && (run[0][0] >= 0 || run[1][0] >= 0);
    for (int k = 0; k < 2 && flat; k++)
        if (run[k][0] >= 0) write(w, k ? "other" : "decayed", run[k], false);
    for (int32_t i = 0; i < s->n_parameters && !flat; i++) {
        const struct program_parameter *p = &s->parameters[i];
        int32_t slot[UPDATE_SLOTS] = {[UPDATE_P] = p->slot,
                                      [UPDATE_G] = lower_primary_gradient(w->b, p),
                                      [UPDATE_MASTER] = p->master,
                                      [UPDATE_ANCHOR] = p->outer[0] - 1,
                                      [UPDATE_VELOCITY] = p->outer[1] - 1,
                                      [UPDATE_SUM] = p->outer[2] - 1};
        if (slot[UPDATE_G] >= 0 && p->fragment + 1 == w->turn && !p->shard) write(w, p->name, slot, false);
    }
    write_shards(w, write);
}

/* Zero 1 and 2 hold whole parameters. */
static void gather_shards(struct writer *w, enum instr_kind kind)
{
    for (int32_t i = 0; i < w->h->flat_shards->n; i++) {
        const struct flat_shard *f = &w->h->flat_shards->list[i];
        int32_t gather = lower_zero_group(w->l, f->group)->gather[phase_index(PHASE_W)];
        if (gather >= 0 && in_turn(w, f)) writer_emit(w, kind, gather);
    }
}

static void each_outer_group(struct writer *w, const struct stage_build *b, enum instr_kind kind)
{
    for (int32_t i = 0; i < b->groups->n; i++) {
        const struct group_plan *g = lower_group_plan(w->l, b->groups->group[i]);
        if (g->outer && g->fragment + 1 == w->turn) writer_emit(w, kind, b->groups->group[i]);
    }
}

/* A second use receives the sum by the tied exchange, and contributes nothing to it. */
static void clear_second_uses(struct writer *w)
{
    const struct program_stage *s = w->b->s;
    for (int32_t i = 0; i < s->n_parameters; i++) {
        int32_t slot = s->parameters[i].shard ? -1 : lower_primary_gradient(w->b, &s->parameters[i]);
        if (slot >= 0 && s->parameters[i].fragment + 1 == w->turn && !has_first_use(w, &s->parameters[i]))
            writer_zero(w, PHASE_U, s->first_layer,
                        arena_join(w->l->a, s->parameters[i].name, ".delta.tied"), slot);
    }
}

/* Of this fragment. Repeated values are encoded as zeros. */
static void encode_deltas(struct writer *w)
{
    const struct stage_groups *all = w->b->groups;
    for (int32_t i = 0; i < all->n; i++) {
        const struct group_plan *plan = lower_group_plan(w->l, all->group[i]);
        if (!plan->outer || !plan->code.kind || plan->fragment + 1 != w->turn) continue;
        bool repeated = is_repeated(w->l, &w->l->p->collectives[all->group[i]], all->member[i]);
        for (int32_t u = 0; repeated && u < plan->n_uses; u++) {
            int32_t slot = w->h->gradient_slot[plan->uses[u]];
            writer_zero(w, PHASE_U, w->b->s->first_layer, arena_join(w->l->a, w->b->s->slots[slot].name, ".once"), slot);
        }
        lower_encode(w, i);
    }
}

static void write_changes(struct writer *w)
{
    write_all(w, write_delta);
    if (!outer_of(w->l)->delay) clear_second_uses(w);
    encode_deltas(w);
    each_outer_group(w, w->b, INSTR_COLLECTIVE_START);
}

static void write_sums(struct writer *w)
{
    each_outer_group(w, w->b, INSTR_COLLECTIVE_WAIT);
    write_all(w, write_sum);
    clear_second_uses(w);
}

static void write_steps(struct writer *w)
{
    if (!outer_of(w->l)->delay) each_outer_group(w, w->b, INSTR_COLLECTIVE_WAIT);
    lower_decode(w, true);
    lower_exchange_ties(w, each_outer_group);
    write_all(w, write_outer);
    gather_shards(w, INSTR_COLLECTIVE_START), gather_shards(w, INSTR_COLLECTIVE_WAIT);
}

int32_t lower_outer_segment(const struct stage_scratch *h, int32_t gradient)
{
    const struct program_stage *s = h->b->s;
    int32_t sum = s->parameters[s->slots[gradient].parameter].outer[2] - 1;
    return sum >= 0 ? sum : gradient;
}

/* --- the exchanges of a stage --- */

static const struct part {
    const char *variant;
    void (*write)(struct writer *w);
    bool late; /* runs `delay` steps after the first one */
} parts[] = {{"delta", write_changes, false}, {"sum", write_sums, true}, {"outer", write_steps, true}};
enum { DELTA, SUM, OUTER, PARTS };

static int32_t parts_of(const struct lowering *l) { return outer_of(l)->delay ? PARTS : PARTS - 1; }

int32_t lower_outer_calls(const struct lowering *l)
{
    return lower_is_local(l) ? outer_of(l)->fragments * parts_of(l) : 0;
}

/* With a delay sums are applied before others start, because exchanges of tied parameters would queue behind these. */
int32_t lower_outer_call(const struct lowering *l, int32_t k)
{
    int32_t fragments = outer_of(l)->fragments;
    if (!outer_of(l)->delay) return k;
    return k < 2 * fragments ? k / 2 * PARTS + SUM + k % 2 : (k - 2 * fragments) * PARTS + DELTA;
}

static void write_part(struct writer *w, int32_t fragment, const struct part *x)
{
    const struct outer_optimizer *o = outer_of(w->l);
    w->turn = fragment + 1;
    x->write(w);
    const char *variant = o->fragments > 1 ? arena_printf(w->l->a, "%s%" PRId32, x->variant, fragment) : x->variant;
    struct procedure *f = &w->b->s->procedures[writer_finish(w, PHASE_U, variant)];
    f->period = o->every, f->offset = period_first(o, fragment) + x->late * o->delay;
}

void lower_outer_procedures(struct writer *w)
{
    struct stage_build *b = w->b;
    b->procedures->exchange = b->s->n_procedures;
    for (int32_t f = 0; lower_is_local(w->l) && f < outer_of(w->l)->fragments; f++)
        for (int k = 0; k < PARTS; k++)
            if (k != SUM || outer_of(w->l)->delay) write_part(w, f, &parts[k]);
}
