/* Stage costs without lowering: sums of operator costs by layer, and sizes counted with lowering's layout rules.
 *
 * The cost of a range of layers is a difference of prefix sums. Quantities that depend on the full range (parameter updates,
 * recomputation, memory) take O(layers) a query, except that queries with the same first layer share one row. The caller keeps the results
 * (planner/candidate/space.h), because a table of all pairs of layers would take gigabytes of models of 1,000 layers.
 */
#include "sim/stage/stage.h"

#include "core/base/arena.h"
#include "sim/stage/stage_internal.h"
#include "sim/stage/within.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

/* duration of one update over `bytes` bytes; open hash of a power of two, at most half full */
struct memo {
    int32_t n, n_slots;
    int64_t *bytes, *ns; /* (n_slots); bytes 0: empty */
};

struct type_times {
    int64_t *forward_ns, *input_ns, *weight_ns, *input_least_ns,
        *weight_least_ns; /* (n_layers + 1) prefix sums: [l] of layers before l */
    int64_t *op_ns;       /* (n_forward) */
    struct within update; /* of updates that are not flat, and of tied parameters */
    int64_t *update_row;  /* (n_layers) of the ranges that begin at row_first; -1: none yet */
    int32_t row_first;
    struct memo flat[2];  /* decayed, and not */
};

struct stage_table {
    struct arena *arena;
    const struct graph *g;
    struct cost *cost;
    const struct optimizer *optimizer;
    bool flat;
    const struct stage_group *group;   /* NULL: g is of one device */
    struct stage_again *again;
    struct type_times **times;  /* (n_types) */
    struct stage_sizes *sizes;
};

static int64_t master_bytes(const struct graph *g) { return dtype_bytes(dtype_master(g->dtype)); }

/* --- times --- */

static enum status price(struct stage_table *t, int32_t type, struct program_op *op, int64_t *out,
                         struct error *err)
{
    op->dtype = op->phase == PHASE_U ? dtype_master(t->g->dtype) : t->g->dtype;
    op->shapes.n_inputs = op->n_inputs, op->shapes.n_outputs = op->n_outputs;
    op->key = op_key(op->kind, &op->attrs, &op->shapes, op->dtype);
    return cost_op(t->cost, type, op, out, err);
}

/* Operators of a graph whose price is known, by their kind and shapes: repeated layers have equal ones. */
struct priced_op {
    const struct graph_op *op; /* NULL: none */
    int64_t ns, least;
};
enum { PRICED_OPS = 256 }; /* a power of two; two operators of one place are priced again, at no other cost */

static struct priced_op *priced_place(struct priced_op *known, const struct graph *g,
                                      const struct graph_op *x)
{
    uint64_t h = (uint64_t)x->kind;
    for (int32_t i = 0; i < x->n_inputs; i++) {
        const struct shape *s = &g->tensors[x->input[i]].shape;
        for (int32_t d = 0; d < s->rank; d++)
            h = (h ^ (uint64_t)s->dim[d]) * UINT64_C(0x9E3779B97F4A7C15);
    }
    return &known[h >> 32 & (PRICED_OPS - 1)];
}

static bool tensors_equal(const struct graph *g, const int32_t *x, const int32_t *y, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        const struct tensor *a = &g->tensors[x[i]], *b = &g->tensors[y[i]];
        if (a->role != b->role || !shape_equal(&a->shape, &b->shape)) return false;
    }
    return true;
}

/* Whether two operators have one price. Attributes whose unused bytes differ count as different. */
static bool equally_priced(const struct graph *g, const struct graph_op *x, const struct graph_op *y)
{
    return x->kind == y->kind && x->phase == y->phase && x->n_inputs == y->n_inputs &&
           x->n_outputs == y->n_outputs && !memcmp(&x->attrs, &y->attrs, sizeof x->attrs) &&
           tensors_equal(g, x->input, y->input, x->n_inputs) &&
           tensors_equal(g, x->output, y->output, x->n_outputs);
}

