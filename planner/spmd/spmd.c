/* planner/spmd/spmd.c - a stage's graph as a problem of planner/spmd/search, and its answer as a sharding.
 *
 * Operators with equal costs under every choice form a class, whose rules are made once; a model has about twenty. Reshardings are
 * made for the pairs of placements that some producer and some reader of a tensor of that shape may have. */
#include "planner/spmd/spmd.h"

#include "core/base/arena.h"
#include "core/base/stop.h"
#include "planner/spmd/rules.h"

#include <string.h>

/* --- classes of operators --- */

struct class
{               /* of forward operators */
    int32_t op; /* the first of them */
    uint64_t signature;
    struct spmd_op rules; /* rules, keeps_* */
};

struct making {
    struct builder b;
    struct class *classes;
    int32_t n_classes;
    size_t class_capacity;
    struct spmd_op *ops;               /* of the problem */
    struct spmd_tensor *tensors;       /* (n_tensors) */
    struct spmd_tensor_class **shapes; /* tensor classes and their shapes */
    struct shape *shape_of;
    int64_t *element_bytes;
    int32_t n_shapes;
    size_t shape_capacity;
    int32_t *shape_index;          /* (n_tensors) */
    int32_t *maker, *maker_output; /* (n_tensors) operator of the problem */
};

static uint64_t op_signature(const struct builder *b, int32_t i)
{
    struct op_shapes shapes;
    const struct graph_op *op = &b->g->ops[i];
    graph_op_shapes(b->g, op, &shapes);
    uint64_t h = op_key(op->kind, &op->attrs, &shapes, b->g->dtype);
    for (int32_t k = b->first_back[i]; k >= 0; k = b->next_back[k]) {
        const struct graph_op *back = &b->g->ops[k];
        graph_op_shapes(b->g, back, &shapes);
        h = h * UINT64_C(0x9E3779B97F4A7C15) ^
            op_key(back->kind, &back->attrs, &shapes, b->g->dtype);
    }
    return h;
}

static bool same_operand(const struct builder *b, int32_t t, int32_t u)
{
    const struct tensor *x = &b->g->tensors[t], *y = &b->g->tensors[u];
    if (x->role == TENSOR_INPUT && t != u) return false; /* kept by its first reader */
    return x->role == y->role && x->dtype == y->dtype && shape_equal(&x->shape, &y->shape) &&
           b->shared[t] == b->shared[u] && b->crosses[t] == b->crosses[u] && grain_equal(&b->grains[t], &b->grains[u]) &&
           b->grains[t].name == b->grains[u].name && x->decay == y->decay;
}

static bool same_class(const struct builder *b, int32_t i, int32_t j)
{
    const struct graph_op *x = &b->g->ops[i], *y = &b->g->ops[j];
    if (x->kind != y->kind || x->n_inputs != y->n_inputs || x->n_outputs != y->n_outputs)
        return false;
    for (int32_t k = 0; k < x->n_inputs; k++)
        if (!same_operand(b, x->input[k], y->input[k])) return false;
    for (int32_t k = 0; k < x->n_outputs; k++)
        if (!same_operand(b, x->output[k], y->output[k])) return false;
    return true;
}

/* Operands read by its gradient operators; gates without a gradient. */
static void find_kept(const struct builder *b, int32_t i, struct spmd_op *out)
{
    const struct graph_op *op = &b->g->ops[i];
    int32_t gates = op_gates_input(op->kind);
    bool flows = gates < 0;
    for (int32_t q = b->first_back[i]; q >= 0; q = b->next_back[q])
        flows = flows || b->g->ops[q].kind == OP_gates_grad;
    if (!flows) out->silent = (uint8_t)(1 << gates);
    for (int32_t q = b->first_back[i]; q >= 0; q = b->next_back[q])
        for (int32_t k = 0; k < b->g->ops[q].n_inputs; k++) {
            int32_t t = b->g->ops[q].input[k];
            for (int32_t j = 0; j < op->n_inputs; j++)
                if (op->input[j] == t) out->keeps_input |= (uint8_t)(1 << j);
            for (int32_t j = 0; j < op->n_outputs; j++)
                if (op->output[j] == t) out->keeps_output |= (uint8_t)(1 << j);
        }
}

