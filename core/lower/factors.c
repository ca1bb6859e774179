#include "core/lower/factors.h"

#include "core/base/rng.h"
#include "core/lower/slots.h"
#include "core/lower/writer.h"

struct stage_factors { /* of one group with the left factor; p NULL: another group */
    int32_t *p, *q, *error; /* (n_uses) slots; error -1: none */
};

static const struct compressor *power(const struct lowering *l) { return &l->plan->compression.gradients; }

static const struct shape *shape_of(const struct stage_build *b, int32_t use)
{
    return &b->v->g->tensors[b->v->param_uses[use].gradient].shape;
}

static bool is_wide(const struct shape *m) { return m->dim[0] <= m->dim[1]; }

/* (shorter side, r), or (longer side, r). */
static struct shape factor_shape(const struct lowering *l, const struct shape *m, enum group_factor factor)
{
    int64_t least = m->dim[!is_wide(m)], rank = power(l)->rank < least ? power(l)->rank : least;
    return (struct shape){2, {factor == FACTOR_LEFT ? least : m->dim[is_wide(m)], rank}};
}

bool lower_factors_split(struct lowering *l, const struct group_plan *all, struct group_plan *matrices,
                         struct group_plan *others)
{
    if (power(l)->kind != COMPRESSION_POWER_SGD) return false;
    *matrices = *others = *all;
    int32_t *list[2] = {ARENA_ARRAY(l->tables, int32_t, (size_t)all->n_uses), ARENA_ARRAY(l->tables, int32_t, (size_t)all->n_uses)};
    int32_t n[2] = {0};
    for (int32_t i = 0; i < all->n_uses; i++) {
        bool matrix = shape_of(lower_param_use_owner(l, 0, all->uses[i]), all->uses[i])->rank == 2;
        list[matrix][n[matrix]++] = all->uses[i];
    }
    others->uses = list[0], others->n_uses = n[0];
    matrices->uses = list[1], matrices->n_uses = n[1];
    return true;
}

int64_t lower_factor_elements(const struct lowering *l, const struct stage_build *b, const struct group_plan *plan)
{
    int64_t n = 0;
    for (int32_t i = 0; i < plan->n_uses; i++) {
        struct shape x = factor_shape(l, shape_of(b, plan->uses[i]), plan->factor);
        n += shape_elements(&x);
    }
    return n;
}

/* --- slots --- */

static int32_t last_slot(const struct stage_scratch *h, int32_t gradient, const char *suffix, enum slot_class class,
                         struct shape shape)
{
    const struct slot g = h->b->s->slots[gradient];
    return lower_last_slot(h, (struct slot){.name = arena_join(h->l->a, g.name, suffix),
                                            .class = class,
                                            .dtype = g.dtype,
                                            .shape = shape,
                                            .parameter = g.parameter});
}

static void use_slots(const struct stage_scratch *h, int32_t use, struct stage_factors *x, int32_t u)
{
    int32_t gradient = h->gradient_slot[use], *feedback;
    const struct slot g = h->b->s->slots[gradient];
    feedback = &h->b->s->parameters[g.parameter].feedback[ENCODING_STATES_MAX * h->v->param_uses[use].use];
    x->p[u] = last_slot(h, gradient, ".left", SLOT_GRADIENT, factor_shape(h->l, &g.shape, FACTOR_LEFT));
    const char *label = plan_compressor_label(h->l->a, power(h->l));
    x->q[u] = last_slot(h, gradient, arena_printf(h->l->a, ".%s.right", label), SLOT_GRADIENT, factor_shape(h->l, &g.shape, FACTOR_RIGHT));
    x->error[u] = power(h->l)->feedback ? last_slot(h, gradient, arena_printf(h->l->a, ".%s.error", label), SLOT_FEEDBACK, g.shape) : -1;
    feedback[0] = 1 + x->error[u], feedback[1] = 1 + x->q[u];
}

void lower_factor_slots(struct stage_scratch *h)
{
    const struct stage_groups *all = h->b->groups;
    h->factors = ARENA_ARRAY(h->work, struct stage_factors, (size_t)all->n);
    for (int32_t i = 0; i < all->n; i++) {
        const struct group_plan *plan = lower_group_plan(h->l, all->group[i]);
        struct stage_factors *x = &h->factors[i];
        if (plan->factor != FACTOR_LEFT) continue;
        size_t n = (size_t)plan->n_uses;
        x->p = ARENA_ARRAY(h->work, int32_t, n), x->q = ARENA_ARRAY(h->work, int32_t, n);
        x->error = ARENA_ARRAY(h->work, int32_t, n);
        for (int32_t u = 0; u < plan->n_uses; u++) use_slots(h, plan->uses[u], x, u);
    }
}

