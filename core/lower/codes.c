#include "core/lower/codes.h"

#include "core/base/rng.h"
#include "core/lower/slots.h"
#include "core/lower/writer.h"

struct stage_codes { /* of one group of the stage; own NULL: not encoded */
    int32_t *own, *all;                /* (n_uses) slots of the device's code and of all members' */
    int32_t (*state)[ENCODING_STATES_MAX]; /* (n_uses) of its feedback */
};

struct encoding lower_code(const struct lowering *l, bool outer)
{
    const struct plan_compression *x = &l->plan->compression;
    return plan_compressor_code(outer ? &x->outer : &x->gradients, l->p->dtype);
}

enum status lower_codes_check(const struct lowering *l, const struct stage_build *b, const char *parameter,
                              const char *why, struct error *err)
{
    const struct plan_compression *x = &l->plan->compression;
    if (x->gradients.kind < COMPRESSION_INT8 && x->outer.kind < COMPRESSION_INT8) return OK;
    return lower_error(l, b, err, ERR_INPUT, "compression: parameter %s %s, which bf16 and fp16 cover and the other kinds do not",
                       parameter, why);
}

int64_t lower_code_words(const struct stage_build *b, const struct group_plan *plan)
{
    int64_t words = 0;
    for (int32_t i = 0; i < plan->n_uses; i++) {
        const struct tensor *t = &b->v->g->tensors[b->v->param_uses[plan->uses[i]].gradient];
        words += encoding_words(&plan->code, shape_elements(&t->shape));
    }
    return words;
}

/* --- slots --- */

static int32_t words_slot(const struct stage_scratch *h, const char *name, int64_t words)
{
    return lower_last_slot(h, (struct slot){.name = name,
                                            .class = SLOT_GRADIENT,
                                            .dtype = DTYPE_int32,
                                            .shape = {.rank = 1, .dim = {words}},
                                            .parameter = -1});
}

static void state_slots(const struct stage_scratch *h, const struct group_plan *plan, int32_t use, int32_t *state)
{
    static const char *const names[] = {".error", ".estimate", ".estimates"};
    const struct slot g = h->b->s->slots[h->gradient_slot[use]];
    struct program_parameter *p = &h->b->s->parameters[g.parameter];
    int32_t first = plan->outer ? FEEDBACK_OUTER : ENCODING_STATES_MAX * h->v->param_uses[use].use;
    for (int32_t k = 0; k < encoding_states(&plan->code); k++) {
        struct slot x = {.name = arena_printf(h->l->a, "%s%s%s", g.name, plan->outer ? ".outer" : "",
                                              names[plan->code.feedback - 1 + k]),
                         .class = SLOT_STATE,
                         .dtype = g.dtype,
                         .shape = g.shape,
                         .parameter = g.parameter};
        state[k] = lower_last_slot(h, x);
        p->feedback[first + k] = 1 + state[k];
    }
}

void lower_code_slots(struct stage_scratch *h)
{
    const struct stage_groups *all = h->b->groups;
    h->codes = ARENA_ARRAY(h->work, struct stage_codes, (size_t)all->n);
    for (int32_t i = 0; i < all->n; i++) {
        const struct group_plan *plan = lower_group_plan(h->l, all->group[i]);
        int32_t n = h->l->p->collectives[all->group[i]].n_members;
        struct stage_codes *x = &h->codes[i];
        if (!plan->code.kind) continue;
        x->own = ARENA_ARRAY(h->work, int32_t, (size_t)plan->n_uses);
        x->all = ARENA_ARRAY(h->work, int32_t, (size_t)plan->n_uses);
        x->state = arena_alloc(h->work, (size_t)plan->n_uses, sizeof *x->state);
        for (int32_t u = 0; u < plan->n_uses; u++) {
            const struct slot g = h->b->s->slots[h->gradient_slot[plan->uses[u]]];
            int64_t words = encoding_words(&plan->code, shape_elements(&g.shape));
            const char *name = plan->outer ? arena_join(h->l->a, g.name, ".outer") : g.name;
            x->own[u] = words_slot(h, arena_join(h->l->a, name, ".code"), words);
            x->all[u] = words_slot(h, arena_join(h->l->a, name, ".codes"), n * words);
            state_slots(h, plan, plan->uses[u], x->state[u]);
        }
    }
}

void lower_code_segments(const struct stage_scratch *h, int32_t i, struct collective_member *m)
{
    struct lowering *l = h->l;
    int32_t n = m->n_segments = lower_group_plan(l, h->b->groups->group[i])->n_uses;
    m->segments = ARENA_ARRAY(l->a, int32_t, (size_t)n);
    m->own = ARENA_ARRAY(l->a, int32_t, (size_t)n);
    for (int32_t u = 0; u < n; u++) m->segments[u] = h->codes[i].all[u], m->own[u] = h->codes[i].own[u];
}

/* --- operators --- */

bool lower_encodes(const struct stage_scratch *h, bool outer)
{
    for (int32_t i = 0; i < h->b->groups->n; i++) {
        const struct group_plan *plan = lower_group_plan(h->l, h->b->groups->group[i]);
        if ((plan->code.kind || plan->factor) && plan->outer == outer) return true;
    }
    return false;
}

void lower_encode(struct writer *w, int32_t i)
{
    const struct stage_codes *x = &w->h->codes[i];
    const struct group_plan *plan = lower_group_plan(w->l, w->b->groups->group[i]);
    for (int32_t u = 0; u < plan->n_uses; u++) {
        struct program_op op = {.kind = OP_encode,
                                .phase = PHASE_U,
                                .attrs = {.code = plan->code},
                                .name = arena_join(w->l->a, w->b->s->slots[x->own[u]].name, ".encode"),
                                .layer = w->h->v->param_uses[plan->uses[u]].layer};
        op.attrs.stream = (int64_t)(rng_hash_text(0, op.name) >> 1);
        op.input[op.n_inputs++] = w->h->gradient_slot[plan->uses[u]];
        op.output[op.n_outputs++] = x->own[u];
        if (plan->code.feedback) op.input[op.n_inputs++] = op.output[op.n_outputs++] = x->state[u][0];
        writer_op(w, &op);
    }
}

static void decode(struct writer *w, const struct group_plan *plan, const struct stage_codes *x, int32_t u)
{
    int32_t gradient = w->h->gradient_slot[plan->uses[u]];
    struct program_op op = {.kind = OP_decode,
                            .phase = PHASE_U,
                            .attrs = {.code = plan->code},
                            .name = arena_join(w->l->a, w->b->s->slots[x->all[u]].name, ".decode"),
                            .layer = w->h->v->param_uses[plan->uses[u]].layer,
                            .n_inputs = 2,
                            .n_outputs = 1,
                            .input = {gradient, x->all[u]},
                            .output = {gradient}};
    if (plan->code.feedback == FEEDBACK_EF21)
        op.input[op.n_inputs++] = op.output[op.n_outputs++] = x->state[u][1];
    writer_op(w, &op);
}

void lower_decode(struct writer *w, bool outer)
{
    for (int32_t i = 0; i < w->b->groups->n; i++) {
        const struct group_plan *plan = lower_group_plan(w->l, w->b->groups->group[i]);
        bool now = plan->outer == outer && (!outer || plan->fragment + 1 == w->turn);
        for (int32_t u = 0; plan->code.kind && now && u < plan->n_uses; u++)
            decode(w, plan, &w->h->codes[i], u);
    }
}