static enum status class_of(struct making *m, int32_t i, int32_t *out, struct error *err)
{
    uint64_t signature = op_signature(&m->b, i);
    for (*out = 0; *out < m->n_classes; ++*out) {
        const struct class *c = &m->classes[*out];
        if (c->signature == signature && same_class(&m->b, c->op, i)) return OK;
    }
    struct class c = {.op = i, .signature = signature};
    find_kept(&m->b, i, &c.rules);
    TRY(spmd_rules_of(&m->b, i, &c.rules, err));
    m->classes = arena_grow(m->b.a, m->classes, (size_t)m->n_classes, &m->class_capacity, sizeof c);
    m->classes[m->n_classes++] = c;
    return OK;
}

/* --- operators --- */

static void find_back(struct builder *b)
{
    const struct graph *g = b->g;
    b->first_back = ARENA_ARRAY(b->a, int32_t, (size_t)g->n_forward);
    b->next_back = ARENA_ARRAY(b->a, int32_t, (size_t)g->n_ops);
    for (int32_t i = 0; i < g->n_forward; i++) b->first_back[i] = -1;
    for (int32_t k = g->n_ops - 1; k >= g->n_forward; k--) {
        int32_t i = g->ops[k].forward;
        if (i < 0) continue;
        b->next_back[k] = b->first_back[i];
        b->first_back[i] = k;
    }
}

static void find_shared(struct builder *b)
{
    const struct graph *g = b->g;
    int32_t *reader = ARENA_ARRAY(b->a, int32_t, (size_t)g->n_tensors);
    b->shared = ARENA_ARRAY(b->a, bool, (size_t)g->n_tensors);
    b->input_reader = ARENA_ARRAY(b->a, int32_t, (size_t)g->n_tensors);
    for (int32_t t = 0; t < g->n_tensors; t++) b->input_reader[t] = -1;
    for (int32_t i = 0; i < g->n_forward; i++)
        for (int32_t k = 0;
             graph_op_within(g, i, b->q->first_layer, b->q->last_layer) && k < g->ops[i].n_inputs;
             k++) {
            int32_t t = g->ops[i].input[k];
            if (b->input_reader[t] < 0) b->input_reader[t] = i;
            if (g->tensors[t].role != TENSOR_PARAMETER) continue;
            b->shared[t] = b->shared[t] || reader[t];
            reader[t] = 1;
        }
}

static void find_crossing(struct builder *b)
{
    const struct graph *g = b->g;
    b->crosses = ARENA_ARRAY(b->a, bool, (size_t)g->n_tensors);
    for (int32_t l = 0; l + 1 < g->n_layers && b->q->complete_cuts; l++)
        for (int32_t k = 0; k < g->cut[l].n; k++) b->crosses[g->cut[l].tensor[k]] = true;
}

static void add_maker(struct making *m, int32_t at)
{
    const struct spmd_op *op = &m->ops[at];
    for (int32_t k = 0; k < op->n_outputs; k++)
        m->maker[op->output[k]] = at, m->maker_output[op->output[k]] = k;
}

/* Stage inputs are produced by entry operators of cost 0, each with as many operands as allowed. */
static int32_t make_entries(struct making *m)
{
    const struct cut *cut = &m->b.g->cut[m->b.q->first_layer - 1];
    int32_t n = 0;
    for (int32_t first = 0; first < cut->n; n++) {
        struct spmd_op *op = &m->ops[n];
        while (op->n_outputs < OP_OPERANDS_MAX && first < cut->n)
            op->output[op->n_outputs++] = cut->tensor[first++];
        op->class = -1 - n;
        spmd_entry_rules(&m->b, op);
        add_maker(m, n);
    }
    return n;
}

