/* planner/spmd/rules.c - what each choice of one operator needs, gives and costs.
 *
 * A device's shapes follow from the placements of the operands; its outputs are inferred, so statistics that stay where they are
 * made are sized as well. Gradient operators are those of the whole training graph at local shapes: an operand of theirs is
 * an operand of the forward operator, or the gradient of one, or failing that the first of the same whole shape.
 * Devices of one type with equal shapes have equal prices, and are priced once.
 */
#include "planner/spmd/rules.h"

#include "core/base/arena.h"

#include <string.h>

int32_t spmd_meaning_new(struct builder *b, const struct spmd_meaning *m)
{
    b->meanings = arena_grow(b->a, b->meanings, b->n_meanings, &b->meaning_capacity, sizeof *m);
    b->meanings[b->n_meanings] = *m;
    return (int32_t)b->n_meanings++;
}

/* --- one device's operators --- */

struct local { /* a forward operator on one device */
    const struct graph_op *op;
    struct op_attrs attrs;
    struct op_shapes shapes;
};

struct dealt { /* units by a vector along an axis, for each position */
    int32_t axis, ratio;
    int64_t n_units, *units;
    struct dealt *next;
};

/* Memoised, because many operators distribute equal numbers of units. */
static const int64_t *dealt_out(struct builder *b, int32_t axis, int32_t ratio, int64_t n_units)
{
    const struct sharding *s = b->q->s;
    for (struct dealt *x = b->dealt; x; x = x->next)
        if (x->axis == axis && x->ratio == ratio && x->n_units == n_units) return x->units;
    struct dealt x = {axis, ratio, n_units, NULL, b->dealt};
    double *ratios = ARENA_ARRAY(b->a, double, (size_t)s->mesh[axis]);
    x.units = ARENA_ARRAY(b->a, int64_t, (size_t)s->mesh[axis]);
    sharding_axis_ratios(s, ratio, axis, ratios);
    sharding_extents(n_units, ratios, s->mesh[axis], x.units);
    b->dealt = arena_copy(b->a, &x, sizeof x);
    return x.units;
}

/* Attributes at local size: heads above all. */
static enum status local_attrs(struct builder *b, const struct graph_op *op,
                               const struct op_choice *c, int32_t device, struct op_attrs *attrs,
                               struct error *err)
{
    const struct sharding *s = b->q->s;
    int64_t had = -1;
    for (int32_t x = 0; x < s->n_axes; x++) {
        struct op_sharding sharding;
        int64_t first = 0;
        int32_t place = sharding_place(s, device, x);
        if (c->index[x] == INDEX_none || c->index[x] == INDEX_partial) continue;
        TRY(op_sharding_by(b->g, op, b->grains, c->index[x], &sharding, err));
        int64_t n = x && c->index[0] == c->index[1] ? had : sharding.n_units;
        const int64_t *e = dealt_out(b, x, c->ratio[x], n);
        for (int32_t k = 0; k < place; k++) first += e[k];
        op_index_local_attrs(b->g, op, b->grains, &sharding, c->index[x], first, e[place], attrs);
        had = e[place];
    }
    return OK;
}

static enum status price_op(struct builder *b, int32_t type, enum op_kind kind, enum phase phase,
                            const struct op_attrs *attrs, const struct op_shapes *shapes,
                            const char *name, int64_t *ns, struct error *err)
{
    enum dtype t = phase == PHASE_U ? dtype_master(b->g->dtype) : b->g->dtype;
    struct program_op op = {
        .kind = kind, .phase = phase, .attrs = *attrs, .dtype = t, .name = name};
    int64_t cost;
    op.n_inputs = shapes->n_inputs, op.n_outputs = shapes->n_outputs, op.shapes = *shapes;
    op.key = op_key(kind, attrs, shapes, t);
    TRY(cost_op(b->q->cost, type, &op, &cost, err));
    *ns += cost;
    return OK;
}

