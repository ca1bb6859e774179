/* core/graph/op_index.c - placements derived from the letters of the operator table's rows.
 *
 * The code depends on letters only, not on kinds, except for attention, whose head dimensions are sharded in units that differ
 * between operands.
 */
#include "core/graph/op_index.h"

#include "core/base/arena.h"
#include "core/graph/op_index_internal.h"

#include <stdio.h>
#include <string.h>

static const char *const names[INDEX_COUNT] = {
#define X(name) #name,
    OP_INDICES(X)
#undef X
};

const char *op_index_name(enum op_index index) { return names[index]; }

bool op_index_shard_is_hidden(enum op_kind kind)
{
    return op_schema(kind)->index.lines || op_schema(kind)->index.columns;
}

bool op_index_has_row(enum op_kind kind) { return op_schema(kind)->index.letters != NULL; }

static enum op_index index_of_letter(char letter)
{
    switch (letter) {
    case 'b':
        return INDEX_batch;
    case 'p':
        return INDEX_positions;
    case 'f':
    case 'o':
        return INDEX_features;
    case 'i':
        return INDEX_inputs;
    case 'h':
        return INDEX_heads;
    case 'v':
        return INDEX_vocabulary;
    case 'e':
        return INDEX_experts;
    case 'c':
        return INDEX_channels;
    case 'r':
        return INDEX_rows;
    case 's':
        return INDEX_slots;
    case 't':
        return INDEX_tensor;
    default:
        return INDEX_none;
    }
}

/* --- letters of one operator --- */

/* One operand's letters, without a missing position. Returns the rest of the text; NULL: they do not fit. */
static const char *read_operand(const char *s, const struct shape *shape, char *out)
{
    size_t n = strcspn(s, ",-");
    const char *rest = s + n;
    int32_t used = 0;
    bool own = n == 1 && *s == '.', drop = (int32_t)n == shape->rank + 1;
    for (size_t i = 0; i < n && used < SHAPE_RANK_MAX; i++)
        if (!drop || (s[i] != 'p' && s[i] != 'P')) out[used++] = s[i];
    out[used] = '\0';
    if (!own && used != shape->rank) return NULL;
    return *rest == ',' ? rest + 1 : *rest == '-' ? rest + 2 : rest;
}

/* Four dimensions are images, or rows in the slots of experts. */
static bool in_slots(const struct graph *g, int32_t t)
{
    for (;;) {
        int32_t p = g->tensors[t].producer;
        if (p < 0) return false;
        if (g->ops[p].kind == OP_dispatch || g->ops[p].kind == OP_expert_matmul) return true;
        if (!op_schema(g->ops[p].kind)->index.alike && g->ops[p].kind != OP_bias) return false;
        t = g->ops[p].input[0];
    }
}

static const char *plain_letters(const struct graph *g, int32_t t)
{
    if (g->tensors[t].shape.rank < 4) return "bpf";
    return in_slots(g, t) ? "besf" : "bcrx";
}

/* --- whether an operator is in its kind's other form --- */

/* Whether the kernel's windows tile x without overlap or gap; then each line of y has its own lines of x. */
bool form_side_by_side(const struct graph *g, const struct graph_op *op)
{
    const struct stencil *k = &op->attrs.stencil;
    const struct shape *x = &g->tensors[op->input[0]].shape, *y = &g->tensors[op->output[0]].shape;
    int64_t kernel = op->kind == OP_conv2d ? g->tensors[op->input[1]].shape.dim[2] : k->kernel[0];
    return !k->padding[0] && kernel == k->stride[0] && x->dim[2] == y->dim[2] * kernel;
}

bool form_trans_b(const struct graph *g, const struct graph_op *op)
{
    (void)g;
    return op->attrs.trans_b;
}

/* Balance is over all positions of a sequence. */
bool form_balanced(const struct graph *g, const struct graph_op *op)
{
    (void)g;
    return op->attrs.scale != 0;
}

bool form_first(const struct graph *g, const struct graph_op *op)
{
    (void)g;
    return op->attrs.first;
}

bool form_separate(const struct graph *g, const struct graph_op *op)
{
    (void)g;
    return op->n_inputs > 1;
}

bool form_flat(const struct graph *g, const struct graph_op *op)
{
    (void)g;
    return op->attrs.flat;
}