static enum status make_ops(struct making *m, struct error *err)
{
    const struct graph *g = m->b.g;
    struct spmd_tables *t = m->b.t;
    int32_t n = 0;
    int32_t crossing = m->b.q->first_layer > 0 ? g->cut[m->b.q->first_layer - 1].n : 0;
    m->ops = ARENA_ARRAY(m->b.a, struct spmd_op, (size_t)(g->n_forward + crossing));
    t->first_op = -1;
    if (m->b.q->first_layer > 0) n = t->n_entries = make_entries(m);
    for (int32_t i = 0; i < g->n_forward; i++) {
        const struct graph_op *op = &g->ops[i];
        int32_t class;
        if (!graph_op_within(m->b.g, i, m->b.q->first_layer, m->b.q->last_layer)) continue;
        if (t->first_op < 0) t->first_op = i;
        TRY(stop_check(err));
        TRY(class_of(m, i, &class, err));
        m->ops[n] = m->classes[class].rules;
        m->ops[n].class = class;
        m->ops[n].n_inputs = op->n_inputs, m->ops[n].n_outputs = op->n_outputs;
        memcpy(m->ops[n].input, op->input, sizeof op->input);
        memcpy(m->ops[n].output, op->output, sizeof op->output);
        add_maker(m, n++);
    }
    t->problem.n_ops = n, t->problem.ops = m->ops;
    return OK;
}

/* --- tensors --- */

static int32_t shape_number(struct making *m, const struct tensor *t)
{
    int64_t bytes = dtype_bytes(t->dtype);
    for (int32_t k = 0; k < m->n_shapes; k++)
        if (m->element_bytes[k] == bytes && shape_equal(&m->shape_of[k], &t->shape)) return k;
    if ((size_t)m->n_shapes == m->shape_capacity) {
        size_t capacity = m->shape_capacity, same = capacity, other = capacity;
        m->shapes = arena_grow(m->b.a, m->shapes, capacity, &m->shape_capacity, sizeof *m->shapes);
        m->shape_of = arena_grow(m->b.a, m->shape_of, capacity, &same, sizeof *m->shape_of);
        m->element_bytes = arena_grow(m->b.a, m->element_bytes, capacity, &other, sizeof(int64_t));
    }
    m->shape_of[m->n_shapes] = t->shape, m->element_bytes[m->n_shapes] = bytes;
    m->shapes[m->n_shapes] = ARENA_ARRAY(m->b.a, struct spmd_tensor_class, 1);
    return m->n_shapes++;
}

static void make_tensors(struct making *m)
{
    const struct graph *g = m->b.g;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        struct spmd_tensor *x = &m->tensors[t];
        m->shape_index[t] = -1;
        if (m->b.shared[t]) x->kind = SPMD_SHARED, x->join = spmd_join, x->home_ns = spmd_home_ns;
        if (m->maker[t] < 0) continue;
        x->kind = SPMD_MADE;
        x->wanted = g->tensors[t].gradient >= 0;
        m->shape_index[t] = shape_number(m, &g->tensors[t]);
        x->of = m->shapes[m->shape_index[t]];
    }
}

/* --- resharding --- */

struct reshards {               /* while placements are still being added */
    int32_t n;              /* placements that rules name */
    struct spmd_reshard ***reshard; /* by shape: (n, n) */
    bool **seen;
};

