/* core/sharding/shard.c - construction of one device's graph.
 *
 * Operators are visited in order. Each operator's choice determines the placements of its operands; a version of the operand in
 * that placement is looked up or made by conversions, and the operator is added with its local attributes. All decisions
 * depend on placements, never on one device's sizes, so every device's view has the same operators in the same order.
 *
 * Versions made inside a stage are not read outside it; only crossing tensors are kept at its boundaries.
 */
#include "core/sharding/shard.h"

#include "core/base/arena.h"
#include "core/sharding/shard_internal.h"

#include <string.h>

/* --- versions --- */

int32_t shard_add_version(struct shard_view *v, int32_t t, const struct placement *p, int32_t tensor)
{
    struct shard_version *y = ARENA_ARRAY(v->a, struct shard_version, 1), **at = &v->versions[t];
    *y = (struct shard_version){.placement = *p, .tensor = tensor};
    while (*at) at = &(*at)->next;
    *at = y;
    return tensor;
}

static int32_t find_version(const struct shard_view *v, int32_t t, const struct placement *p)
{
    for (const struct shard_version *y = v->versions[t]; y; y = y->next)
        if (placement_equal(v->s, &y->placement, p)) return y->tensor;
    return -1;
}

/* A source enters the graph as this device's shard; further versions of an input have a number in their names. */
static int32_t add_source(struct shard_view *v, int32_t t, const struct placement *p, int32_t number)
{
    struct tensor copy = v->whole->tensors[t];
    const int32_t *order = copy.shard.order;
    copy.shape = placement_local(v->a, v->s, p, &copy.shape, v->device, &copy.shard);
    copy.shard.order = order;
    if (number) copy.name = arena_printf(v->a, "%s@%d", copy.name, number);
    return shard_add_version(v, t, p, graph_add_tensor(v->g, copy));
}

static void note_shard(struct shard_view *v, int32_t tensor, const struct placement *p,
                       const struct shape *whole)
{
    struct tensor *x = &v->g->tensors[tensor];
    struct shape local = placement_local(v->a, v->s, p, whole, v->device, &x->shard);
    if (!shape_equal(&local, &x->shape))
        BUG("'%s' has not the shape of its part of the whole", x->name);
}

/* One step: an operator that reads `from`. */
static enum status convert(struct shard_view *v, int32_t t, const struct conversion *c, int32_t from,
                           int32_t *out, struct error *err)
{
    const struct tensor *whole = &v->whole->tensors[t];
    struct op_attrs attrs = {.exchange = shard_exchange(v->a, v->s, c, v->device)};
    int32_t number = v->n_conversions[t]++;
    const char *name =
        number ? arena_printf(v->a, "%s.%s.%d", whole->name, op_kind_name(c->kind), number)
               : arena_printf(v->a, "%s.%s", whole->name, op_kind_name(c->kind));
    TRY(graph_add_op(v->g, c->kind, name, &attrs, &from, 1, out, err));
    v->g->ops[v->g->n_ops - 1].reshard_after_forward =
        v->gathered[t] && sharding_reshards(v->s, whole->name);
    note_shard(v, *out, &c->after, &whole->shape);
    v->g->tensors[*out].dtype = whole->dtype;
    shard_add_version(v, t, &c->after, *out);
    return OK;
}

/* Each reader of a parameter converts it separately, so every view has as many gradients of it, and no gathered
 * matrix stays alive or crosses stages for a distant use. */
static void forget_other_uses(struct shard_view *v, int32_t t, int32_t reader)
{
    if (v->made_for[t] != reader + 1 && v->versions[t]) v->versions[t]->next = NULL;
    v->made_for[t] = reader + 1;
}

enum status shard_version_of(struct shard_view *v, int32_t t, const struct placement *p,
                             int32_t reader, int32_t *out, struct error *err)
{
    if (v->whole->tensors[t].role == TENSOR_PARAMETER) forget_other_uses(v, t, reader);
    *out = find_version(v, t, p);
    if (*out >= 0) return OK;
    if (v->whole->tensors[t].role == TENSOR_INPUT) {
        *out = add_source(v, t, p, v->n_conversions[t]++);
        return OK;
    }
    const struct shard_version *made = v->versions[t];
    if (!made) made = shard_enter_window(v, t);
    if (!made) BUG("'%s' is read before it is made", v->whole->tensors[t].name);
    struct conversion steps[CONVERSIONS_MAX];
    int32_t n = 0;
    enum status status = shard_conversions(v->s, &made->placement, p, &n, steps, err);
    if (status != OK) return error_wrap(err, status, "'%s'", v->whole->tensors[t].name);
    *out = made->tensor;
    for (int32_t i = 0; i < n; i++) {
        int32_t found = find_version(v, t, &steps[i].after), from = *out;
        if (found >= 0)
            *out = found;
        else
            TRY(convert(v, t, &steps[i], from, out, err));
    }
    return OK;
}

