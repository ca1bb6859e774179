/* core/graph/gradient.c - reverse-mode differentiation.
 *
 * Forward operators are visited last to first. A rule (gradient_rules.c) appends I operators at
 * once; its W operators are deferred until the gradient sums that this operator completes are appended, so
 * that whatever a rule's order, gradients sent to the previous stage are computed before weight
 * gradients.
 *
 * Invariants:
 *  - the contributions to a tensor's gradient are complete when its first consumer has been
 *    visited; there they are summed, in consumer order, in that consumer's layer;
 *  - contributions are tensors, not copies: if a gradient passes unchanged the same tensor is
 *    contributed, and no operator ever writes into a gradient that another could still read;
 *  - a partial value over devices is added to partial values over the same axes only;
 *  - where a stage of a plan ends (graph.edge), the gradient contributions to one tensor from later stages are summed before it crosses;
 *  - uses of a parameter are counted in forward order over the operators that reach the loss.
 */
#include "core/graph/gradient.h"

#include "core/base/arena.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct contribution {
    int32_t grad;
    uint8_t partial;           /* bit x: a partial value over axis x */
    struct contribution *next; /* of a later consumer: the list is in consumer order */
};

struct gradient_builder {
    struct graph *g;
    double loss_weight;
    int32_t n_tensors;                   /* of the forward graph; the arrays below are that long */
    struct contribution **contributions; /* by tensor */
    bool *wanted;                        /* by tensor */
    int32_t *uses_left;                  /* by parameter: uses not yet visited */
    int32_t *first_consumer, *readers;   /* by tensor: the first reader, and the number of operands that read it */
    int32_t *first_behind
        [GRAPH_EDGES_MAX]; /* by tensor made before the edge: the first consumer behind it, -1 */
    bool *reaches_loss;    /* by tensor */
    int32_t (*partials)
        [GRADIENT_PARTIALS];  /* by tensor that keeps partial values separate; [0] 0 elsewhere */
    int32_t visiting;         /* forward operator */
    struct graph_op *waiting; /* W operators of the operator being visited */
    size_t n_waiting, waiting_capacity;
};

struct graph *gradient_graph(struct gradient_builder *b) { return b->g; }

double gradient_loss_weight(const struct gradient_builder *b) { return b->loss_weight; }

int32_t gradient_of(struct gradient_builder *b, int32_t tensor)
{
    return b->g->tensors[tensor].gradient;
}

int32_t gradient_readers(const struct gradient_builder *b, int32_t tensor)
{
    return b->readers[tensor];
}

bool gradient_wanted(struct gradient_builder *b, int32_t tensor)
{
    return tensor < b->n_tensors && b->wanted[tensor];
}

/* Axes over which the gradient through `tensor` to the visited operator is partial. */
static uint8_t partial_of(const struct gradient_builder *b, int32_t tensor)
{
    const struct graph_op *op = &b->g->ops[b->visiting];
    for (int32_t k = 0; k < op->n_inputs; k++)
        if (op->input[k] == tensor) return op->partial[k];
    return 0;
}

enum status gradient_contribute(struct gradient_builder *b, int32_t tensor, int32_t grad,
                                struct error *err)
{
    return gradient_contribute_partial(b, tensor, grad, partial_of(b, tensor), err);
}

enum status gradient_contribute_partial(struct gradient_builder *b, int32_t tensor, int32_t grad,
                                        uint8_t partial, struct error *err)
{
    const struct tensor *t = &b->g->tensors[tensor], *d = &b->g->tensors[grad];
    if (!gradient_wanted(b, tensor)) BUG("%s: '%s' requires no gradient", d->name, t->name);
    if (!shape_equal(&t->shape, &d->shape))
        return error_set(err, ERR_INPUT, "gradient '%s' has another shape than '%s'", d->name,
                         t->name);
    struct contribution *c = ARENA_ARRAY(b->g->arena, struct contribution, 1);
    *c = (struct contribution){.grad = grad, .partial = partial, .next = b->contributions[tensor]};
    b->contributions[tensor] = c;
    return OK;
}

int32_t gradient_parameter(struct gradient_builder *b, int32_t parameter)
{
    return gradient_parameter_partial(b, parameter, partial_of(b, parameter));
}