static enum status make_reshard(struct making *m, int32_t shape, int32_t from, int32_t to,
                            struct spmd_reshard *out, struct error *err)
{
    struct spmd_price *y = m->b.t->price;
    const struct shape *whole = &m->shape_of[shape];
    struct placement p = *spmd_placement_of(y, from), q = *spmd_placement_of(y, to);
    struct conversion c[CONVERSIONS_MAX];
    struct error none = {0};
    int64_t bytes = m->element_bytes[shape], times = m->b.q->microbatches;
    out->n = -1;
    int32_t n;
    if (shard_conversions(m->b.q->s, &p, &q, &n, c, &none) != OK) return OK;
    for (int32_t k = 0; k < n; k++) {
        int32_t before = spmd_placement(y, &c[k].before), after = spmd_placement(y, &c[k].after);
        enum op_kind dual = conversion_dual(c[k].kind, false),
                     partial = conversion_dual(c[k].kind, true);
        bool gather = c[k].kind == OP_group_all_gather;
        if (c[k].kind == OP_group_all_reduce)
            dual = partial = OP_KIND_COUNT; /* partial values are reduced separately */
        struct spmd_step s = {.after = after, .axis = (int8_t)c[k].axis, .gather = gather};
        TRY(spmd_step_ns(y, whole, bytes, c[k].kind, s.axis, before, after, &s.forward_ns, err));
        TRY(spmd_step_ns(y, whole, bytes, dual, s.axis, after, before, &s.back_ns, err));
        TRY(spmd_step_ns(y, whole, bytes, partial, s.axis, after, before, &s.back_partial_ns, err));
        s.forward_ns *= times, s.back_ns *= times, s.back_partial_ns *= times;
        out->step[k] = s;
    }
    out->n = n;
    return OK;
}

static enum status need_reshard(struct making *m, struct reshards *w, int32_t shape, int32_t from,
                            int32_t to, struct error *err)
{
    size_t at = (size_t)from * (size_t)w->n + (size_t)to;
    if (from == to || w->seen[shape][at]) return OK;
    w->seen[shape][at] = true;
    struct spmd_reshard reshard;
    TRY(stop_check(err));
    TRY(make_reshard(m, shape, from, to, &reshard, err));
    if (reshard.n >= 0) w->reshard[shape][at] = arena_copy(m->b.a, &reshard, sizeof reshard);
    return OK;
}

/* Placement of outputs to the next stage: sharded by batch stays, all others become replicated. */
static int32_t leaving(struct making *m, int32_t from)
{
    struct placement p = *spmd_placement_of(m->b.t->price, from);
    for (int32_t x = 0; x < m->b.q->s->n_axes; x++)
        if (p.axis[x].how != PLACED_SHARDED || p.axis[x].dim != 0)
            p.axis[x] = (struct on_axis){.how = PLACED_REPLICATED};
    return spmd_placement(m->b.t->price, &p);
}

static const struct cut *last_cut(const struct making *m)
{
    const struct graph *g = m->b.g;
    return m->b.q->last_layer + 1 < g->n_layers ? &g->cut[m->b.q->last_layer] : NULL;
}

static enum status find_reshards(struct making *m, struct reshards *w, struct error *err)
{
    const struct spmd_problem *p = &m->b.t->problem;
    const struct cut *cut = last_cut(m);
    for (int32_t c = 0; cut && c < cut->n; c++) { /* placements that appear in no rule */
        const struct spmd_op *maker = &m->ops[m->maker[cut->tensor[c]]];
        for (int32_t r = 0; r < maker->n_rules; r++)
            leaving(m, maker->rules[r].give[m->maker_output[cut->tensor[c]]]);
    }
    size_t n = (size_t)(w->n = spmd_placements(m->b.t->price));
    w->reshard = ARENA_ARRAY(m->b.a, struct spmd_reshard **, (size_t)m->n_shapes);
    w->seen = ARENA_ARRAY(m->b.a, bool *, (size_t)m->n_shapes);
    for (int32_t s = 0; s < m->n_shapes; s++) {
        w->reshard[s] = ARENA_ARRAY(m->b.a, struct spmd_reshard *, n * n);
        w->seen[s] = ARENA_ARRAY(m->b.a, bool, n *n);
    }
    for (int32_t i = 0; i < p->n_ops; i++)
        for (int32_t k = 0; k < p->ops[i].n_inputs; k++) {
            int32_t t = p->ops[i].input[k], j = m->maker[t];
            if (j < 0) continue;
            for (int32_t r = 0; r < p->ops[j].n_rules; r++)
                for (int32_t v = 0; v < p->ops[i].n_rules; v++)
                    TRY(need_reshard(m, w, m->shape_index[t],
                                 p->ops[j].rules[r].give[m->maker_output[t]],
                                 p->ops[i].rules[v].need[k], err));
        }
    for (int32_t c = 0; cut && c < cut->n; c++) {
        int32_t t = cut->tensor[c];
        const struct spmd_op *maker = &m->ops[m->maker[t]];
        for (int32_t r = 0; r < maker->n_rules; r++) {
            int32_t from = maker->rules[r].give[m->maker_output[t]];
            TRY(need_reshard(m, w, m->shape_index[t], from, leaving(m, from), err));
        }
    }
    return OK;
}