/* --- parameters --- */

/* Stored sharded although used in full: by the first dimension that the other axis does not shard. */
static void keep_sharded(const struct shard_view *v, int32_t t, struct placement *p)
{
    const struct shape *shape = &v->whole->tensors[t].shape;
    bool used_replicated[MESH_AXES_MAX];
    for (int32_t x = 0; x < v->s->n_axes; x++)
        used_replicated[x] = p->axis[x].how == PLACED_REPLICATED;
    for (int32_t x = 0; x < v->s->n_axes; x++) {
        if (!used_replicated[x] || v->s->mesh[x] < 2) continue;
        const struct on_axis *other = &p->axis[1 - x];
        int32_t dim = 0;
        if (v->s->n_axes > 1 && !used_replicated[1 - x] && other->how == PLACED_SHARDED)
            dim = other->dim == 0 ? 1 : 0;
        if (dim >= shape->rank) continue;
        p->axis[x] =
            (struct on_axis){.how = PLACED_SHARDED,
                             .dim = dim,
                             .grain = {.n_units = shape->dim[dim], .n_sections = 1, .unit = {1}}};
    }
}

/* Placement of each parameter: the shard that all its uses in the stage need, else replicated. */
static void find_homes(struct shard_view *v)
{
    const struct graph *g = v->whole;
    bool *seen = ARENA_ARRAY(v->a, bool, (size_t)g->n_tensors);
    for (int32_t i = v->window.begin; i < v->window.end; i++)
        for (int32_t k = 0;
             graph_op_within(g, i, v->first_layer, v->last_layer) && k < g->ops[i].n_inputs; k++) {
            int32_t t = g->ops[i].input[k];
            if (g->tensors[t].role != TENSOR_PARAMETER) continue;
            const struct placement *need = &shard_need_of(v, i)->input[k];
            if (!seen[t]) v->home[t] = *need;
            for (int32_t x = 0; seen[t] && x < v->s->n_axes; x++)
                if (!on_axis_said_alike(&v->home[t].axis[x], &need->axis[x]))
                    v->home[t].axis[x] = (struct on_axis){.how = PLACED_REPLICATED};
            seen[t] = true;
        }
    for (int32_t t = 0; t < g->n_tensors; t++)
        if (v->gathered[t] && seen[t]) keep_sharded(v, t, &v->home[t]);
}

/* --- operators --- */

static void local_attrs(struct shard_view *v, int32_t i, struct op_attrs *attrs, struct error *err)
{
    const struct graph_op *op = &v->whole->ops[i];
    const struct op_choice *c = shard_choice_of(v, i);
    for (int32_t x = 0; x < v->s->n_axes; x++) {
        struct op_sharding sharded;
        if (c->index[x] == INDEX_none || c->index[x] == INDEX_partial) continue;
        if (op_sharding_by(v->whole, op, v->grains, c->index[x], &sharded, err) != OK)
            BUG("%s", err->text);
        struct placement p = {0}; /* of anything that is dealt out by these units */
        for (int32_t y = 0; y <= x; y++)
            if (c->index[y] == c->index[x])
                p.axis[y] = (struct on_axis){.how = PLACED_SHARDED,
                                             .ratio = c->ratio[y],
                                             .grain = {sharded.n_units, 1, {1}, INDEX_none}};
        int64_t first, n;
        shard_units(v->a, v->s, &p, x, v->device, &first, &n);
        op_index_local_attrs(v->whole, op, v->grains, &sharded, c->index[x], first, n, attrs);
    }
}

static enum status push_op(struct shard_view *v, enum op_kind kind, const char *name,
                           const struct op_attrs *attrs, const int32_t *in, int32_t n_in,
                           int32_t *out, struct error *err)
{
    return graph_add_op(v->g, kind, name, attrs, in, n_in, out, err);
}