/* The forward operator's operand for an operand of a gradient operator: input k, or n_inputs + output; -1: none. */
static int32_t operand_of(const struct builder *b, const struct graph_op *op, int32_t tensor,
                          bool reads, uint32_t *used)
{
    const struct tensor *x = &b->g->tensors[tensor];
    bool gradient = x->role == TENSOR_GRADIENT || x->role == TENSOR_PARAMETER_GRADIENT;
    int32_t of = gradient ? x->of : tensor, n = op->n_inputs + op->n_outputs;
    for (int32_t k = 0; k < n && of >= 0; k++)
        if ((k < op->n_inputs ? op->input[k] : op->output[k - op->n_inputs]) == of) return k;
    for (int32_t j = 0; j < n; j++) { /* inputs are dy, outputs are dx */
        int32_t k = reads ? (j < op->n_outputs ? op->n_inputs + j : j - op->n_outputs) : j;
        int32_t t = k < op->n_inputs ? op->input[k] : op->output[k - op->n_inputs];
        if ((!reads && *used >> k & 1) || !shape_equal(&b->g->tensors[t].shape, &x->shape))
            continue;
        *used |= 1u << k;
        return k;
    }
    return -1;
}

/* A gradient operator at local shapes. whole_w: weight gradients of all rows (sufficient factors). */
static enum status price_back(struct builder *b, const struct local *l, int32_t type, int32_t back,
                              bool whole_w, int64_t *ns, struct error *err)
{
    const struct graph_op *op = &b->g->ops[back];
    struct op_attrs attrs = op->attrs;
    struct op_shapes shapes = {.n_inputs = op->n_inputs, .n_outputs = op->n_outputs};
    uint32_t used = 0;
    for (int32_t k = 0; k < op->n_inputs + op->n_outputs; k++) {
        bool reads = k < op->n_inputs;
        int32_t t = reads ? op->input[k] : op->output[k - op->n_inputs];
        int32_t at = operand_of(b, l->op, t, reads, &used);
        struct shape *out = reads ? &shapes.input[k] : &shapes.output[k - op->n_inputs];
        *out = at < 0 || (whole_w && op->phase == PHASE_W) ? b->g->tensors[t].shape
               : at < l->op->n_inputs                      ? l->shapes.input[at]
                                                           : l->shapes.output[at - l->op->n_inputs];
    }
    op_index_local_back_attrs(&l->attrs, &l->shapes, &attrs);
    /* Unknown operands are inferred from the others; costs are memoised by inputs. */
    struct op_shapes whole = shapes;
    if (op_infer(op->kind, &attrs, &shapes, NULL) != OK) shapes = whole;
    return price_op(b, type, op->kind, op->phase, &attrs, &shapes, op->name, ns, err);
}

static bool shards_by(const struct spmd_question *q, const struct op_choice *c, enum op_index index)
{
    for (int32_t x = 0; x < q->s->n_axes; x++)
        if (c->index[x] == index) return true;
    return false;
}

/* A cross-entropy over a shard of the vocabulary is two operators with a small gather between. */
static enum status price_loss_shard(struct builder *b, const struct local *l, int32_t type,
                                    int64_t *ns, struct error *err)
{
    struct op_shapes shard = {.n_inputs = 2}, join = {.n_inputs = 3};
    shard.input[0] = l->shapes.input[0], shard.input[1] = l->shapes.input[1];
    TRY(op_infer(OP_cross_entropy_shard, &l->attrs, &shard, err));
    TRY(price_op(b, type, OP_cross_entropy_shard, PHASE_F, &l->attrs, &shard, l->op->name, ns,
                 err));
    join.input[0] = shard.output[0], join.input[1] = l->shapes.input[0];
    join.input[2] = l->shapes.input[1];
    join.input[0].dim[join.input[0].rank - 1] *= b->n_devices;
    TRY(op_infer(OP_cross_entropy_join, &l->attrs, &join, err));
    return price_op(b, type, OP_cross_entropy_join, PHASE_F, &l->attrs, &join, l->op->name, ns,
                    err);
}

static enum status price_local(struct builder *b, const struct local *l, int32_t type,
                               const struct op_choice *c, bool whole_w, int64_t *ns,
                               struct error *err)
{
    int32_t i = (int32_t)(l->op - b->g->ops);
    if (l->op->kind == OP_cross_entropy && shards_by(b->q, c, INDEX_vocabulary))
        TRY(price_loss_shard(b, l, type, ns, err));
    else
        TRY(price_op(b, type, l->op->kind, PHASE_F, &l->attrs, &l->shapes, l->op->name, ns, err));
    for (int32_t k = b->first_back[i]; k >= 0; k = b->next_back[k])
        TRY(price_back(b, l, type, k, whole_w, ns, err));
    return OK;
}