/* All-reduce times and bytes of one shape in every placement. */
static enum status finish_shape(struct making *m, const struct reshards *w, int32_t shape,
                                struct error *err)
{
    struct spmd_price *y = m->b.t->price;
    size_t n = (size_t)spmd_placements(y);
    const struct spmd_reshard **reshard = ARENA_ARRAY(m->b.a, const struct spmd_reshard *, n *n);
    int64_t(*sum)[2] = arena_alloc(m->b.a, n, sizeof *sum);
    const int64_t **bytes = ARENA_ARRAY(m->b.a, const int64_t *, n);
    bool *used = ARENA_ARRAY(m->b.a, bool, n);
    for (size_t p = 0; p < (size_t)w->n; p++)
        for (size_t q = 0; q < (size_t)w->n; q++) {
            const struct spmd_reshard *x = w->reshard[shape][p * (size_t)w->n + q];
            reshard[p * n + q] = x;
            if (w->seen[shape][p * (size_t)w->n + q]) used[p] = used[q] = true;
            for (int32_t k = 0; x && k < x->n; k++) used[x->step[k].after] = true;
        }
    for (int32_t t = 0; t < m->b.g->n_tensors; t++) { /* read only in its initial placement */
        if (m->shape_index[t] != shape) continue;
        const struct spmd_op *maker = &m->ops[m->maker[t]];
        for (int32_t r = 0; r < maker->n_rules; r++)
            used[maker->rules[r].give[m->maker_output[t]]] = true;
    }
    for (size_t p = 0; p < n; p++) {
        if (!used[p]) continue;
        const struct shape *shards = spmd_shards(y, &m->shape_of[shape], (int32_t)p);
        int64_t *b = ARENA_ARRAY(m->b.a, int64_t, (size_t)m->b.n_devices);
        for (int32_t d = 0; d < m->b.n_devices; d++)
            b[d] = spmd_is_own(y, (int32_t)p)
                       ? 0 /* given by its rule */
                       : shape_elements(&shards[d]) * m->element_bytes[shape] * m->b.q->in_flight;
        bytes[p] = b;
        for (int32_t x = 0; x < m->b.q->s->n_axes; x++) {
            TRY(spmd_reduce_ns(y, &m->shape_of[shape], m->element_bytes[shape], x, (int32_t)p,
                            &sum[p][x], err));
            sum[p][x] *= m->b.q->microbatches;
        }
    }
    *m->shapes[shape] = (struct spmd_tensor_class){reshard, (const int64_t(*)[2])sum, bytes};
    return OK;
}

static void make_leaves(struct making *m)
{
    const struct cut *cut = last_cut(m);
    struct spmd_problem *p = &m->b.t->problem;
    if (!cut) return;
    size_t n = (size_t)p->n_tensors * (size_t)p->n_placements;
    int32_t *leaves = ARENA_ARRAY(m->b.a, int32_t, n);
    for (size_t k = 0; k < n; k++) leaves[k] = -2;
    for (int32_t c = 0; c < cut->n; c++) {
        int32_t t = cut->tensor[c];
        for (int32_t q = 0; q < p->n_placements; q++) leaves[t * p->n_placements + q] = -1;
        const struct spmd_op *maker = &m->ops[m->maker[t]];
        for (int32_t r = 0; r < maker->n_rules; r++) {
            int32_t from = maker->rules[r].give[m->maker_output[t]];
            leaves[t * p->n_placements + from] = leaving(m, from);
        }
    }
    p->leaves = leaves;
}