/* Of a group of either factor: both have one list of uses, and one island. */
static const struct stage_factors *factors_of(const struct stage_scratch *h, int32_t i)
{
    const struct stage_groups *all = h->b->groups;
    const int32_t *uses = lower_group_plan(h->l, all->group[i])->uses;
    int32_t left = 0;
    while (!h->factors[left].p || lower_group_plan(h->l, all->group[left])->uses != uses) left++;
    return &h->factors[left];
}

void lower_factor_segments(const struct stage_scratch *h, int32_t i, struct collective_member *m)
{
    const struct group_plan *plan = lower_group_plan(h->l, h->b->groups->group[i]);
    const struct stage_factors *x = factors_of(h, i);
    m->n_segments = plan->n_uses;
    m->segments = ARENA_ARRAY(h->l->a, int32_t, (size_t)plan->n_uses);
    for (int32_t u = 0; u < plan->n_uses; u++) m->segments[u] = plan->factor == FACTOR_LEFT ? x->p[u] : x->q[u];
}

/* --- operators --- */

static void product(struct writer *w, int32_t use, const char *suffix, struct op_attrs attrs, int32_t a, int32_t b,
                    int32_t to)
{
    const char *name = w->b->s->slots[w->h->gradient_slot[use]].name;
    writer_op(w, &(struct program_op){.kind = OP_matmul,
                                      .phase = PHASE_U,
                                      .attrs = attrs,
                                      .name = arena_join(w->l->a, name, suffix),
                                      .layer = w->h->v->param_uses[use].layer,
                                      .n_inputs = 2,
                                      .n_outputs = 1,
                                      .input = {a, b},
                                      .output = {to}});
}

/* The gradient's slot = P Qᵀ, or its transpose. */
static void join(struct writer *w, int32_t use, const char *suffix, int32_t p, int32_t q)
{
    int32_t g = w->h->gradient_slot[use];
    bool wide = is_wide(&w->b->s->slots[g].shape);
    product(w, use, suffix, (struct op_attrs){.trans_b = true}, wide ? p : q, wide ? q : p, g);
}

void lower_factor_left(struct writer *w, int32_t i)
{
    const struct group_plan *plan = lower_group_plan(w->l, w->b->groups->group[i]);
    const struct stage_factors *x = factors_of(w->h, i);
    for (int32_t u = 0; u < plan->n_uses; u++) {
        int32_t use = plan->uses[u], g = w->h->gradient_slot[use], m = x->error[u] >= 0 ? x->error[u] : g;
        const struct slot *of = &w->b->s->slots[g];
        if (m != g)
            writer_accumulate(w, PHASE_U, w->h->v->param_uses[use].layer, arena_join(w->l->a, of->name, ".error"), g, m);
        product(w, use, ".left", (struct op_attrs){.trans_a = !is_wide(&of->shape)}, m, x->q[u], x->p[u]);
    }
}

static void right(struct writer *w, int32_t use, const struct stage_factors *x, int32_t u)
{
    int32_t g = w->h->gradient_slot[use], m = x->error[u] >= 0 ? x->error[u] : g, layer = w->h->v->param_uses[use].layer;
    const char *name = w->b->s->slots[g].name;
    struct program_op op = {.kind = OP_orthonormal,
                            .phase = PHASE_U,
                            .name = arena_join(w->l->a, name, ".orthonormal"),
                            .layer = layer,
                            .n_inputs = 1,
                            .n_outputs = 1,
                            .input = {x->p[u]},
                            .output = {x->p[u]}};
    op.attrs.stream = (int64_t)(rng_hash_text(0, op.name) >> 1);
    writer_op(w, &op);
    product(w, use, ".right", (struct op_attrs){.trans_a = is_wide(&w->b->s->slots[g].shape)}, m, x->p[u], x->q[u]);
    if (m == g) return;
    join(w, use, ".own", x->p[u], x->q[u]);
    writer_op(w, &(struct program_op){.kind = OP_outer_delta,
                                      .phase = PHASE_U,
                                      .attrs = {.scale = 1},
                                      .name = arena_join(w->l->a, name, ".rest"),
                                      .layer = layer,
                                      .n_inputs = 2,
                                      .n_outputs = 1,
                                      .input = {m, g},
                                      .output = {m}});
}

void lower_factor_right(struct writer *w)
{
    const struct stage_groups *all = w->b->groups;
    for (int awaits = 0; awaits < 2; awaits++)
        for (int32_t i = 0; i < all->n; i++) {
            const struct group_plan *plan = lower_group_plan(w->l, all->group[i]);
            if (plan->factor != FACTOR_RIGHT) continue;
            const struct stage_factors *x = factors_of(w->h, i);
            if (awaits) writer_emit(w, INSTR_COLLECTIVE_WAIT, all->group[i]);
            for (int32_t u = 0; u < plan->n_uses; u++) {
                if (awaits)
                    join(w, plan->uses[u], ".sum", x->p[u], x->q[u]);
                else
                    right(w, plan->uses[u], x, u);
            }
            if (!awaits) writer_emit(w, INSTR_COLLECTIVE_START, all->group[i]);
        }
}
