/* core/lower/outer.c - local SGD in a program (core/plan/plan.h, struct plan_local_sgd).
 *
 * Every stage keeps an anchor, its parameters after the last exchange, and with Nesterov momentum a velocity; both have the flat layout
 * of the optimizer's state. Behind the update of every period-th step
 *   delta   gradient = weight of the replica's samples · (anchor - parameter), then the sums over all islands start
 *   outer   when they have ended, the outer optimizer's step: anchor, velocity, parameter; the gradient is zero again
 * The sums use the gradients' slots, which are zero behind an update. A device with several chunks calls all its deltas first, so
 * that tied parameters of two chunks can be exchanged in the first outer step, as in updates (core/lower/update.c).
 */
#include "core/lower/outer.h"

#include "core/lower/codes.h"
#include "core/lower/orders.h"
#include "core/lower/param_uses.h"
#include "core/lower/procedures.h"
#include "core/lower/slots.h"
#include "core/lower/writer.h"

#include <inttypes.h>

int32_t lower_outer_states(const struct lowering *l)
{
    return !lower_is_local(l) ? 0 : 1 + (l->plan->local_sgd.outer.kind == OUTER_NESTEROV);
}

double lower_outer_loss_factor(const struct stage_build *b, const struct lowering *l)
{
    if (!lower_is_local(l)) return 1;
    int32_t island = plan_island(l->plan, b->replica);
    return (double)l->p->microbatches / (double)plan_island_microbatches(l->plan, island);
}

/* --- groups --- */

/* Of the two uses of a tied parameter the one of the lower number: its gradient has the parameter's place in the flat layout wherever
 * both are on one stage. */
static bool is_first_use(const struct lowering *l, int32_t param_use)
{
    const int32_t *both = lower_param_use(l, param_use)->uses;
    return both[0] < 0 || both[1] < 0 || param_use == (both[0] < both[1] ? both[0] : both[1]);
}

/* Whether the member before has the same values, which count once. */
static bool is_repeated(const struct lowering *l, const struct collective *g, int32_t member)
{
    return member && l->stages[g->members[member].stage].replica == l->stages[g->members[member - 1].stage].replica;
}