/* (lse, target's logit) of all devices' columns, gathered over the axes that shard the vocabulary, inner first. */
static enum status shard_cross_entropy(struct shard_view *v, int32_t i, const struct op_attrs *attrs,
                                       const int32_t *in, int32_t *out, struct error *err)
{
    const struct graph_op *op = &v->whole->ops[i];
    const char *name = op->name;
    int32_t shards;
    int64_t size = 2;
    TRY(push_op(v, OP_cross_entropy_shard, arena_printf(v->a, "%s.shard", name), attrs, in, 2,
                &shards, err));
    for (int32_t x = v->s->n_axes - 1; x >= 0; x--) {
        if (shard_choice_of(v, i)->index[x] != INDEX_vocabulary) continue;
        struct exchange *e = shard_group(v->a, v->s, x, v->device);
        struct division *d = ARENA_ARRAY(v->a, struct division, 1);
        struct run *run = ARENA_ARRAY(v->a, struct run, (size_t)e->n);
        for (int32_t k = 0; k < e->n; k++) run[k] = (struct run){k * size, size};
        *d = (struct division){.n = e->n, .n_runs = 1, .whole = size * e->n, .run = run};
        e->dim = v->g->tensors[shards].shape.rank - 1, e->shards = d;
        size = d->whole;
        TRY(push_op(v, OP_group_all_gather, arena_printf(v->a, "%s.gather.%d", name, x),
                    &(struct op_attrs){.exchange = e}, &shards, 1, &shards, err));
    }
    return push_op(v, OP_cross_entropy_join, name, attrs, (int32_t[]){shards, in[0], in[1]}, 3, out,
                   err);
}

static bool shards_vocabulary(const struct shard_view *v, int32_t i)
{
    if (v->whole->ops[i].kind != OP_cross_entropy) return false;
    for (int32_t x = 0; x < v->s->n_axes; x++)
        if (shard_choice_of(v, i)->index[x] == INDEX_vocabulary) return true;
    return false;
}

/* The conversions from a shard to the full tensor over these axes. */
static enum status gather_steps(struct shard_view *v, const struct placement *from, uint8_t axes,
                                int32_t *n, const struct exchange **out, struct error *err)
{
    struct placement to = *from;
    struct conversion step[CONVERSIONS_MAX];
    for (int32_t x = 0; x < v->s->n_axes; x++)
        if (axes >> x & 1) to.axis[x] = (struct on_axis){.how = PLACED_REPLICATED};
    TRY(shard_conversions(v->s, from, &to, n, step, err));
    for (int32_t k = 0; k < *n; k++) {
        if (step[k].kind != OP_group_all_gather) BUG("a factor is not gathered");
        out[k] = shard_exchange(v->a, v->s, &step[k], v->device);
    }
    return OK;
}

/* Of the operator that was added last, which is operator i of the whole graph. */
static enum status add_factors(struct shard_view *v, int32_t i, struct error *err)
{
    struct graph_op *op = &v->g->ops[v->g->n_ops - 1];
    if (!shard_choice_of(v, i)->sufficient_factors) return OK;
    uint8_t axes =
        sharding_factor_axes(v->s, v->whole, &v->whole->ops[i], v->grains, shard_choice_of(v, i));
    if (!axes) return OK;
    struct factors *f = ARENA_ARRAY(v->a, struct factors, 1);
    TRY(gather_steps(v, &shard_need_of(v, i)->input[0], axes, &f->n[0], f->step[0], err));
    TRY(gather_steps(v, &shard_need_of(v, i)->output[0], axes, &f->n[1], f->step[1], err));
    op->factors = f;
    op->partial[1] &= (uint8_t)~axes;
    return OK;
}

static enum status add_op(struct shard_view *v, int32_t i, struct error *err)
{
    const struct graph_op *op = &v->whole->ops[i];
    const struct op_placements *need = shard_need_of(v, i);
    struct op_attrs attrs = op->attrs;
    int32_t in[OP_OPERANDS_MAX], out[OP_OPERANDS_MAX];
    for (int32_t k = 0; k < op->n_inputs; k++) {
        enum status status = shard_version_of(v, op->input[k], &need->input[k], i, &in[k], err);
        if (status != OK) return error_wrap(err, status, "operator '%s'", op->name);
    }
    local_attrs(v, i, &attrs, err);
    bool measured = shard_tensor_axis(v, i) >= 0;
    if (measured) TRY(shard_measured_attrs(v, i, &attrs, err));
    if (shards_vocabulary(v, i))
        TRY(shard_cross_entropy(v, i, &attrs, in, out, err));
    else {
        TRY(push_op(v, op->kind, op->name, &attrs, in, op->n_inputs, out, err));
        memcpy(v->g->ops[v->g->n_ops - 1].partial, need->gradient_partial,
               sizeof need->gradient_partial);
        TRY(add_factors(v, i, err));
    }
    for (int32_t k = 0; k < op->n_outputs; k++) {
        const struct tensor *whole = &v->whole->tensors[op->output[k]];
        bool own = false;
        for (int32_t x = 0; x < v->s->n_axes; x++)
            own = own || need->output[k].axis[x].how == PLACED_OWN;
        if (!own) note_shard(v, out[k], &need->output[k], &whole->shape);
        struct tensor *y = &v->g->tensors[out[k]];
        y->dtype = whole->dtype, y->shares = measured ? NULL : whole->shares;
        shard_add_version(v, op->output[k], &need->output[k], out[k]);
    }
    return OK;
}