/* least: the smaller cost of adding to a parameter's gradient and of overwriting it. Operators without a price are in no plan. */
static enum status price_graph_op(struct stage_table *t, int32_t type, const struct graph_op *x,
                                  int64_t *out, int64_t *least, struct error *err)
{
    struct program_op op = {.kind = x->kind,
                            .phase = x->phase,
                            .attrs = x->attrs,
                            .name = x->name,
                            .n_inputs = x->n_inputs,
                            .n_outputs = x->n_outputs};
    if (op_is_group(x->kind)) {
        if (!t->group)
            return error_set(err, ERR_INPUT, "%s: a collective of a stage without a group",
                             x->name);
        *out = *least = stage_group_ns(t->cost, t->group, t->g, x);
        return OK;
    }
    graph_op_shapes(t->g, x, &op.shapes);
    for (int32_t k = 0; k < x->n_outputs; k++)
        if (t->g->tensors[x->output[k]].role == TENSOR_PARAMETER_GRADIENT)
            op.attrs.accumulate = true;
    TRY(price(t, type, &op, out, err));
    *least = *out;
    if (!op.attrs.accumulate) return OK;
    struct error why;
    int64_t written;
    op.attrs.accumulate = false;
    if (price(t, type, &op, &written, &why) == OK && written < *least) *least = written;
    return OK;
}

/* One update over tensors of this shape. */
static enum status price_update(struct stage_table *t, int32_t type, bool flat, bool decay,
                                const struct shape *shape, int64_t *out, struct error *err)
{
    int32_t n = 2 + (int32_t)optimizer_state_tensors(t->optimizer);
    bool half = dtype_is_half(t->g->dtype);
    struct program_op op = {.kind = optimizer_op(t->optimizer, flat),
                            .phase = PHASE_U,
                            .attrs = {.decay = decay || t->optimizer->decay_all,
                                      .narrows = half,
                                      .hosted = cost_type(t->cost, type)->offloads && (n > 2 || half)},
                            .name = "update",
                            .n_inputs = n,
                            .n_outputs = n};
    op.n_outputs += op.attrs.narrows;
    for (int32_t k = 0; k < op.n_inputs; k++) op.shapes.input[k] = *shape;
    for (int32_t k = 0; k < op.n_outputs; k++) op.shapes.output[k] = *shape;
    return price(t, type, &op, out, err);
}

/* The gradient of a second use is added to the first's and cleared. */
static enum status price_tie(struct stage_table *t, int32_t type, const struct shape *shape,
                             int64_t *out, struct error *err)
{
    struct program_op add = {
        .kind = OP_accumulate, .phase = PHASE_U, .name = "tie", .n_inputs = 1, .n_outputs = 1};
    struct program_op zero = {
        .kind = OP_zero, .phase = PHASE_U, .name = "tie.zero", .n_outputs = 1};
    int64_t zero_ns;
    add.shapes.input[0] = add.shapes.output[0] = zero.shapes.output[0] = *shape;
    TRY(price(t, type, &add, out, err));
    TRY(price(t, type, &zero, &zero_ns, err));
    *out += zero_ns;
    return OK;
}

static struct type_times *new_times(struct stage_table *t)
{
    size_t n = (size_t)t->g->n_layers;
    struct type_times *x = ARENA_ARRAY(t->arena, struct type_times, 1);
    *x = (struct type_times){.forward_ns = ARENA_ARRAY(t->arena, int64_t, n + 1),
                             .input_ns = ARENA_ARRAY(t->arena, int64_t, n + 1),
                             .weight_ns = ARENA_ARRAY(t->arena, int64_t, n + 1),
                             .input_least_ns = ARENA_ARRAY(t->arena, int64_t, n + 1),
                             .weight_least_ns = ARENA_ARRAY(t->arena, int64_t, n + 1),
                             .op_ns = ARENA_ARRAY(t->arena, int64_t, (size_t)t->g->n_forward),
                             .update_row = ARENA_ARRAY(t->arena, int64_t, n),
                             .row_first = -1};
    within_init(&x->update, t->arena, t->g->n_layers);
    return x;
}

/* One update per parameter used in the range, unless all are updated in one; tied parameters are updated once. */
static enum status add_updates(struct stage_table *t, int32_t type, struct type_times *x,
                               struct error *err)
{
    const struct stage_uses *uses;
    int32_t n = stage_sizes_uses(t->sizes, &uses);
    for (int32_t i = 0; i < n; i++) {
        const struct tensor *p = &t->g->tensors[uses[i].tensor];
        int64_t ns = 0;
        if (!t->flat) TRY(price_update(t, type, false, p->decay, &p->shape, &ns, err));
        if (ns) within_add_any(&x->update, uses[i].layer, uses[i].n, 1, ns);
        if (uses[i].n < 2) continue;
        TRY(price_tie(t, type, &p->shape, &ns, err));
        within_add_any(&x->update, uses[i].layer, uses[i].n, 2, ns);
    }
    return OK;
}