/* Of which targets count is data; of one a sequence there are no positions. */
bool form_counted(const struct graph *g, const struct graph_op *op)
{
    return op->attrs.counted ||
           (g->tensors[op->input[0]].shape.rank == 3 && g->tensors[op->input[1]].shape.rank == 1);
}

static bool has_no_letters(const struct graph_op *op)
{
    const struct op_attrs *a = &op->attrs;
    return !op_schema(op->kind)->index.letters || (a->trans_a && op->kind != OP_bias) ||
           (op->kind == OP_slice && !a->dim) || (op->kind == OP_to_rows && a->inverse);
}

/* The bias is of the dimensions of x from attrs.dim on, or of the last one. */
static void letters_of_bias(struct lettered *l)
{
    const struct graph *g = l->g;
    const struct graph_op *op = l->op;
    int32_t rank = g->tensors[op->input[0]].shape.rank, n = g->tensors[op->input[1]].shape.rank;
    int32_t dim = op->attrs.dim ? op->attrs.dim : rank - 1;
    const char *s = plain_letters(g, op->input[0]);
    if (!read_operand(s, &g->tensors[op->input[0]].shape, l->input[0]) || dim + n > rank) return;
    memcpy(l->output[0], l->input[0], sizeof l->input[0]);
    memcpy(l->input[1], l->input[0] + dim, (size_t)n);
    l->input[1][n] = '\0';
    l->row = &op_schema(op->kind)->index;
}

static void note_letters(struct lettered *l)
{
    for (int32_t k = 0; k < l->op->n_inputs; k++)
        for (const char *c = l->input[k]; *c; c++) l->present |= op_index_letter_bit(*c);
    for (int32_t k = 0; k < l->op->n_outputs; k++)
        for (const char *c = l->output[k]; *c; c++) l->present |= op_index_letter_bit(*c);
}

struct lettered op_index_letters(const struct graph *g, const struct graph_op *op,
                                 const struct grain *grains)
{
    const struct index_row *row = &op_schema(op->kind)->index;
    struct lettered l = {.g = g, .op = op, .grains = grains};
    if (has_no_letters(op)) return l;
    if (op->kind == OP_bias) {
        letters_of_bias(&l);
        note_letters(&l);
        return l;
    }
    const char *s = row->other && row->is_other(g, op) ? row->other : row->letters;
    const char *all = row->alike ? plain_letters(g, op->input[0]) : NULL;
    for (int32_t k = 0; s && k < op->n_inputs; k++)
        s = read_operand(all ? all : s, &g->tensors[op->input[k]].shape, l.input[k]);
    for (int32_t k = 0; s && k < op->n_outputs; k++)
        s = read_operand(all ? all : s, &g->tensors[op->output[k]].shape, l.output[k]);
    if (!s || *s) return l;
    if (op->kind == OP_slice) l.input[0][op->attrs.dim] = l.output[0][op->attrs.dim] = '_';
    note_letters(&l);
    l.row = row;
    return l;
}

int64_t op_index_letter_size(const struct lettered *l, char letter)
{
    if (!(l->present & op_index_letter_bit(letter))) return -1;
    for (int32_t k = 0; k < l->op->n_inputs; k++) {
        int32_t d = op_index_letter_dim(l->input[k], letter);
        if (d >= 0) return l->g->tensors[l->op->input[k]].shape.dim[d];
    }
    for (int32_t k = 0; k < l->op->n_outputs; k++) {
        int32_t d = op_index_letter_dim(l->output[k], letter);
        if (d >= 0) return l->g->tensors[l->op->output[k]].shape.dim[d];
    }
    return -1;
}

/* Name of the letter's index in this operator; none if it cannot be sharded. */
static enum op_index letter_name(const struct lettered *l, char letter)
{
    int64_t size = op_index_letter_size(l, letter);
    if (size < 0) return INDEX_none;
    struct grain grain = op_index_operand_grain(l, 0, letter, size);
    if (letter == 'h' && grain.n_units < 2) return INDEX_none;
    /* what a device drops of a row is told by its first element */
    if (letter == 'f' && l->op->kind == OP_dropout && grain.n_sections > 1) return INDEX_none;
    if (grain.name == INDEX_none) return index_of_letter(letter);
    if (letter == 'i' && op_index_letter_size(l, 'o') >= 0 && /* both: the name is the output's */
        op_index_letter_grain(l, 'o', op_index_letter_size(l, 'o')).name == grain.name)
        return INDEX_inputs;
    return grain.name;
}