/* --- boundaries of a stage --- */

/* Keeps crossing tensors only, replicated or sharded by dimension 0. */
static enum status cross(struct shard_view *v, const struct cut *cut, struct error *err)
{
    for (int32_t c = 0; c < cut->n; c++) {
        int32_t t = cut->tensor[c], kept;
        struct placement p = v->versions[t]->placement;
        for (int32_t x = 0; x < v->s->n_axes; x++)
            if (p.axis[x].how != PLACED_SHARDED || p.axis[x].dim != 0)
                p.axis[x] = (struct on_axis){.how = PLACED_REPLICATED};
        TRY(shard_version_of(v, t, &p, -1, &kept, err));
        v->versions[t] = NULL;
        shard_add_version(v, t, &p, kept);
    }
    return OK;
}

/* --- the view --- */

struct shard_stage {
    struct shard_view common; /* of no device: nothing is made in it yet */
};

enum status shard_choices_new(struct arena *a, const struct graph *whole, const struct sharding *s,
                              struct shard_choices **out, struct error *err)
{
    struct shard_choices *x = ARENA_ARRAY(a, struct shard_choices, 1);
    *x = (struct shard_choices){.whole = whole, .s = s, .grains = graph_grains(a, whole)};
    TRY(sharding_resolve(a, s, whole, &x->choices, &x->gathered, err));
    shard_window_prepare(a, x);
    *out = x;
    return OK;
}

static enum status find_common(struct shard_view *v, struct error *err)
{
    int32_t begin = v->window.begin, end = v->window.end;
    size_t n_ops = (size_t)(end - begin);
    v->choices = arena_copy(v->a, v->shared->choices + begin, n_ops * sizeof *v->choices);
    shard_choose_outside(v);
    v->home = ARENA_ARRAY(v->a, struct placement, (size_t)v->whole->n_tensors);
    v->need = ARENA_ARRAY(v->a, struct op_placements, n_ops);
    for (int32_t i = begin; i < end; i++) {
        for (int32_t x = 0; x < v->s->n_axes; x++)
            if (v->s->mesh[x] == 1) shard_choice_of(v, i)->index[x] = INDEX_none;
        TRY(op_placements_of(v->s, v->whole, &v->whole->ops[i], v->grains, shard_choice_of(v, i),
                             shard_need_of(v, i), err));
    }
    find_homes(v);
    return OK;
}

static enum status stage_in(struct arena *a, const struct shard_choices *c, int32_t first_layer,
                            int32_t last_layer, struct shard_window window,
                            struct shard_stage **out, struct error *err)
{
    struct shard_stage *x = ARENA_ARRAY(a, struct shard_stage, 1);
    x->common = (struct shard_view){.a = a,
                              .whole = c->whole,
                              .s = c->s,
                              .first_layer = first_layer,
                              .last_layer = last_layer,
                              .grains = c->grains,
                              .shared = c,
                              .window = window,
                              .gathered = c->gathered};
    TRY(find_common(&x->common, err));
    *out = x;
    return OK;
}

enum status shard_stage_of(struct arena *a, const struct shard_choices *choices,
                           int32_t first_layer, int32_t last_layer, int32_t until,
                           struct shard_stage **out, struct error *err)
{
    struct shard_window window = shard_window_of(choices, first_layer, last_layer, until);
    return stage_in(a, choices, first_layer, last_layer, window, out, err);
}

enum status shard_stage_new(struct arena *a, const struct graph *whole, const struct sharding *s,
                            int32_t first_layer, int32_t last_layer, struct shard_stage **out,
                            struct error *err)
{
    struct shard_choices *choices;
    if (whole->n_ops != whole->n_forward) BUG("shard_stage_new: gradients come after sharding");
    TRY(shard_choices_new(a, whole, s, &choices, err));
    struct shard_window all = {0, whole->n_forward, -1};
    return stage_in(a, choices, first_layer, last_layer, all, out, err);
}

