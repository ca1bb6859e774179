#include "core/lower/clip.h"

#include "core/collective/tensor_shard.h"
#include "core/lower/groups.h"
#include "core/lower/scale.h"
#include "core/lower/shards.h"
#include "core/lower/slots.h"
#include "core/lower/writer.h"
#include "core/lower/zero_slots.h"

#include <inttypes.h>
#include <stdlib.h>

/* --- slots --- */

static int32_t numbers(const struct stage_scratch *h, const char *name, int64_t n)
{
    return lower_last_slot(h, (struct slot){.name = name,
                                            .class = SLOT_GRADIENT,
                                            .dtype = dtype_master(h->v->g->dtype),
                                            .shape = {.rank = 1, .dim = {n}},
                                            .parameter = -1});
}

void lower_clip_slots(struct stage_scratch *h)
{
    struct stage_slots *s = h->slots;
    s->squares = numbers(h, "gradient_norm.squares", 1);
    s->squares_back = lower_scale_gives_back(h->l, h->b) ? s->squares : numbers(h, "gradient_norm.all", 1);
    h->b->s->clip_slot = numbers(h, "gradient_norm", 2);
}

/* --- which gradients count --- */

bool lower_clip_replica(const struct lowering *l, const struct stage_build *b)
{
    for (int32_t r = 0; r < b->replica; r++)
        if (plan_island(l->plan, r) == plan_island(l->plan, b->replica)) return false;
    return true;
}

/* Of the devices of the plan's stage with equal shards of the parameter: those of the lowest key, because each key reduces the shard; of
 * these the first one, or with ZeRO all, which have parts of it. */
static bool counts_among_shards(const struct stage_build *b, int32_t param_use, bool zero)
{
    const struct stage_build *first = b - b->shard;
    const struct tensor_shard *own = lower_parameter_shard(b, param_use);
    int32_t key = lower_shard_key(b, param_use);
    for (int32_t k = 0; k < b->n_shards; k++) {
        int32_t other = lower_shard_key(first + k, param_use);
        bool before = other < key || (!zero && other == key && k < b->shard);
        if (before && tensor_shard_equal(lower_parameter_shard(first + k, param_use), own)) return false;
    }
    return true;
}

/* Without ZeRO. */
static bool counts(const struct lowering *l, const struct stage_build *b, int32_t param_use)
{
    int32_t first = lower_param_use(l, param_use)->uses[0];
    if (first >= 0 && !lower_owns(b, lower_param_use(l, first)->layer)) return false;
    return lower_clip_replica(l, b) && counts_among_shards(b, first >= 0 ? first : param_use, false);
}

/* Hybrid shard: whether the stage is in the first part of the group's devices. */
static bool in_first_part(const struct lowering *l, const struct stage_build *b, const struct group_plan *of)
{
    for (int32_t i = 0; i < b->groups->n; i++) {
        const struct group_plan *g = lower_group_plan(l, b->groups->group[i]);
        if (g->between && g->uses == of->uses) return b->groups->member[i] == 0;
    }
    return true;
}

bool lower_clip_by_member(const struct lowering *l, const struct stage_build *b, int32_t group)
{
    const struct group_plan *g = lower_group_plan(l, group);
    bool any[FLAT_PARAMS_MAX][2] = {{false}}, mixed = g->zero > 1;
    for (int32_t i = 0; i < g->n_uses && b->n_shards > 1 && !mixed; i++) {
        bool *seen = any[g->divided->places[i].flat_param];
        seen[counts_among_shards(b, g->uses[i], true)] = true;
        mixed = seen[0] && seen[1];
    }
    return mixed;
}

/* --- operators --- */

struct gradient_run { /* adjacent gradients, in bytes of their region, not empty */
    int64_t first, end;
    const char *name;
    bool counts;
};

static int by_place(const void *x, const void *y)
{
    const struct gradient_run *a = x, *b = y;
    return (a->first > b->first) - (a->first < b->first);
}

static void look(struct writer *w, int32_t slot, bool counts)
{
    int32_t squares = w->h->slots->squares;
    writer_op(w, &(struct program_op){.kind = OP_square_sum,
                                     .phase = PHASE_U,
                                     .attrs = {.accumulate = w->h->slots->looked, .blank = !counts},
                                     .name = arena_join(w->l->a, w->b->s->slots[slot].name, ".squares"),
                                     .layer = w->b->s->first_layer,
                                     .n_inputs = 1,
                                     .n_outputs = 1,
                                     .input = {slot},
                                     .output = {squares}});
    w->h->slots->looked = true;
}

static void look_at_run(struct writer *w, const struct gradient_run *x)
{
    enum dtype t = dtype_master(w->h->v->g->dtype);
    struct slot s = {.name = x->name,
                     .class = SLOT_GRADIENT,
                     .dtype = t,
                     .buffer_ring = -1,
                     .parameter = -1,
                     .input = -1,
                     .shape = {.rank = 1, .dim = {(x->end - x->first) / dtype_bytes(t)}},
                     .offset_bytes = x->first};
    look(w, lower_add_slot(w->h, s), x->counts);
}