int32_t gradient_parameter_partial(struct gradient_builder *b, int32_t parameter, uint8_t partial)
{
    const struct tensor *p = &b->g->tensors[parameter];
    if (p->role != TENSOR_PARAMETER) BUG("'%s' is not a parameter", p->name);
    int32_t use = --b->uses_left[parameter];
    if (use < 0) BUG("'%s' has more gradients than uses", p->name);
    size_t n = strlen(p->name) + 24;
    char *name = arena_alloc(b->g->arena, n, 1);
    int used = snprintf(name, n, "grad.%s", p->name);
    if (use) snprintf(name + used, n - (size_t)used, "#%d", use);
    return graph_add_tensor(b->g, (struct tensor){.name = name,
                                                  .role = TENSOR_PARAMETER_GRADIENT,
                                                  .dtype = dtype_master(p->dtype),
                                                  .shape = p->shape,
                                                  .producer = -1,
                                                  .of = parameter,
                                                  .use = use,
                                                  .shard = p->shard,
                                                  .partial = partial});
}

/* Appends the operator and sets the producer of its outputs. */
static void push(struct graph *g, const struct graph_op *op)
{
    int32_t at = graph_push_op(g, op);
    for (int32_t i = 0; i < op->n_outputs; i++) g->tensors[op->output[i]].producer = at;
}

static void wait_push(struct gradient_builder *b, const struct graph_op *op)
{
    b->waiting =
        arena_grow(b->g->arena, b->waiting, b->n_waiting, &b->waiting_capacity, sizeof *b->waiting);
    b->waiting[b->n_waiting++] = *op;
}

static const char *suffixed(struct graph *g, const char *name, const char *suffix)
{
    size_t n = strlen(name) + strlen(suffix) + 2;
    char *out = arena_alloc(g->arena, n, 1);
    snprintf(out, n, "%s.%s", name, suffix);
    return out;
}

enum status gradient_emit(struct gradient_builder *b, int32_t forward, enum op_kind kind,
                          enum phase phase, const char *suffix, const struct op_attrs *attrs,
                          const int32_t *inputs, int32_t n_inputs, int32_t *outputs,
                          int32_t n_outputs, struct error *err)
{
    struct graph *g = b->g;
    struct graph_op op = {.kind = kind,
                          .phase = phase,
                          .layer = g->ops[forward].layer,
                          .n_inputs = n_inputs,
                          .n_outputs = n_outputs,
                          .forward = forward};
    op.name = suffixed(g, g->ops[forward].name, suffix);
    if (attrs) op.attrs = *attrs;
    for (int32_t i = 0; i < n_inputs; i++) op.input[i] = inputs[i];
    struct op_shapes shapes = {.n_inputs = n_inputs};
    for (int32_t i = 0; i < n_inputs; i++) shapes.input[i] = g->tensors[inputs[i]].shape;
    enum status status = op_infer(kind, &op.attrs, &shapes, err);
    if (status != OK) return error_wrap(err, status, "operator '%s'", op.name);
    if (shapes.n_outputs != n_outputs)
        BUG("%s: %d outputs, not %d", op.name, shapes.n_outputs, n_outputs);
    for (int32_t i = 0; i < n_outputs; i++) {
        if (outputs[i] < 0)
            outputs[i] = graph_add_tensor(
                g, (struct tensor){.name = graph_output_name(g, op.name, i, n_outputs),
                                   .role = TENSOR_GRADIENT,
                                   .dtype = g->dtype,
                                   .shape = shapes.output[i],
                                   .producer = -1,
                                   .of = -1});
        else if (!shape_equal(&g->tensors[outputs[i]].shape, &shapes.output[i]))
            return error_set(err, ERR_INPUT, "operator '%s' does not produce the shape of '%s'",
                             op.name, g->tensors[outputs[i]].name);
        op.output[i] = outputs[i];
    }
    if (phase == PHASE_W)
        wait_push(b, &op);
    else
        push(g, &op);
    return OK;
}

/* --- sums --- */

bool gradient_is_of_parameter(struct gradient_builder *b, int32_t tensor)
{
    const struct graph *g = b->g;
    while (g->tensors[tensor].role != TENSOR_PARAMETER) {
        int32_t p = g->tensors[tensor].producer;
        if (p < 0 || p >= g->n_forward || !g->ops[p].attrs.exchange) return false;
        tensor = g->ops[p].input[0];
    }
    return true;
}