/* --- the tables --- */

static void fill_caps(struct making *m)
{
    struct spmd_problem *p = &m->b.t->problem;
    int64_t *cap = ARENA_ARRAY(m->b.a, int64_t, (size_t)m->b.n_devices);
    for (int32_t d = 0; d < m->b.n_devices; d++) {
        int64_t reserve = m->b.q->reserve_bytes ? m->b.q->reserve_bytes[d] : 0;
        cap[d] = m->b.q->memory_bytes ? m->b.q->memory_bytes[d] - reserve : INT64_MAX / 8;
    }
    p->cap = cap, p->n_columns = m->b.n_devices;
}

static enum status check(const struct spmd_question *q, struct error *err)
{
    if (q->first_layer < 0 || q->last_layer < q->first_layer || q->last_layer >= q->g->n_layers)
        return error_set(err, ERR_INPUT, "layers %d to %d: expected a range within 0 to %d",
                         q->first_layer, q->last_layer, q->g->n_layers - 1);
    if (q->s->n_devices > 256)
        return error_set(err, ERR_INPUT, "%d devices in a sharded stage: expected at most 256",
                         q->s->n_devices);
    if (q->microbatches < 1 || q->in_flight < 1)
        return error_set(err, ERR_INPUT, "%d microbatches, %d in flight: expected at least 1 of both",
                         q->microbatches, q->in_flight);
    return OK;
}

/* Fitted on the CPU time of 218 tables of HAP's models on 8 and on 64 devices, one axis and two, one vector and three. */
enum { RULE_DEVICE_NS = 1000, TENSOR_COLLECTIVE_NS = 1000, PAIR_NS = 6 };

static int64_t work_of(const struct builder *b)
{
    int64_t pairs, collectives = spmd_collectives_priced(b->t->price, &pairs);
    return (int64_t)b->n_meanings * b->n_devices * RULE_DEVICE_NS + collectives * TENSOR_COLLECTIVE_NS +
           pairs * PAIR_NS;
}

enum status spmd_tables_new(struct arena *a, const struct spmd_question *q,
                            struct spmd_tables **out, struct error *err)
{
    TRY(check(q, err));
    struct making *m = ARENA_ARRAY(a, struct making, 1);
    struct spmd_tables *t = ARENA_ARRAY(a, struct spmd_tables, 1);
    size_t n = (size_t)q->g->n_tensors;
    m->b = (struct builder){.a = a, .q = q, .g = q->g, .t = t, .n_devices = q->s->n_devices};
    m->b.grains = graph_grains(a, q->g);
    t->price = spmd_price_new(a, q->s, q->hop, q->of, q->algorithms, q->node, q->bus, q->measured);
    m->tensors = ARENA_ARRAY(a, struct spmd_tensor, n);
    m->shape_index = ARENA_ARRAY(a, int32_t, n);
    m->maker = ARENA_ARRAY(a, int32_t, n);
    m->maker_output = ARENA_ARRAY(a, int32_t, n);
    for (size_t k = 0; k < n; k++) m->maker[k] = -1;
    find_back(&m->b);
    find_shared(&m->b);
    find_crossing(&m->b);
    TRY(make_ops(m, err));
    make_tensors(m);
    struct reshards w = {0};
    TRY(find_reshards(m, &w, err));
    for (int32_t s = 0; s < m->n_shapes; s++) {
        TRY(stop_check(err));
        TRY(finish_shape(m, &w, s, err));
    }
    t->problem.n_tensors = q->g->n_tensors, t->problem.tensors = m->tensors;
    t->problem.n_placements = spmd_placements(t->price);
    t->problem.user = spmd_shared_user(&m->b);
    fill_caps(m);
    make_leaves(m);
    t->meanings = m->b.meanings;
    t->work_ns = work_of(&m->b);
    *out = t;
    return OK;
}