/* As price_graph_op, once for equal operators of computations. */
static enum status price_once(struct stage_table *t, int32_t type, struct priced_op *known,
                              const struct graph_op *x, int64_t *ns, int64_t *least,
                              struct error *err)
{
    if (op_is_group(x->kind)) return price_graph_op(t, type, x, ns, least, err);
    struct priced_op *p = priced_place(known, t->g, x);
    if (!p->op || !equally_priced(t->g, p->op, x)) {
        TRY(price_graph_op(t, type, x, &p->ns, &p->least, err));
        p->op = x;
    }
    *ns = p->ns, *least = p->least;
    return OK;
}

static enum status make_times(struct stage_table *t, int32_t type, struct error *err)
{
    const struct graph *g = t->g;
    struct type_times *x = new_times(t);
    struct priced_op known[PRICED_OPS] = {0};
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *op = &g->ops[i];
        int64_t ns = 0, least = 0;
        TRY(price_once(t, type, known, op, &ns, &least, err));
        int64_t *sum = op->phase == PHASE_F   ? x->forward_ns
                       : op->phase == PHASE_W ? x->weight_ns
                                              : x->input_ns;
        sum[op->layer + 1] += ns;
        if (op->phase != PHASE_F)
            (op->phase == PHASE_W ? x->weight_least_ns : x->input_least_ns)[op->layer + 1] += least;
        if (i < g->n_forward) x->op_ns[i] = ns;
    }
    for (int32_t l = 0; l < g->n_layers; l++) {
        x->forward_ns[l + 1] += x->forward_ns[l];
        x->input_ns[l + 1] += x->input_ns[l];
        x->weight_ns[l + 1] += x->weight_ns[l];
        x->input_least_ns[l + 1] += x->input_least_ns[l];
        x->weight_least_ns[l + 1] += x->weight_least_ns[l];
    }
    TRY(add_updates(t, type, x, err));
    t->times[type] = x;
    return OK;
}

static int32_t memo_slot(const struct memo *m, int64_t bytes)
{
    uint64_t at = (uint64_t)bytes * UINT64_C(0x9E3779B97F4A7C15) >> 32;
    for (;; at++) {
        int32_t slot = (int32_t)(at & (uint64_t)(m->n_slots - 1));
        if (!m->bytes[slot] || m->bytes[slot] == bytes) return slot;
    }
}

static void memo_grow(struct arena *a, struct memo *m)
{
    struct memo old = *m;
    m->n_slots = old.n_slots ? 2 * old.n_slots : 64;
    m->bytes = ARENA_ARRAY(a, int64_t, (size_t)m->n_slots);
    m->ns = ARENA_ARRAY(a, int64_t, (size_t)m->n_slots);
    for (int32_t i = 0; i < old.n_slots; i++) {
        if (!old.bytes[i]) continue;
        int32_t slot = memo_slot(m, old.bytes[i]);
        m->bytes[slot] = old.bytes[i], m->ns[slot] = old.ns[i];
    }
}

/* One update over a run of parameters; memoised, because ranges of repeated layers have few distinct sizes. */
static enum status flat_update(struct stage_table *t, int32_t type, bool decay, int64_t bytes,
                               int64_t *sum, struct error *err)
{
    struct memo *m = &t->times[type]->flat[!decay];
    if (!bytes) return OK;
    if (2 * m->n >= m->n_slots) memo_grow(t->arena, m);
    int32_t slot = memo_slot(m, bytes);
    if (!m->bytes[slot]) {
        struct shape shape = {.rank = 1, .dim = {bytes / dtype_bytes(t->g->dtype)}};
        TRY(price_update(t, type, true, decay, &shape, &m->ns[slot], err));
        m->bytes[slot] = bytes, m->n++;
    }
    *sum += m->ns[slot];
    return OK;
}