static bool keeps_partials(struct gradient_builder *b, int32_t tensor)
{
    int32_t p = b->g->tensors[tensor].producer;
    if (p < 0 || tensor >= b->n_tensors) return false;
    return b->g->ops[p].kind == OP_group_all_gather || gradient_is_of_parameter(b, tensor);
}

void gradient_partials(struct gradient_builder *b, int32_t tensor, int32_t out[GRADIENT_PARTIALS])
{
    for (int32_t m = 0; m < GRADIENT_PARTIALS; m++) out[m] = -1;
    if (keeps_partials(b, tensor) && b->contributions[tensor])
        memcpy(out, b->partials[tensor], sizeof b->partials[tensor]);
    else
        out[0] = b->g->tensors[tensor].gradient;
}

struct sum { /* in flight, of the gradient of one tensor */
    struct gradient_builder *b;
    int32_t consumer; /* the first forward operator reading it: its layer does the sum */
    int32_t tensor;
    int32_t n_adds, n_reduces;
};

/* An I operator of the consumer, named `what`, numbered from the second on. */
static int32_t sum_op(struct sum *s, enum op_kind kind, const char *what, int32_t number,
                      const int32_t *inputs, int32_t n_inputs, const struct exchange *exchange)
{
    struct graph *g = s->b->g;
    const char *name = suffixed(g, g->tensors[s->tensor].name, what);
    struct graph_op op = {.kind = kind,
                          .phase = PHASE_I,
                          .layer = g->ops[s->consumer].layer,
                          .n_inputs = n_inputs,
                          .n_outputs = 1,
                          .forward = s->consumer,
                          .attrs.exchange = exchange,
                          .name = number > 1 ? graph_output_name(g, name, number, 2) : name};
    for (int32_t i = 0; i < n_inputs; i++) op.input[i] = inputs[i];
    op.output[0] = graph_add_tensor(g, (struct tensor){.name = op.name,
                                                       .role = TENSOR_GRADIENT,
                                                       .dtype = g->dtype,
                                                       .shape = g->tensors[inputs[0]].shape,
                                                       .of = -1});
    push(g, &op);
    return op.output[0];
}

/* Fuses the addition into the norm's gradient that was made for this sum. */
static bool norm_adds(struct sum *s, int32_t x, int32_t y)
{
    struct graph *g = s->b->g;
    int32_t p = g->tensors[x].producer;
    if (p < g->n_forward || g->ops[p].kind != OP_layer_norm_grad || x == y ||
        !graph_fuses(g, OP_layer_norm_grad_add))
        return false;
    struct graph_op *op = &g->ops[p];
    if (g->ops[op->forward].input[0] != s->tensor || op->layer != g->ops[s->consumer].layer ||
        g->tensors[y].producer >= p)
        return false;
    op->kind = OP_layer_norm_grad_add;
    op->input[op->n_inputs++] = y;
    return true;
}

/* x + y, either of which may be none (-1). */
static int32_t add_up(struct sum *s, int32_t x, int32_t y)
{
    if (x < 0 || y < 0) return x < 0 ? y : x;
    if (norm_adds(s, x, y)) return x;
    return sum_op(s, OP_add, "grad_sum", ++s->n_adds, (int32_t[]){x, y}, 2, NULL);
}

static int32_t reduce(struct sum *s, int32_t x, int32_t axis)
{
    struct graph *g = s->b->g;
    if (!g->group[axis]) BUG("'%s': no group along axis %d", g->tensors[s->tensor].name, axis);
    return sum_op(s, OP_group_all_reduce, "grad_all_reduce", ++s->n_reduces, &x, 1, g->group[axis]);
}

/* One reduction over the group for all values partial over the same axes. */
static int32_t reduce_partials(struct sum *s, int32_t sums[GRADIENT_PARTIALS])
{
    enum { FIRST = 1, SECOND = 2, BOTH = 3 }; /* axes */
    if (sums[BOTH] >=
        0) { /* first the axis whose result is added to other partial values, if any */
        int32_t axis = sums[FIRST] >= 0 || sums[SECOND] < 0 ? 1 : 0, rest = axis ? FIRST : SECOND;
        sums[rest] = add_up(s, sums[rest], reduce(s, sums[BOTH], axis));
    }
    if (sums[SECOND] >= 0) sums[0] = add_up(s, reduce(s, sums[SECOND], 1), sums[0]);
    if (sums[FIRST] >= 0) sums[0] = add_up(s, reduce(s, sums[FIRST], 0), sums[0]);
    return sums[0];
}