static enum status begin_graph(struct shard_view *v, struct error *err)
{
    const struct graph *w = v->whole;
    size_t n_tensors = (size_t)w->n_tensors;
    v->versions = ARENA_ARRAY(v->a, struct shard_version *, n_tensors);
    v->n_conversions = ARENA_ARRAY(v->a, int32_t, n_tensors);
    v->made_for = ARENA_ARRAY(v->a, int32_t, n_tensors);
    v->last = ARENA_ARRAY(v->a, int32_t, (size_t)w->n_layers);
    v->g = graph_new(v->a, w->dtype, w->microbatch, w->sequence_length);
    for (int32_t x = 0; x < v->s->n_axes; x++)
        if (v->s->mesh[x] > 1) v->g->group[x] = shard_group(v->a, v->s, x, v->device);
    bool *used = ARENA_ARRAY(v->a, bool, n_tensors);
    for (int32_t i = v->window.begin; i < v->window.end; i++)
        for (int32_t k = 0; k < w->ops[i].n_inputs; k++) used[w->ops[i].input[k]] = true;
    v->uses_before = ARENA_ARRAY(v->a, int32_t, n_tensors);
    TRY(shard_count_outside(v, used, v->uses_before, err));
    for (int32_t t = 0; t < w->n_tensors; t++)
        if (w->tensors[t].role == TENSOR_PARAMETER && used[t]) add_source(v, t, &v->home[t], 0);
    return OK;
}

/* The layers, and what the gradient needs to know of the rest of the model. */
static void end_graph(struct shard_view *v)
{
    const struct graph *w = v->whole;
    for (int32_t k = 0, last = -1; k < w->n_layers; k++) last = v->last[k] = v->last[k] > last ? v->last[k] : last;
    graph_set_layers(v->g, v->last, w->n_layers);
    for (int32_t k = 0; k < w->n_layers; k++) v->g->layer_name[k] = w->layer_name[k];
    if (v->window.open >= 0) v->g->open = 1 + v->versions[v->window.open]->tensor;
    int32_t *uses = ARENA_ARRAY(v->a, int32_t, (size_t)v->g->n_tensors);
    for (int32_t t = 0; t < w->n_tensors; t++)
        if (v->uses_before[t]) uses[v->versions[t]->tensor] = v->uses_before[t];
    v->g->uses_before = uses;
}

enum status shard_stage_graph(struct arena *a, const struct shard_stage *x, int32_t device,
                              struct graph **out, struct error *err)
{
    struct shard_view v = x->common;
    const struct graph *whole = v.whole;
    v.a = a, v.device = device;
    TRY(begin_graph(&v, err));
    for (int32_t k = 0; k < whole->n_layers; k++) v.last[k] = -1;
    for (int32_t i = v.window.begin; i < v.window.end; i++) {
        int32_t layer = whole->ops[i].layer;
        TRY(add_op(&v, i, err));
        bool ends = i + 1 == v.window.end || whole->ops[i + 1].layer != layer;
        bool edge = layer == v.first_layer - 1 || layer == v.last_layer;
        if (ends && edge && layer + 1 < whole->n_layers) TRY(cross(&v, &whole->cut[layer], err));
        if (ends) v.last[layer] = v.g->n_ops - 1;
    }
    end_graph(&v);
    *out = v.g;
    return OK;
}

enum status shard_graph(struct arena *a, const struct graph *whole, const struct sharding *s,
                        int32_t device, int32_t first_layer, int32_t last_layer, struct graph **out,
                        struct error *err)
{
    struct shard_stage *x;
    TRY(shard_stage_new(a, whole, s, first_layer, last_layer, &x, err));
    return shard_stage_graph(a, x, device, out, err);
}

double shard_loss_share(struct arena *a, const struct shard_stage *stage, int32_t device)
{
    const struct graph *whole = stage->common.whole;
    const struct sharding *s = stage->common.s;
    double out = 0;
    for (int32_t i = 0; i < whole->n_forward; i++) {
        const struct graph_op *op = &whole->ops[i];
        if (whole->tensors[op->output[0]].role != TENSOR_LOSS) continue;
        struct op_placements need = *shard_need_of(&stage->common, i);
        const struct shape *logits = &whole->tensors[op->input[0]].shape;
        struct shape rows = *logits;
        rows.dim[rows.rank - 1] = 1;
        double share = 1;
        for (int32_t x = 0; x < s->n_axes; x++) {
            struct on_axis *on = &need.input[0].axis[x];
            if (on->how == PLACED_SHARDED && on->dim + 1 < logits->rank) continue;
            *on = (struct on_axis){
                .how = PLACED_REPLICATED}; /* all have these rows: the first speaks */
            if (sharding_place(s, device, x)) share = 0;
        }
        struct shape local = placement_local(a, s, &need.input[0], &rows, device, NULL);
        out = share * (double)shape_elements(&local) / (double)shape_elements(&rows);
    }
    return out;
}