static enum status update_time(struct stage_table *t, int32_t first, int32_t last, int32_t type,
                               const struct size_row *s, int64_t *out, struct error *err)
{
    struct type_times *x = t->times[type];
    if (x->row_first != first) within_row(&x->update, first, x->update_row);
    x->row_first = first;
    *out = x->update_row[last];
    if (!t->flat) return OK;
    TRY(flat_update(t, type, true, s->decayed[last], out, err));
    return flat_update(t, type, false, s->parameter[last] - s->decayed[last], out, err);
}

/* --- the table --- */

struct stage_table *stage_table_new(struct arena *a, const struct graph *g, struct cost *k,
                                    const struct optimizer *o)
{
    size_t n = (size_t)cost_types(k);
    struct stage_table *t = ARENA_ARRAY(a, struct stage_table, 1);
    *t = (struct stage_table){.arena = a,
                              .g = g,
                              .cost = k,
                              .optimizer = o,
                              .again = stage_again_new(a, g, cost_types(k)),
                              .times = ARENA_ARRAY(a, struct type_times *, n),
                              .sizes = stage_sizes_new(a, g)};
    return t;
}

void stage_table_group(struct stage_table *t, const struct stage_group *group) { t->group = group; }

void stage_table_fused(struct stage_table *t, const enum op_kind *fused, int32_t n)
{
    for (int32_t i = 0; i < n && !optimizer_needs_norms(t->optimizer); i++) t->flat |= fused[i] == optimizer_op(t->optimizer, true);
}

/* Memory of a range besides activations kept from its forward: loaded inputs, and the needed share of received activations. */
static int64_t input_bytes(const struct stage_table *t, const struct size_row *s, int32_t first,
                           int32_t last, uint64_t keeps)
{
    int64_t bytes = s->input[last];
    for (int32_t k = 0; keeps >> k; k++)
        if (keeps >> k & 1)
            bytes += stage_sizes_bytes(t->sizes, t->g->cut[first - 1].tensor[k]);
    return bytes;
}

/* Tensors of the optimizer's state on the device, for each parameter. */
static int64_t state_copies(const struct stage_table *t, int32_t type)
{
    const struct device_type *x = cost_type(t->cost, type);
    return x->offloads ? 0 : optimizer_state_tensors(t->optimizer) + dtype_is_half(t->g->dtype) + x->parameter_copies;
}

enum status stage_table_cost(struct stage_table *t, int32_t first_layer, int32_t last_layer,
                             int32_t type, struct stage_cost *out, struct error *err)
{
    if (first_layer < 0 || last_layer < first_layer || last_layer >= t->g->n_layers || type < 0 ||
        type >= cost_types(t->cost))
        return error_set(err, ERR_INPUT,
                         "invalid stage of layers %" PRId32 " to %" PRId32 " of %" PRId32
                         " on type %" PRId32,
                         first_layer, last_layer, t->g->n_layers, type);
    if (!t->times[type]) TRY(make_times(t, type, err));
    const struct type_times *x = t->times[type];
    const struct size_row *s = stage_sizes_row(t->sizes, first_layer);
    struct stage_again_cost again =
        stage_again_of(t->again, first_layer, last_layer, type, x->op_ns);
    *out = (struct stage_cost){
        .forward_ns = x->forward_ns[last_layer + 1] - x->forward_ns[first_layer],
        .input_ns = x->input_ns[last_layer + 1] - x->input_ns[first_layer],
        .weight_ns = x->weight_ns[last_layer + 1] - x->weight_ns[first_layer],
        .input_least_ns = x->input_least_ns[last_layer + 1] - x->input_least_ns[first_layer],
        .weight_least_ns = x->weight_least_ns[last_layer + 1] - x->weight_least_ns[first_layer],
        .recompute_ns = again.ns,
        .parameter_bytes = s->parameter[last_layer],
        .gradient_bytes = s->gradient[last_layer],
        .state_bytes = state_copies(t, type) * s->parameter[last_layer] / dtype_bytes(t->g->dtype) * master_bytes(t->g),
        .activation_bytes = s->kept[last_layer],
        .input_bytes = input_bytes(t, s, first_layer, last_layer, again.keeps),
        .scratch_bytes = s->scratch[last_layer] + device_type_reserve(cost_type(t->cost, type)),
    };
    return update_time(t, first_layer, last_layer, type, s, &out->update_ns, err);
}
