/* core/graph/op_index_local.c - attributes of an operator's shard that do not follow from its operands' shapes. */
#include "core/graph/op_index_internal.h"

#include <string.h>

/* Rows that the full loss is the mean over; of the load-balancing loss, sequences. */
static int64_t loss_rows(const struct graph *g, const struct graph_op *op)
{
    const struct shape *logits = &g->tensors[op->input[0]].shape;
    if (op->kind == OP_gating) return op->attrs.scale != 0 ? logits->dim[0] : 0;
    return op->attrs.counted ? logits->dim[0] * op->attrs.counted : shape_rows(logits);
}

/* What a device drops is told by the number of the element in the whole, which from the first on go up one by one; of a shard
 * of each row attrs.columns says the rest. */
static void count_elements(const struct shape *x, char letter, int64_t first,
                           struct op_attrs *attrs)
{
    int64_t sequence = 1, row = 1;
    for (int32_t d = 1; d < x->rank; d++) sequence *= x->dim[d];
    for (int32_t d = 2; d < x->rank; d++) row *= x->dim[d];
    if (letter != 'f') attrs->start += first * (letter == 'b' ? sequence : row);
    attrs->whole = sequence;
}

/* Whether the shard of an input determines the letter's extent. */
static bool told(const struct lettered *l, char letter)
{
    for (int32_t k = 0; k < l->op->n_inputs; k++)
        if (strchr(l->input[k], letter)) return true;
    return false;
}

/* Units [first, first + n) of what p is already, counted from there. */
static void narrow(struct op_shard *p, int64_t unit, int64_t of, int64_t first, int64_t n)
{
    *p = (struct op_shard){.first = p->first + first * unit, .n = n * unit, .of = of};
}

static void local_shards(const struct lettered *l, const struct op_sharding *sharding, char letter,
                         int64_t first, int64_t n, struct op_attrs *attrs)
{
    int64_t of = op_index_letter_size(l, letter), unit = of / sharding->n_units;
    if (l->row->lines == letter && (l->row->experts || !told(l, letter)))
        narrow(&attrs->lines, unit, of, first, n);
    else if (l->row->start == letter)
        attrs->start += first * unit;
    if (l->row->columns != letter) return;
    narrow(&attrs->columns, unit, of, first, n);
    if (l->op->kind == OP_dispatch) attrs->capacity = attrs->columns.n;
}

void op_index_local_attrs(const struct graph *g, const struct graph_op *op,
                          const struct grain *grains, const struct op_sharding *sharding,
                          enum op_index index, int64_t first, int64_t n, struct op_attrs *attrs)
{
    struct lettered l = op_index_letters(g, op, grains);
    char letter = op_index_letter_named(&l, op_index_meant(g, op, grains, index));
    if (!letter || !sharding->n_units) return;
    local_shards(&l, sharding, letter, first, n, attrs);
    if (letter == 'v') attrs->whole = op_index_letter_size(&l, 'v');
    if (letter == 'e' && l.row->experts && !attrs->experts)
        attrs->experts = (int32_t)op_index_letter_size(&l, 'e');
    if (letter == 'e' && op->load_ppm) {
        double sum = 0;
        attrs->first_expert += (int32_t)first;
        for (int64_t i = 0; i < n; i++) sum += op->load_ppm[attrs->first_expert + i];
        attrs->load_ppm = n ? (int32_t)(sum / (double)n + 0.5) : 0;
        if (n && !attrs->load_ppm) attrs->load_ppm = 1; /* 0 is equal shares */
    }
    if (letter == 'c' && op->kind == OP_group_norm) attrs->groups = (int32_t)n;
    if (l.row->elements) count_elements(&g->tensors[op->input[0]].shape, letter, first, attrs);
    if (l.row->heads == letter) {
        attrs->heads = (int32_t)(op->attrs.heads / sharding->n_units * n);
        attrs->kv_heads = (int32_t)(op->attrs.kv_heads / sharding->n_units * n);
    }
    if (l.row->mean && (letter == 'b' || letter == 'p')) attrs->mean_rows = loss_rows(g, op);
}

void op_index_local_back_attrs(const struct op_attrs *local, const struct op_shapes *shapes,
                               struct op_attrs *back)
{
    const struct shape *x = &shapes->input[0], *w = &shapes->input[1];
    back->heads = local->heads, back->kv_heads = local->kv_heads;
    back->start = local->start, back->lines = local->lines, back->columns = local->columns;
    back->groups = local->groups, back->experts = local->experts;
    back->load_ppm = local->load_ppm;
    for (int i = 0; i < 2 && x->rank == 4; i++) {
        if (back->stencil.size[i]) back->stencil.size[i] = (int32_t)x->dim[2 + i];
        if (shapes->n_inputs > 1 && w->rank == 4 && back->stencil.kernel[i])
            back->stencil.kernel[i] = (int32_t)w->dim[2 + i];
    }
    if (back->capacity) back->capacity = x->dim[2]; /* of combine: its rows' slots */
}