/* --- all devices --- */

static enum status make_local(struct builder *b, const struct op_choice *c, int32_t device,
                              struct local *l, struct error *err)
{
    TRY(local_attrs(b, l->op, c, device, &l->attrs, err));
    return op_infer(l->op->kind, &l->attrs, &l->shapes, err);
}

/* The size of a tensor that is never resharded but read by gradient operators is inferred from the operator. */
static int64_t own_bytes(const struct builder *b, const struct local *l, const struct spmd_rule *r)
{
    int64_t sum = 0;
    for (int32_t k = 0; k < l->op->n_outputs; k++)
        if ((b->keeps_output >> k & 1) && spmd_is_own(b->t->price, r->give[k]))
            sum += shape_elements(&l->shapes.output[k]) *
                   dtype_bytes(b->g->tensors[l->op->output[k]].dtype);
    return sum * b->q->in_flight;
}

/* Computation of one microbatch, and bytes of tensors that are never resharded: (n_devices) each. */
static enum status price_devices(struct builder *b, int32_t i, const struct spmd_rule *r,
                                 const struct op_choice *c, bool whole_w, int64_t *out,
                                 int64_t *bytes, struct error *err)
{
    const struct graph_op *op = &b->g->ops[i];
    const struct shape *shards[OP_OPERANDS_MAX];
    for (int32_t k = 0; k < op->n_inputs; k++)
        shards[k] = spmd_shards(b->t->price, &b->g->tensors[op->input[k]].shape, r->need[k]);
    bool hidden = op_index_shard_is_hidden(op->kind);
    uint64_t *key = ARENA_ARRAY(b->a, uint64_t, (size_t)b->n_devices);
    for (int32_t d = 0; d < b->n_devices; d++) {
        struct local l = {.op = op, .attrs = op->attrs, .shapes.n_inputs = op->n_inputs};
        int32_t like = 0;
        for (int32_t k = 0; k < op->n_inputs; k++) l.shapes.input[k] = shards[k][d];
        if (hidden) {
            TRY(make_local(b, c, d, &l, err));
            key[d] = op_key(op->kind, &l.attrs, &l.shapes, b->g->dtype);
        }
        for (; like < d; like++) {
            bool same = b->q->type[like] == b->q->type[d] && key[like] == key[d];
            for (int32_t k = 0; same && k < op->n_inputs; k++)
                same = shape_equal(&shards[k][like], &shards[k][d]);
            if (same) break;
        }
        out[d] = like < d ? out[like] : 0, bytes[d] = like < d ? bytes[like] : 0;
        if (like < d) continue;
        if (!hidden) TRY(make_local(b, c, d, &l, err));
        bytes[d] = own_bytes(b, &l, r);
        TRY(price_local(b, &l, b->q->type[d], c, whole_w, &out[d], err));
    }
    return OK;
}

static int64_t slowest(const struct builder *b, const int64_t *ns)
{
    int64_t most = 0;
    for (int32_t d = 0; d < b->n_devices; d++)
        if (ns[d] > most) most = ns[d];
    return most;
}

/* --- parameters --- */

enum status spmd_parameter(struct builder *b, int32_t tensor, int32_t home, uint8_t partial,
                           int64_t *ns, int64_t *device_ns, int64_t *bytes, struct error *err)
{
    const struct tensor *p = &b->g->tensors[tensor];
    int64_t master = dtype_bytes(dtype_master(p->dtype));
    const struct shape *shards = spmd_shards(b->t->price, &p->shape, home);
    enum op_kind update = optimizer_op(b->q->optimizer, false);
    bool all = b->q->s->n_axes > 1 && partial == 3;
    for (int32_t x = all ? SPMD_ALL_AXES : 0; x < b->q->s->n_axes + all; x++) {
        int64_t sum;
        if (!all && !(partial >> x & 1)) continue;
        TRY(spmd_gradient_ns(b->t->price, &p->shape, master, x, home, true, &sum, err));
        *ns += sum;
    }
    int64_t *cost = ARENA_ARRAY(b->a, int64_t, (size_t)b->n_devices);
    int64_t held = dtype_bytes(p->dtype) + master * (1 + dtype_is_half(p->dtype) +
                                                     optimizer_state_tensors(b->q->optimizer));
    for (int32_t d = 0; d < b->n_devices; d++) {
        struct op_shapes shapes = {.n_inputs = 2 + (int32_t)optimizer_state_tensors(b->q->optimizer)};
        struct op_attrs attrs = {.decay = p->decay || b->q->optimizer->decay_all, .narrows = dtype_is_half(p->dtype)};
        for (int32_t k = 0; k < shapes.n_inputs; k++) shapes.input[k] = shards[d];
        bytes[d] += shape_elements(&shards[d]) * held;
        int32_t like = 0;
        while (like < d &&
               !(b->q->type[like] == b->q->type[d] && shape_equal(&shards[like], &shards[d])))
            like++;
        cost[d] = like < d ? cost[like] : 0;
        if (like == d) {
            TRY(op_infer(update, &attrs, &shapes, err));
            TRY(price_op(b, b->q->type[d], update, PHASE_U, &attrs, &shapes, p->name, &cost[d], err));
        }
        device_ns[d] += cost[d];
    }
    return OK;
}

