#include "core/lower/codes.h"

#include "core/base/rng.h"
#include "core/lower/slots.h"
#include "core/lower/writer.h"
#include "core/lower/zero_slots.h"

/* Of one group of the stage; n 0: not encoded. What is encoded: gradients of parameter uses, or, between nodes, own shards of sums. */
struct stage_codes {
    int32_t n, *of;                    /* (n) its slots */
    int32_t *own, *all;                /* (n) slots of the device's code and of all members' */
    int32_t (*state)[ENCODING_STATES_MAX]; /* (n) of its feedback */
};

struct encoding lower_code(const struct lowering *l, bool outer)
{
    return plan_compressor_code(&l->plan->compression, outer ? COMPRESSION_OF_OUTER : COMPRESSION_OF_GRADIENTS, l->p->dtype);
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

int64_t lower_code_words_between(const struct lowering *l, const struct group_plan *plan, int32_t of)
{
    const struct zero_group *z = lower_zero_group(l, of);
    int64_t words = 0;
    for (int32_t k = 0; k < z->n_flat_params; k++)
        words += encoding_words(&plan->code, z->flat_param[k].elements / l->p->collectives[of].n_members);
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
    enum compression_of of = plan->outer ? COMPRESSION_OF_OUTER : COMPRESSION_OF_GRADIENTS;
    int32_t first = plan->outer ? FEEDBACK_OUTER : ENCODING_STATES_MAX * h->v->param_uses[use].use;
    for (int32_t k = 0; k < encoding_states(&plan->code); k++) {
        struct slot x = {.name = arena_printf(h->l->a, "%s%s.%s%s", g.name, plan->outer ? ".outer" : "",
                                              plan_compressor_label(h->l->a, plan_compressor(&h->l->plan->compression, of)),
                                              names[plan->code.feedback - 1 + k]),
                         .class = SLOT_FEEDBACK,
                         .dtype = g.dtype,
                         .shape = g.shape,
                         .parameter = g.parameter};
        state[k] = lower_last_slot(h, x);
        p->feedback[first + k] = 1 + state[k];
    }
}

/* The group inside the node whose sums one between nodes exchanges. */
static int32_t inside_of(const struct stage_scratch *h, const struct group_plan *plan)
{
    return lower_group_of_param_use(h->l, h->b, plan->uses[0]).group;
}

static void find_encoded(struct stage_scratch *h, const struct group_plan *plan, struct stage_codes *x)
{
    const int32_t *flat = plan->between ? lower_zero_flat_shard(h, inside_of(h, plan))->own_gradient : NULL;
    x->n = flat ? lower_zero_group(h->l, inside_of(h, plan))->n_flat_params : plan->n_uses;
    size_t n = (size_t)x->n;
    x->of = ARENA_ARRAY(h->work, int32_t, n);
    x->own = ARENA_ARRAY(h->work, int32_t, n), x->all = ARENA_ARRAY(h->work, int32_t, n);
    x->state = arena_alloc(h->work, n, sizeof *x->state);
    for (int32_t u = 0; u < x->n; u++) x->of[u] = flat ? flat[u] : h->gradient_slot[plan->uses[u]];
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
        find_encoded(h, plan, x);
        for (int32_t u = 0; u < x->n; u++) {
            const struct slot g = h->b->s->slots[x->of[u]];
            int64_t words = encoding_words(&plan->code, shape_elements(&g.shape));
            const char *name = plan->outer ? arena_join(h->l->a, g.name, ".outer") : g.name;
            x->own[u] = words_slot(h, arena_join(h->l->a, name, ".code"), words);
            x->all[u] = words_slot(h, arena_join(h->l->a, name, ".codes"), n * words);
            if (plan->code.feedback) state_slots(h, plan, plan->uses[u], x->state[u]);
        }
    }
}

void lower_code_segments(const struct stage_scratch *h, int32_t i, struct collective_member *m)
{
    const struct stage_codes *x = &h->codes[i];
    m->n_segments = x->n;
    m->segments = ARENA_ARRAY(h->l->a, int32_t, (size_t)x->n);
    m->own = ARENA_ARRAY(h->l->a, int32_t, (size_t)x->n);
    for (int32_t u = 0; u < x->n; u++) m->segments[u] = x->all[u], m->own[u] = x->own[u];
}

/* --- operators --- */

bool lower_encodes(const struct stage_scratch *h, bool outer)
{
    for (int32_t i = 0; i < h->b->groups->n; i++) {
        const struct group_plan *plan = lower_group_plan(h->l, h->b->groups->group[i]);
        if ((plan->code.kind || plan->factor) && !plan->between && plan->outer == outer) return true;
    }
    return false;
}