/* Neighbours that count alike are one run; the padding between them, of less than `gap` bytes, is zero (core/lower/slots.c). */
static void look_at_runs(struct writer *w, struct gradient_run *x, int32_t n, int64_t gap)
{
    qsort(x, (size_t)n, sizeof *x, by_place);
    for (int32_t first = 0, end; first < n; first = end) {
        struct gradient_run all = x[first];
        for (end = first + 1; end < n && x[end].counts == all.counts && x[end].first - all.end < gap; end++) all.end = x[end].end;
        if (end - first > 1) all.name = arena_printf(w->l->a, "%s..%s", all.name, x[end - 1].name);
        look_at_run(w, &all);
    }
}

static void look_at_parameters(struct writer *w)
{
    const struct stage_build *b = w->b;
    const struct program_stage *s = b->s;
    int32_t n = 0, n_uses = w->l->uses->n_param_uses;
    struct gradient_run *x = ARENA_ARRAY(w->h->work, struct gradient_run, (size_t)n_uses + 1);
    for (int32_t u = 0; u < n_uses; u++) {
        int32_t slot = w->h->gradient_slot[u];
        if (slot < 0 || s->slots[slot].parameter < 0) continue;
        const struct program_parameter *p = &s->parameters[s->slots[slot].parameter];
        if (p->shard || !s->slots[slot].bytes || lower_primary_gradient(b, p) != slot) continue;
        int64_t at = s->slots[slot].offset_bytes;
        x[n++] = (struct gradient_run){at, at + s->slots[slot].bytes, s->slots[slot].name, counts(w->l, b, u)};
    }
    look_at_runs(w, x, n, SLOT_ALIGN * lower_wide(DTYPE_bf16));
}

/* Of a flat parameter the own shard, parameter by parameter, because of the padding between them, which from zero 2 on is undefined. */
static void look_at_flat_param(struct writer *w, const struct flat_shard *f, int32_t flat_param)
{
    struct lowering *l = w->l;
    const struct stage_build *b = w->b;
    const struct group_plan *g = lower_group_plan(l, f->group);
    const struct zero_group *z = g->divided;
    int32_t own = f->own_gradient[flat_param], n = l->p->collectives[f->group].n_members, n_runs = 0, n_counting = 0;
    int64_t part = z->flat_param[flat_param].elements / n, at = program_collective_own_chunk(f->member, n) * part;
    int64_t base = program_slot_offset(b->s, &b->s->slots[own]), bytes = dtype_bytes(b->s->slots[own].dtype);
    bool first = in_first_part(l, b, g), all = true;
    struct gradient_run *x = ARENA_ARRAY(w->h->work, struct gradient_run, (size_t)g->n_uses + 1);
    for (int32_t i = 0; i < g->n_uses; i++) {
        const struct flat_param_place *p = &z->places[i];
        const struct tensor *t = &b->v->g->tensors[b->v->param_uses[g->uses[i]].parameter];
        int64_t low = p->first - at, high = low + shape_elements(&t->shape);
        bool counts = first && counts_among_shards(b, g->uses[i], true);
        if (p->flat_param != flat_param) continue;
        n_counting += counts, all &= counts;
        low = low < 0 ? 0 : low, high = high > part ? part : high;
        if (low < high) x[n_runs++] = (struct gradient_run){base + low * bytes, base + high * bytes, b->s->slots[own].name, counts};
    }
    if (g->zero < 2 && (all || !n_counting))
        look(w, own, all);
    else
        look_at_runs(w, x, n_runs, 1);
}

void lower_clip_look(struct writer *w)
{
    const struct stage_flats *flat_shards = w->h->flat_shards;
    const struct stage_slots *s = w->h->slots;
    w->h->slots->looked = false;
    look_at_parameters(w);
    for (int32_t i = 0; i < flat_shards->n; i++) {
        const struct flat_shard *f = &flat_shards->list[i];
        const struct zero_group *z = lower_zero_group(w->l, f->group);
        for (int32_t k = 0; z->owner_group == f->group && k < z->n_flat_params; k++) look_at_flat_param(w, f, k);
    }
    if (!s->looked) writer_zero(w, PHASE_U, w->b->s->first_layer, "gradient_norm.none", s->squares);
    if (s->squares_back != s->squares) writer_zero(w, PHASE_U, w->b->s->first_layer, "gradient_norm.all.zero", s->squares_back);
}

void lower_clip_write(struct writer *w)
{
    writer_op(w, &(struct program_op){.kind = OP_clip,
                                     .phase = PHASE_U,
                                     .attrs = {.scaled = lower_scales(w->l)},
                                     .name = "gradient_norm.clip",
                                     .layer = w->b->s->first_layer,
                                     .n_inputs = 1,
                                     .n_outputs = 1,
                                     .input = {w->h->slots->squares_back},
                                     .output = {w->b->s->clip_slot}});
}