int32_t gradient_reduce_partials(struct gradient_builder *b, int32_t forward, int32_t tensor,
                                 int32_t partials[GRADIENT_PARTIALS])
{
    struct sum s = {.b = b, .consumer = forward, .tensor = tensor};
    return reduce_partials(&s, partials);
}

/* The gradient of tensor from its contributions; consumer: the first forward operator reading it. */
static void sum_up(struct gradient_builder *b, int32_t consumer, int32_t tensor)
{
    struct graph *g = b->g;
    const struct contribution *c = b->contributions[tensor];
    if (!c) return; /* no path to the loss */
    struct sum s = {.b = b, .consumer = consumer, .tensor = tensor};
    int32_t sums[GRADIENT_PARTIALS];
    for (int32_t m = 0; m < GRADIENT_PARTIALS; m++) sums[m] = -1;
    for (; c; c = c->next) sums[c->partial] = add_up(&s, sums[c->partial], c->grad);
    if (keeps_partials(b, tensor)) {
        memcpy(b->partials[tensor], sums, sizeof sums);
        return;
    }
    int32_t sum = reduce_partials(&s, sums);
    g->tensors[tensor].gradient = sum;
    if (g->tensors[sum].of < 0) g->tensors[sum].of = tensor;
}

/* Combines the contributions of all consumers after an edge into one complete contribution, in the layer of the first consumer. */
static void sum_behind(struct gradient_builder *b, int32_t edge, int32_t consumer, int32_t tensor)
{
    struct contribution *c = b->contributions[tensor];
    if (!c) return;
    struct sum s = {.b = b, .consumer = consumer, .tensor = tensor};
    int32_t sums[GRADIENT_PARTIALS];
    for (int32_t m = 0; m < GRADIENT_PARTIALS; m++) sums[m] = -1;
    for (const struct contribution *x = c; x; x = x->next)
        sums[x->partial] = add_up(&s, sums[x->partial], x->grad);
    *c = (struct contribution){.grad = reduce_partials(&s, sums)};
    b->g->crossing[edge][tensor] = c->grad;
}

static bool has_gradient(struct gradient_builder *b, const struct graph_op *op)
{
    const struct tensor *t = &b->g->tensors[op->output[0]];
    return t->role == TENSOR_LOSS || t->gradient >= 0 ||
           (keeps_partials(b, op->output[0]) && b->contributions[op->output[0]]);
}

static enum status visit(struct gradient_builder *b, int32_t i, struct error *err)
{
    struct graph *g = b->g;
    b->n_waiting = 0;
    b->visiting = i;
    if (has_gradient(b, &g->ops[i])) {
        op_gradient_rule *rule = op_gradient(g->ops[i].kind);
        if (!rule)
            return error_set(err, ERR_INPUT, "operator '%s': %s has no gradient", g->ops[i].name,
                             op_kind_name(g->ops[i].kind));
        TRY(rule(b, i, err));
    }
    for (int32_t e = g->n_edges - 1; e >= 0; e--)
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) {
            int32_t t = g->ops[i].input[k];
            if (b->first_behind[e][t] == i && g->crossing[e][t] < 0) sum_behind(b, e, i, t);
        }
    for (int32_t k = 0; k < g->ops[i].n_inputs; k++) {
        int32_t t = g->ops[i].input[k];
        if (b->first_consumer[t] != i || g->tensors[t].gradient >= 0) continue;
        bool again = false; /* an operator may read a tensor twice */
        for (int32_t j = 0; j < k; j++) again = again || g->ops[i].input[j] == t;
        if (!again) sum_up(b, i, t);
    }
    for (size_t w = 0; w < b->n_waiting; w++) push(g, &b->waiting[w]);
    return OK;
}