enum status lower_outer_group(struct lowering *l, struct group_plan plan, int32_t key,
                              const char *name, struct error *err)
{
    int32_t n_uses = 0, *uses = ARENA_ARRAY(l->tables, int32_t, (size_t)plan.n_uses);
    for (int32_t i = 0; i < plan.n_uses; i++)
        if (is_first_use(l, plan.uses[i])) uses[n_uses++] = plan.uses[i];
    if (!n_uses) return OK;
    int32_t n = lower_group_members(l, -1, uses[0], key, NULL, 0);
    struct group_plan own = {.n_uses = n_uses, .uses = uses, .outer = true, .code = lower_code(l, true)};
    struct collective *g =
        lower_group_new(l, arena_join(l->a, name, ".outer"), ALGORITHM_RING, n, own);
    (void)lower_group_members(l, -1, uses[0], key, g, 0);
    for (int32_t i = 0; i < n && !own.code.kind; i++) g->members[i].silent = is_repeated(l, g, i);
    const struct stage_build *b = &l->stages[g->members[0].stage];
    if (own.code.kind) g->elements = n * lower_code_words(b, &own);
    for (int32_t i = 0; i < n_uses && !own.code.kind; i++)
        g->elements += shape_elements(&b->v->g->tensors[b->v->param_uses[uses[i]].gradient].shape);
    return lower_group_join(l, l->p->n_collectives - 1, err);
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

static void write_delta(struct writer *w, const char *name, const int32_t *slot)
{
    double weight = (double)w->b->s->microbatches / (double)w->l->p->microbatches;
    bool half = slot[UPDATE_MASTER] >= 0;
    writer_op(w, &(struct program_op){.kind = OP_outer_delta,
                                      .phase = PHASE_U,
                                      .attrs = {.scale = weight},
                                      .name = arena_join(w->l->a, name, ".delta"),
                                      .layer = w->b->s->first_layer,
                                      .n_inputs = 2,
                                      .n_outputs = 1,
                                      .input = {slot[UPDATE_ANCHOR], half ? slot[UPDATE_MASTER] : slot[UPDATE_P]},
                                      .output = {slot[UPDATE_G]}});
}

static void write_outer(struct writer *w, const char *name, const int32_t *slot)
{
    bool half = slot[UPDATE_MASTER] >= 0, nesterov = w->l->plan->local_sgd.outer.kind == OUTER_NESTEROV;
    struct program_op op = {.kind = nesterov ? OP_outer_nesterov : OP_outer_average,
                            .phase = PHASE_U,
                            .attrs = {.narrows = half},
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

/* Over flat runs, or parameter by parameter. */
static void write_all(struct writer *w, void (*write)(struct writer *, const char *, const int32_t *))
{
    const struct program_stage *s = w->b->s;
    const int32_t (*run)[UPDATE_SLOTS] = (const int32_t (*)[UPDATE_SLOTS])w->h->slots->run;
    bool flat = run[0][0] >= 0 || run[1][0] >= 0;
    for (int k = 0; k < 2; k++)
        if (run[k][0] >= 0) write(w, k ? "other" : "decayed", run[k]);
    for (int32_t i = 0; i < s->n_parameters && !flat; i++) {
        const struct program_parameter *p = &s->parameters[i];
        int32_t slot[UPDATE_SLOTS] = {[UPDATE_P] = p->slot,
                                      [UPDATE_G] = lower_primary_gradient(w->b, p),
                                      [UPDATE_MASTER] = p->master,
                                      [UPDATE_ANCHOR] = p->outer[0] - 1,
                                      [UPDATE_VELOCITY] = p->outer[1] - 1};
        if (slot[UPDATE_G] >= 0) write(w, p->name, slot);
    }
}

static void each_outer_group(struct writer *w, const struct stage_build *b, enum instr_kind kind)
{
    for (int32_t i = 0; i < b->groups->n; i++)
        if (lower_group_plan(w->l, b->groups->group[i])->outer)
            writer_emit(w, kind, b->groups->group[i]);
}

/* Repeated values are encoded as zeros. */
static void encode_deltas(struct writer *w)
{
    const struct stage_groups *all = w->b->groups;
    for (int32_t i = 0; i < all->n; i++) {
        const struct group_plan *plan = lower_group_plan(w->l, all->group[i]);
        if (!plan->outer || !plan->code.kind) continue;
        bool repeated = is_repeated(w->l, &w->l->p->collectives[all->group[i]], all->member[i]);
        for (int32_t u = 0; repeated && u < plan->n_uses; u++) {
            int32_t slot = w->h->gradient_slot[plan->uses[u]];
            writer_zero(w, PHASE_U, w->b->s->first_layer, arena_join(w->l->a, w->b->s->slots[slot].name, ".once"), slot);
        }
        lower_encode(w, i);
    }
}

static void delta_procedure(struct writer *w)
{
    struct program_stage *s = w->b->s;
    write_all(w, write_delta);
    for (int32_t i = 0; i < s->n_parameters; i++) {
        int32_t slot = lower_primary_gradient(w->b, &s->parameters[i]);
        if (slot >= 0 && !has_first_use(w, &s->parameters[i]))
            writer_zero(w, PHASE_U, s->first_layer,
                        arena_join(w->l->a, s->parameters[i].name, ".delta.tied"), slot);
    }
    encode_deltas(w);
    each_outer_group(w, w->b, INSTR_COLLECTIVE_START);
    w->b->procedures->delta = writer_finish(w, PHASE_U, "delta");
}

static void outer_procedure(struct writer *w)
{
    each_outer_group(w, w->b, INSTR_COLLECTIVE_WAIT);
    lower_decode(w, true);
    lower_exchange_ties(w, each_outer_group);
    write_all(w, write_outer);
    w->b->procedures->outer = writer_finish(w, PHASE_U, "outer");
}

void lower_outer_procedures(struct writer *w)
{
    struct stage_build *b = w->b;
    b->procedures->delta = b->procedures->outer = -1;
    if (!lower_is_local(w->l)) return;
    delta_procedure(w);
    outer_procedure(w);
    int32_t period = w->l->plan->local_sgd.outer.every;
    b->s->procedures[b->procedures->delta].period = b->s->procedures[b->procedures->outer].period = period;
}