char op_index_letter_named(const struct lettered *l, enum op_index index)
{
    if (l->row)
        for (const char *c = op_all_letters; *c; c++)
            if (index != INDEX_none && letter_name(l, *c) == index) return *c;
    return '\0';
}

/* --- choices --- */

uint32_t op_index_set(const struct graph *g, const struct graph_op *op, const struct grain *grains)
{
    struct lettered l = op_index_letters(g, op, grains);
    uint32_t set = 1u << INDEX_none;
    if (!l.row) return set;
    for (const char *c = op_all_letters; *c; c++) set |= 1u << letter_name(&l, *c);
    if (l.row->linear) set |= 1u << INDEX_partial;
    return set;
}

enum op_index op_index_meant(const struct graph *g, const struct graph_op *op,
                             const struct grain *grains, enum op_index said)
{
    if (op_index_set(g, op, grains) >> said & 1) return said;
    struct lettered l = op_index_letters(g, op, grains);
    for (const char *c = op_all_letters; l.row && *c; c++)
        if (index_of_letter(*c) == said && letter_name(&l, *c) != INDEX_none)
            return letter_name(&l, *c);
    return INDEX_COUNT;
}

static enum status no_such_index(const struct graph_op *op, uint32_t valid, enum op_index index,
                                 struct error *err)
{
    char list[160] = "";
    size_t used = 0;
    for (int i = 0; i < INDEX_COUNT; i++)
        if (valid >> i & 1)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                                     names[i]);
    return error_set(err, ERR_INPUT, "operator '%s' (%s) cannot be sharded by %s; possible: %s",
                     op->name, op_kind_name(op->kind), names[index], list);
}

static struct operand_sharding sharding_of(const struct lettered *l, int32_t k, char letter)
{
    bool in = k < l->op->n_inputs;
    int32_t j = in ? k : k - l->op->n_inputs;
    const char *s = in ? l->input[j] : l->output[j];
    int32_t t = in ? l->op->input[j] : l->op->output[j], dim = op_index_letter_dim(s, letter);
    if (!in && *s == '.') return (struct operand_sharding){.how = PLACED_OWN};
    if (dim < 0 && letter == 't') return (struct operand_sharding){.how = PLACED_REPLICATED};
    if (dim < 0)
        return (struct operand_sharding){.how = in ? PLACED_REPLICATED : PLACED_PARTIAL,
                                         .gradient_partial = in};
    return (struct operand_sharding){
        .how = PLACED_SHARDED,
        .dim = dim,
        .grain = op_index_operand_grain(l, k, letter, l->g->tensors[t].shape.dim[dim])};
}

/* Replicated, or all operands partial. */
static void sharding_plain(const struct graph_op *op, enum placing how, const struct lettered *l,
                           struct op_sharding *out)
{
    *out = (struct op_sharding){0};
    for (int32_t k = 0; k < op->n_inputs; k++) out->input[k].how = how;
    for (int32_t k = 0; k < op->n_outputs; k++)
        out->output[k].how = l->row && *l->output[k] == '.' ? PLACED_OWN : how;
}

enum status op_sharding_by(const struct graph *g, const struct graph_op *op,
                           const struct grain *grains, enum op_index said, struct op_sharding *out,
                           struct error *err)
{
    struct lettered l = op_index_letters(g, op, grains);
    enum op_index index = op_index_meant(g, op, grains, said);
    if (index == INDEX_COUNT) return no_such_index(op, op_index_set(g, op, grains), said, err);
    if (index == INDEX_none || index == INDEX_partial) {
        sharding_plain(op, index == INDEX_none ? PLACED_REPLICATED : PLACED_PARTIAL, &l, out);
        return OK;
    }
    char letter = op_index_letter_named(&l, index);
    *out = (struct op_sharding){0};
    for (int32_t k = 0; k < op->n_inputs; k++) out->input[k] = sharding_of(&l, k, letter);
    for (int32_t k = 0; k < op->n_outputs; k++)
        out->output[k] = sharding_of(&l, op->n_inputs + k, letter);
    out->n_units = op_index_operand_grain(&l, 0, letter, op_index_letter_size(&l, letter)).n_units;
    return OK;
}