/* --- variants --- */

struct variant {
    int32_t gather; /* index of the input kept sharded; -1 */
    bool sufficient_factors;
};

/* Sharded by its first dimension, as by core/sharding/shard. */
static int32_t home_sharded(struct builder *b, const struct shape *shape)
{
    struct placement p = {0};
    p.axis[0] = (struct on_axis){.how = PLACED_SHARDED,
                                 .grain = {.n_units = shape->dim[0], .n_sections = 1, .unit = {1}}};
    return spmd_placement(b->t->price, &p);
}

static enum status gather_ns(struct builder *b, const struct tensor *p, int32_t home, bool partial,
                             int64_t *ns, struct error *err)
{
    int64_t forward, back = 0, m = b->q->microbatches;
    TRY(spmd_step_ns(b->t->price, &p->shape, dtype_bytes(p->dtype), OP_group_all_gather, 0, home, 0,
                     &forward, err));
    if (partial)
        TRY(spmd_step_ns(b->t->price, &p->shape, dtype_bytes(b->g->dtype), OP_group_reduce_scatter,
                         0, 0, home, &back, err));
    *ns += m * (forward + back);
    return OK;
}

/* All-gathers of x and dy, once per microbatch. */
static enum status factors_ns(struct builder *b, const struct graph_op *op,
                              const struct spmd_rule *r, int64_t *ns, struct error *err)
{
    int64_t x, dy, bytes = dtype_bytes(b->g->dtype);
    TRY(spmd_step_ns(b->t->price, &b->g->tensors[op->input[0]].shape, bytes, OP_group_all_gather, 0,
                     r->need[0], 0, &x, err));
    TRY(spmd_step_ns(b->t->price, &b->g->tensors[op->output[0]].shape, bytes, OP_group_all_gather,
                     0, r->give[0], 0, &dy, err));
    *ns += b->q->microbatches * (x + dy);
    return OK;
}

static enum status loss_gather_ns(struct builder *b, const struct graph_op *op,
                                  const struct spmd_rule *r, int64_t *ns, struct error *err)
{
    /* two numbers per row and member: shards of a (rows, 2n) tensor */
    struct shape pairs = b->g->tensors[op->input[0]].shape;
    const struct placement *rows = spmd_placement_of(b->t->price, r->need[0]);
    int64_t size = 2;
    for (int32_t x = b->q->s->n_axes - 1; x >= 0;
         x--) { /* inner axis first, as by core/sharding/shard */
        struct placement p = *rows;
        int32_t n = b->q->s->mesh[x];
        int64_t cost;
        if (p.axis[x].how != PLACED_SHARDED || p.axis[x].dim != pairs.rank - 1) continue;
        pairs.dim[pairs.rank - 1] = size;
        p.axis[x] = (struct on_axis){.how = PLACED_REPLICATED};
        if (b->q->s->n_axes > 1 && p.axis[1 - x].how == PLACED_SHARDED &&
            p.axis[1 - x].dim == pairs.rank - 1)
            p.axis[1 - x] = (struct on_axis){.how = PLACED_REPLICATED};
        /* equal shards by ring: half of an all-reduce */
        const struct shape *local =
            spmd_shards(b->t->price, &pairs, spmd_placement(b->t->price, &p));
        struct shape all = {.rank = 2, .dim = {n, 0}};
        for (int32_t d = 0; d < b->n_devices; d++)
            if (shape_elements(&local[d]) > all.dim[1]) all.dim[1] = shape_elements(&local[d]);
        TRY(spmd_gradient_ns(b->t->price, &all, dtype_bytes(b->g->dtype), x, 0, false, &cost, err));
        cost /= 2;
        size *= n;
        *ns += b->q->microbatches * cost;
    }
    return OK;
}