/* The code in slot `to` of the numbers in slot `from`, with a slot of feedback or -1. */
static void encode(struct writer *w, struct program_op op, int32_t from, int32_t to, int32_t state)
{
    op.kind = OP_encode;
    op.name = arena_join(w->l->a, w->b->s->slots[to].name, ".encode");
    op.attrs.stream = (int64_t)(rng_hash_text(0, op.name) >> 1);
    op.input[op.n_inputs++] = from;
    op.output[op.n_outputs++] = to;
    if (state >= 0) op.input[op.n_inputs++] = op.output[op.n_outputs++] = state;
    writer_op(w, &op);
}

/* Back, of one code or several. */
static void decode(struct writer *w, struct program_op op, int32_t from, int32_t to, int32_t state)
{
    op.kind = OP_decode;
    op.name = arena_join(w->l->a, w->b->s->slots[from].name, ".decode");
    op.input[op.n_inputs++] = op.output[op.n_outputs++] = to;
    op.input[op.n_inputs++] = from;
    if (state >= 0) op.input[op.n_inputs++] = op.output[op.n_outputs++] = state;
    writer_op(w, &op);
}

void lower_encode_message(struct writer *w, enum phase phase, int32_t layer, const struct encoding *code, int32_t from, int32_t to)
{
    encode(w, (struct program_op){.phase = phase, .attrs = {.code = *code}, .layer = layer}, from, to, -1);
}

void lower_decode_message(struct writer *w, enum phase phase, int32_t layer, const struct encoding *code, int32_t from, int32_t to)
{
    decode(w, (struct program_op){.phase = phase, .attrs = {.code = *code}, .layer = layer}, from, to, -1);
}

/* Of a gradient, or of a shard, which has those of several layers. */
static struct program_op op_of(const struct writer *w, const struct group_plan *plan, int32_t u)
{
    int32_t use = plan->uses[plan->between ? 0 : u];
    return (struct program_op){.phase = PHASE_U, .attrs = {.code = plan->code}, .layer = w->h->v->param_uses[use].layer};
}

void lower_encode(struct writer *w, int32_t i)
{
    const struct stage_codes *x = &w->h->codes[i];
    const struct group_plan *plan = lower_group_plan(w->l, w->b->groups->group[i]);
    for (int32_t u = 0; u < x->n; u++)
        encode(w, op_of(w, plan, u), x->of[u], x->own[u], plan->code.feedback ? x->state[u][0] : -1);
}

static void decode_group(struct writer *w, int32_t i)
{
    const struct stage_codes *x = &w->h->codes[i];
    const struct group_plan *plan = lower_group_plan(w->l, w->b->groups->group[i]);
    for (int32_t u = 0; u < x->n; u++)
        decode(w, op_of(w, plan, u), x->all[u], x->of[u], plan->code.feedback == FEEDBACK_EF21 ? x->state[u][1] : -1);
}

void lower_decode(struct writer *w, bool outer)
{
    for (int32_t i = 0; i < w->b->groups->n; i++) {
        const struct group_plan *plan = lower_group_plan(w->l, w->b->groups->group[i]);
        bool now = plan->outer == outer && (!outer || plan->fragment + 1 == w->turn);
        if (now && !lower_group_late(plan)) decode_group(w, i);
    }
}

bool lower_codes_between(const struct stage_scratch *h, int32_t group)
{
    for (int32_t i = 0; i < h->b->groups->n; i++) {
        const struct group_plan *plan = lower_group_plan(h->l, h->b->groups->group[i]);
        if (plan->between && plan->code.kind && inside_of(h, plan) == group) return true;
    }
    return false;
}

void lower_exchange_between(struct writer *w)
{
    const struct stage_groups *all = w->b->groups;
    for (int awaits = 0; awaits < 2; awaits++)
        for (int32_t i = 0; i < all->n; i++) {
            const struct group_plan *plan = lower_group_plan(w->l, all->group[i]);
            if (!plan->between || !plan->code.kind) continue;
            int32_t inside = inside_of(w->h, plan);
            if (awaits) {
                writer_emit(w, INSTR_COLLECTIVE_WAIT, all->group[i]);
                decode_group(w, i);
                continue;
            }
            if (lower_group_plan(w->l, inside)->zero == 1) writer_emit(w, INSTR_COLLECTIVE_WAIT, inside);
            lower_encode(w, i);
            writer_emit(w, INSTR_COLLECTIVE_START, all->group[i]);
        }
}