/* The first reader after each edge of tensors made before it. */
static void find_edges(struct gradient_builder *b)
{
    struct graph *g = b->g;
    size_t n = (size_t)g->n_tensors;
    for (int32_t e = 0; e < g->n_edges; e++) {
        b->first_behind[e] = ARENA_ARRAY(g->arena, int32_t, n);
        g->crossing[e] = ARENA_ARRAY(g->arena, int32_t, n);
        for (size_t t = 0; t < n; t++) b->first_behind[e][t] = g->crossing[e][t] = -1;
        for (int32_t i = g->n_forward - 1; i >= 0; i--)
            for (int32_t k = 0; k < g->ops[i].n_inputs && g->ops[i].layer > g->edge[e]; k++) {
                int32_t t = g->ops[i].input[k], made = g->tensors[t].producer;
                if (made >= 0 && g->ops[made].layer <= g->edge[e]) b->first_behind[e][t] = i;
            }
    }
}

/* Forward: tensors that require gradients, and first readers. Backward: tensors that reach the loss, and their uses. */
static bool prepare(struct gradient_builder *b)
{
    struct graph *g = b->g;
    size_t n = (size_t)g->n_tensors;
    bool loss = false;
    b->n_tensors = g->n_tensors;
    b->contributions = ARENA_ARRAY(g->arena, struct contribution *, n);
    b->wanted = ARENA_ARRAY(g->arena, bool, n);
    b->uses_left = ARENA_ARRAY(g->arena, int32_t, n);
    b->first_consumer = ARENA_ARRAY(g->arena, int32_t, n);
    b->readers = ARENA_ARRAY(g->arena, int32_t, n);
    b->reaches_loss = ARENA_ARRAY(g->arena, bool, n);
    b->partials = arena_alloc(g->arena, n, sizeof *b->partials);
    for (size_t t = 0; t < n; t++) {
        const struct tensor *x = &g->tensors[t];
        b->first_consumer[t] = -1;
        b->wanted[t] = x->role == TENSOR_ACTIVATION && x->producer < 0;
        b->uses_left[t] = g->uses_before ? g->uses_before[t] : 0;
    }
    if (g->open) b->reaches_loss[g->open - 1] = loss = true;
    for (int32_t i = 0; i < g->n_forward; i++) {
        const struct graph_op *op = &g->ops[i];
        bool trains = false;
        for (int32_t k = 0; k < op->n_inputs; k++) {
            int32_t t = op->input[k];
            if (!b->readers[t]++) b->first_consumer[t] = i;
            trains = trains || g->tensors[t].role == TENSOR_PARAMETER || b->wanted[t];
        }
        for (int32_t k = 0; k < op->n_outputs; k++)
            b->wanted[op->output[k]] =
                trains && g->tensors[op->output[k]].role == TENSOR_ACTIVATION;
    }
    for (int32_t i = g->n_forward - 1; i >= 0; i--) {
        const struct graph_op *op = &g->ops[i];
        bool reaches = false;
        for (int32_t k = 0; k < op->n_outputs; k++) {
            bool is_loss = g->tensors[op->output[k]].role == TENSOR_LOSS;
            loss = loss || is_loss;
            reaches = reaches || is_loss || b->reaches_loss[op->output[k]];
        }
        for (int32_t k = 0; reaches && k < op->n_inputs; k++) {
            b->reaches_loss[op->input[k]] = true;
            if (g->tensors[op->input[k]].role == TENSOR_PARAMETER) b->uses_left[op->input[k]]++;
        }
    }
    return loss;
}

/* The gradient that comes from behind a window. */
static void enter(struct graph *g)
{
    if (!g->open) return;
    const struct tensor *t = &g->tensors[g->open - 1];
    int32_t gradient = graph_add_tensor(g, (struct tensor){.name = suffixed(g, t->name, "grad_behind"),
                                                           .role = TENSOR_GRADIENT,
                                                           .dtype = g->dtype,
                                                           .shape = t->shape,
                                                           .producer = -1,
                                                           .of = g->open - 1});
    g->tensors[g->open - 1].gradient = gradient;
}

static atomic_llong graphs = 1; /* differentiated; only compared for equality, so results do not depend on it */

enum status gradient_build(struct graph *g, double loss_weight, struct error *err)
{
    if (g->n_ops != g->n_forward) BUG("gradient_build: the graph already has gradients");
    struct gradient_builder b = {.g = g, .loss_weight = loss_weight};
    find_edges(&b);
    if (!prepare(&b)) return error_set(err, ERR_INPUT, "the graph computes no loss");
    enter(g);
    for (int32_t i = g->n_forward - 1; i >= 0; i--) TRY(visit(&b, i, err));
    g->serial = atomic_fetch_add(&graphs, 1);
    return OK;
}