/* --- one rule --- */

/* An input of the model is kept from F to B by its first reader. */
static void add_input(struct builder *b, int32_t i, int32_t k, const struct spmd_rule *r,
                      int64_t *bytes)
{
    int32_t t = b->g->ops[i].input[k];
    const struct tensor *x = &b->g->tensors[t];
    if (x->role != TENSOR_INPUT || b->input_reader[t] != i) return;
    const struct shape *shards = spmd_shards(b->t->price, &x->shape, r->need[k]);
    for (int32_t d = 0; d < b->n_devices; d++)
        bytes[d] += shape_elements(&shards[d]) * dtype_bytes(x->dtype) * b->q->in_flight;
}

static enum status finish_rule(struct builder *b, int32_t i, const struct op_choice *c,
                               const struct variant *v, struct spmd_rule *r, struct error *err)
{
    const struct graph_op *op = &b->g->ops[i];
    int64_t *ns = ARENA_ARRAY(b->a, int64_t, (size_t)b->n_devices), collective = 0;
    int64_t *bytes = ARENA_ARRAY(b->a, int64_t, (size_t)b->n_devices);
    TRY(price_devices(b, i, r, c, v->sufficient_factors, ns, bytes, err));
    for (int32_t d = 0; d < b->n_devices; d++) ns[d] *= b->q->microbatches;
    for (int32_t k = 0; k < op->n_inputs; k++) {
        const struct tensor *p = &b->g->tensors[op->input[k]];
        uint8_t partial = r->partial[k];
        int32_t home = r->need[k];
        add_input(b, i, k, r, bytes);
        if (p->role != TENSOR_PARAMETER || b->shared[op->input[k]]) continue;
        if (v->sufficient_factors && k == 1) partial = 0;
        if (v->gather == k) {
            home = home_sharded(b, &p->shape);
            TRY(gather_ns(b, p, home, partial & 1, &collective, err));
            partial = 0;
            for (int32_t d = 0; d < b->n_devices;
                 d++) /* replicated as long as its gradient operator needs it */
                bytes[d] += shape_elements(&p->shape) * dtype_bytes(p->dtype) * b->q->in_flight;
        }
        TRY(spmd_parameter(b, op->input[k], home, partial, &collective, ns, bytes, err));
    }
    if (v->sufficient_factors) TRY(factors_ns(b, op, r, &collective, err));
    if (op->kind == OP_cross_entropy) TRY(loss_gather_ns(b, op, r, &collective, err));
    struct op_choice said = *c;
    said.sufficient_factors = v->sufficient_factors;
    struct spmd_meaning m = {.choice = said,
                             .gather = v->gather >= 0,
                             .shards = v->gather,
                             .sufficient_factors = v->sufficient_factors,
                             .device_ns = ns,
                             .join_ns = collective};
    r->ns = slowest(b, ns) + collective;
    r->bytes = bytes;
    r->tag = spmd_meaning_new(b, &m);
    return OK;
}

static bool is_partial(const struct builder *b, const struct placement *p)
{
    return p->axis[0].how == PLACED_PARTIAL ||
           (b->q->s->n_axes > 1 && p->axis[1].how == PLACED_PARTIAL);
}

static enum status add_rule(struct builder *b, int32_t i, const struct op_choice *c,
                            const struct variant *v, struct spmd_op *out, size_t *capacity,
                            struct error *err)
{
    const struct graph_op *op = &b->g->ops[i];
    struct op_placements need;
    struct spmd_rule r = {0};
    struct error no = {0};
    if (op_placements_of(b->q->s, b->g, op, b->grains, c, &need, &no) != OK) return OK;
    for (int32_t k = 0; k < op->n_inputs; k++) {
        bool activation = b->g->tensors[op->input[k]].role == TENSOR_ACTIVATION;
        /* a source is never partial */
        if (is_partial(b, &need.input[k]) && (!activation || b->crosses[op->input[k]])) return OK;
        r.need[k] = spmd_placement(b->t->price, &need.input[k]);
        r.partial[k] = need.gradient_partial[k];
    }
    for (int32_t k = 0; k < op->n_outputs; k++) {
        if (is_partial(b, &need.output[k]) && b->crosses[op->output[k]]) return OK;
        r.give[k] = spmd_placement(b->t->price, &need.output[k]);
    }
    TRY(finish_rule(b, i, c, v, &r, err));
    struct spmd_rule *rules = (struct spmd_rule *)out->rules;
    rules = arena_grow(b->a, rules, (size_t)out->n_rules, capacity, sizeof r);
    rules[out->n_rules++] = r;
    out->rules = rules;
    return OK;
}

