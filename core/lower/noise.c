#include "core/lower/noise.h"

#include "core/lower/groups.h"
#include "core/lower/slots.h"
#include "core/lower/writer.h"

#include <inttypes.h>
#include <stdlib.h>

struct stage_noise {
    bool any[GRADIENT_SQUARES]; /* an operator has set the sum */
    int32_t *n, **run;          /* (groups of the stage): slots that cover the group's gradients */
};

static int by_offset(const void *x, const void *y)
{
    const struct slot *a = x, *b = y;
    return (a->offset_bytes > b->offset_bytes) - (a->offset_bytes < b->offset_bytes);
}

static bool is_reduced(const struct group_plan *g) { return g->n_uses && !g->tied && !g->agrees && !g->outer && !g->zero; }

/* The padding between two gradients is zero (core/lower/slots.c). */
static bool follows(const struct slot *before, const struct slot *x)
{
    return x->offset_bytes - before->offset_bytes - before->bytes < SLOT_ALIGN * lower_wide(DTYPE_bf16);
}

static void find_runs(struct stage_scratch *h, int32_t i)
{
    const struct group_plan *g = lower_group_plan(h->l, h->b->groups->group[i]);
    struct slot *x = ARENA_ARRAY(h->work, struct slot, (size_t)g->n_uses);
    int32_t *run = h->noise->run[i] = ARENA_ARRAY(h->work, int32_t, (size_t)g->n_uses), n = 0;
    for (int32_t u = 0; u < g->n_uses; u++) x[u] = h->b->s->slots[h->gradient_slot[g->uses[u]]];
    qsort(x, (size_t)g->n_uses, sizeof *x, by_offset);
    for (int32_t first = 0, end; first < g->n_uses; first = end) {
        for (end = first + 1; end < g->n_uses && follows(&x[end - 1], &x[end]);) end++;
        const struct slot *last = &x[end - 1];
        int64_t bytes = last->offset_bytes + last->bytes - x[first].offset_bytes;
        run[n++] = lower_add_slot(
            h, (struct slot){.name = end - first > 1 ? arena_printf(h->l->a, "%s..%s", x[first].name, last->name) : x[first].name,
                             .class = SLOT_GRADIENT,
                             .dtype = last->dtype,
                             .buffer_ring = -1,
                             .parameter = -1,
                             .input = -1,
                             .shape = {.rank = 1, .dim = {bytes / dtype_bytes(last->dtype)}},
                             .offset_bytes = x[first].offset_bytes});
    }
    h->noise->n[i] = n;
}

void lower_noise_slots(struct stage_scratch *h)
{
    static const char *const names[GRADIENT_SQUARES] = {"gradient_squares.replica", "gradient_squares.sum"};
    const struct stage_groups *all = h->b->groups;
    h->noise = ARENA_ARRAY(h->work, struct stage_noise, 1);
    *h->noise = (struct stage_noise){.n = ARENA_ARRAY(h->work, int32_t, (size_t)all->n + 1),
                                     .run = ARENA_ARRAY(h->work, int32_t *, (size_t)all->n + 1)};
    for (int k = 0; k < GRADIENT_SQUARES; k++)
        h->b->s->squares_slot[k] = lower_last_slot(h, (struct slot){.name = names[k],
                                                                    .class = SLOT_GRADIENT,
                                                                    .dtype = dtype_master(h->v->g->dtype),
                                                                    .shape = {.rank = 1, .dim = {1}},
                                                                    .parameter = -1});
    for (int32_t i = 0; i < all->n; i++)
        if (is_reduced(lower_group_plan(h->l, all->group[i]))) find_runs(h, i);
}

void lower_noise_look(struct writer *w, int32_t i, bool reduced)
{
    struct stage_noise *x = w->h->noise;
    for (int32_t k = 0; k < x->n[i]; k++) {
        const char *name = arena_join(w->l->a, w->b->s->slots[x->run[i][k]].name, reduced ? ".sum.squares" : ".squares");
        writer_op(w, &(struct program_op){.kind = OP_square_sum,
                                         .phase = PHASE_U,
                                         .attrs = {.accumulate = x->any[reduced]},
                                         .name = name,
                                         .layer = w->b->s->first_layer,
                                         .n_inputs = 1,
                                         .n_outputs = 1,
                                         .input = {x->run[i][k]},
                                         .output = {w->b->s->squares_slot[reduced]}});
        x->any[reduced] = true;
    }
}

void lower_noise_look_reduced(struct writer *w)
{
    const struct stage_noise *x = w->h->noise;
    for (int32_t i = 0; i < w->b->groups->n; i++) lower_noise_look(w, i, true);
    for (int k = 0; k < GRADIENT_SQUARES; k++)
        if (!x->any[k])
            writer_zero(w, PHASE_U, w->b->s->first_layer, "gradient_squares.none", w->b->s->squares_slot[k]);
}