/* --- choices --- */

/* The choices along one axis: none, and every index by every vector. */
static int32_t axis_choices(const struct builder *b, int32_t i, int32_t x, struct op_choice *out)
{
    uint32_t set = op_index_set(b->g, &b->g->ops[i], b->grains) & ~b->q->excluded;
    int32_t n = 0;
    for (int k = 0; k < INDEX_COUNT; k++) {
        bool plain = k == INDEX_none || k == INDEX_partial;
        if (!(set >> k & 1) || (k != INDEX_none && b->q->s->mesh[x] < 2)) continue;
        for (int32_t v = 0; v < (plain ? 1 : b->q->s->n_ratios); v++)
            out[n].index[0] = (enum op_index)k, out[n++].ratio[0] = v;
    }
    return n;
}

/* The input that may be kept sharded: a parameter of at least two dimensions without other readers. */
static int32_t large_parameter(const struct builder *b, const struct graph_op *op)
{
    for (int32_t k = 0; k < op->n_inputs; k++) {
        const struct tensor *t = &b->g->tensors[op->input[k]];
        if (t->role == TENSOR_PARAMETER && t->shape.rank >= 2 && !b->shared[op->input[k]]) return k;
    }
    return -1;
}

static enum status add_variants(struct builder *b, int32_t i, const struct op_choice *c,
                                struct spmd_op *out, size_t *capacity, struct error *err)
{
    const struct graph_op *op = &b->g->ops[i];
    int32_t large = large_parameter(b, op);
    struct op_sharding sharding;
    bool whole = b->q->s->n_axes == 1 && large >= 0 &&
                 op_sharding_by(b->g, op, b->grains, c->index[0], &sharding, err) == OK &&
                 sharding.input[large].how == PLACED_REPLICATED;
    if (!whole || !b->q->shard_parameters)
        TRY(add_rule(b, i, c, &(struct variant){.gather = -1}, out, capacity, err));
    if (!whole) return OK;
    if (b->q->gather)
        TRY(add_rule(b, i, c, &(struct variant){.gather = large}, out, capacity, err));
    if (b->q->sufficient_factors && !b->q->shard_parameters &&
        sharding_factor_axes(b->q->s, b->g, op, b->grains, c))
        TRY(add_rule(b, i, c, &(struct variant){-1, true}, out, capacity, err));
    return OK;
}

enum { AXIS_CHOICES_MAX = 256 };

enum status spmd_rules_of(struct builder *b, int32_t i, struct spmd_op *out, struct error *err)
{
    const struct sharding *s = b->q->s;
    struct op_choice first[AXIS_CHOICES_MAX] = {{{0}, {0}, false}},
                     second[AXIS_CHOICES_MAX] = {{{0}, {0}, false}};
    size_t capacity = 0;
    if (s->n_ratios * INDEX_COUNT > AXIS_CHOICES_MAX)
        return error_set(err, ERR_INPUT, "%d vectors of ratios: expected at most %d", s->n_ratios,
                         AXIS_CHOICES_MAX / INDEX_COUNT);
    b->keeps_output = out->keeps_output;
    int32_t n = axis_choices(b, i, 0, first), m = s->n_axes > 1 ? axis_choices(b, i, 1, second) : 1;
    for (int32_t x = 0; x < n; x++)
        for (int32_t y = 0; y < m; y++) {
            struct op_choice c = first[x];
            c.index[1] = second[y].index[0], c.ratio[1] = second[y].ratio[0];
            if (c.index[0] == c.index[1] && c.ratio[0] != c.ratio[1]) continue;
            TRY(add_variants(b, i, &c, out, &capacity, err));
        }
    return OK;
}
