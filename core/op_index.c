/* core/op_index.c - the rows of letters, and what follows from them.
 *
 * A row is one line; everything below it reads letters and knows no kind, but for attention, whose dimensions of heads are
 * dealt out in units that differ from operand to operand.
 */
#include "core/op_index.h"

#include "core/arena.h"

#include <stdio.h>
#include <string.h>

struct index_row {
    const char *letters;
    const char *other; /* of its other form: other_form */
    char start;        /* attrs.start is the first unit of this letter */
    char heads;        /* attrs.heads and kv_heads are those of this letter's units */
    bool alike;        /* every operand is like the first, of any rank; letters has but its name */
    bool mean;         /* the loss is a mean over its rows: b and p */
    bool linear;       /* takes and gives terms of sums */
    bool
        elements; /* attrs.start is the number of the first element, attrs.whole those of a sequence */
    bool experts; /* attrs.experts says how many all have */
};

/* clang-format off */
static const struct index_row rows[OP_KIND_COUNT] = {
    [OP_matmul] = {.letters = "bpi,io->bpo", .other = "bpi,oi->bpo"},
    [OP_bias] = {.letters = "bpf,f->bpf"},
    [OP_add] = {.letters = "bpf", .alike = true, .linear = true},
    [OP_multiply] = {.letters = "bpf", .alike = true},
    [OP_gelu] = {.letters = "bpf", .alike = true},
    [OP_silu] = {.letters = "bpf", .alike = true},
    [OP_relu] = {.letters = "bpf", .alike = true},
    [OP_swiglu] = {.letters = "bpf", .alike = true},
    [OP_bias_gelu] = {.letters = "bpf,f->bpf"},
    [OP_dropout] = {.letters = "bpF->bpF", .elements = true},
    [OP_layer_norm] = {.letters = "bpN,N,N->bpN,."},
    [OP_rms_norm] = {.letters = "bph,N->bph,."},
    [OP_embedding] = {.letters = "bp,vf->bpf", .start = 'v'},
    [OP_rotary] = {.letters = "bph->bph", .start = 'p', .heads = 'h'},
    [OP_attention] = {.letters = "bPh->bPh,.", .other = "bph,bKh,bKh->bph,.", .start = 'p', .heads = 'h'},
    [OP_cross_entropy] = {.letters = "bpv,bp->.,.", .other = "bPv,bP->.,.", .start = 'v', .mean = true},
    [OP_conv2d] = {.letters = "biyx,cikl->bcyx"},
    [OP_max_pool2d] = {.letters = "bcyx->bcyx,."},
    [OP_avg_pool2d] = {.letters = "bcyx->bcyx"},
    [OP_group_norm] = {.letters = "bcyx,c,c->bcyx,."},
    [OP_to_rows] = {.letters = "bcyx->bPc", .other = "bCyx->bC"},
    [OP_prepend] = {.letters = "bPf,Kf->bPf"},
    [OP_slice] = {.letters = "bpf->bpf"}, /* the dimension that is sliced is not dealt out */
    [OP_gating] = {.letters = "bpE->bpE"},
    [OP_dispatch] = {.letters = "bPf,bPe->beCf", .experts = true},
    [OP_combine] = {.letters = "beCf,bPe->bPf", .experts = true},
    [OP_expert_matmul] = {.letters = "beCi,eio,bPe->beCo", .other = "beCi,eoi,bPe->beCo", .experts = true},
};
/* clang-format on */

static const char *const names[INDEX_COUNT] = {
#define X(name) #name,
    OP_INDICES(X)
#undef X
};

const char *op_index_name(enum op_index index) { return names[index]; }

bool op_index_parse(const char *name, enum op_index *out)
{
    for (int i = 0; i < INDEX_COUNT; i++)
        if (!strcmp(name, names[i])) return *out = (enum op_index)i, true;
    return false;
}

bool op_has_index_row(enum op_kind kind) { return rows[kind].letters != NULL; }

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
    default:
        return INDEX_none;
    }
}

int64_t grain_elements(const struct grain *g)
{
    int64_t n = 0;
    for (int32_t s = 0; s < g->n_sections; s++) n += g->unit[s];
    return n * g->n_units;
}

/* --- letters of one operator --- */

struct lettered { /* an operator's operands with a letter for every dimension */
    const struct graph *g;
    const struct graph_op *op;
    const struct index_row *row; /* NULL: the operator has none, or not for such operands */
    const struct grain *grains;
    char input[OP_OPERANDS_MAX][SHAPE_RANK_MAX + 1], output[OP_OPERANDS_MAX][SHAPE_RANK_MAX + 1];
};

/* One operand's letters; those of a missing position go. Returns what stands behind, NULL where they do not fit. */
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

/* Four dimensions are pictures, or rows in the slots of experts. */
static bool in_slots(const struct graph *g, int32_t t)
{
    for (;;) {
        int32_t p = g->tensors[t].producer;
        if (p < 0) return false;
        if (g->ops[p].kind == OP_dispatch || g->ops[p].kind == OP_expert_matmul) return true;
        if (!rows[g->ops[p].kind].alike && g->ops[p].kind != OP_bias) return false;
        t = g->ops[p].input[0];
    }
}

static const char *plain_letters(const struct graph *g, int32_t t)
{
    if (g->tensors[t].shape.rank < 4) return "bpf";
    return in_slots(g, t) ? "beCf" : "bcyx";
}

/* Is it in the form that .other is for? */
static bool other_form(const struct graph *g, const struct graph_op *op)
{
    switch (op->kind) {
    case OP_matmul:
    case OP_expert_matmul:
        return op->attrs.trans_b;
    case OP_attention:
        return op->n_inputs > 1;
    case OP_to_rows:
        return op->attrs.flat;
    /* of which targets count is data; of one a sequence there are no positions */
    case OP_cross_entropy:
        return op->attrs.counted || (g->tensors[op->input[0]].shape.rank == 3 &&
                                     g->tensors[op->input[1]].shape.rank == 1);
    default:
        return false;
    }
}

static bool has_no_letters(const struct graph_op *op)
{
    const struct op_attrs *a = &op->attrs;
    return !rows[op->kind].letters || (a->trans_a && op->kind != OP_bias) ||
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
    l->row = &rows[op->kind];
}

static struct lettered letters_of(const struct graph *g, const struct graph_op *op,
                                  const struct grain *grains)
{
    const struct index_row *row = &rows[op->kind];
    struct lettered l = {.g = g, .op = op, .grains = grains};
    if (has_no_letters(op)) return l;
    if (op->kind == OP_bias) {
        letters_of_bias(&l);
        return l;
    }
    const char *s = row->other && other_form(g, op) ? row->other : row->letters;
    const char *all = row->alike ? plain_letters(g, op->input[0]) : NULL;
    for (int32_t k = 0; s && k < op->n_inputs; k++)
        s = read_operand(all ? all : s, &g->tensors[op->input[k]].shape, l.input[k]);
    for (int32_t k = 0; s && k < op->n_outputs; k++)
        s = read_operand(all ? all : s, &g->tensors[op->output[k]].shape, l.output[k]);
    if (!s || *s) return l;
    if (op->kind == OP_slice) l.input[0][op->attrs.dim] = l.output[0][op->attrs.dim] = '_';
    l.row = row;
    return l;
}

static int32_t dim_of(const char *letters, char letter)
{
    const char *at = strchr(letters, letter);
    return at && letter ? (int32_t)(at - letters) : -1;
}

static bool is_activation(const struct graph *g, int32_t t)
{
    return g->tensors[t].role == TENSOR_ACTIVATION;
}

/* Is the letter the last one of an activation with a known grain? */
static const struct grain *known_grain(const struct lettered *l, int32_t tensor,
                                       const char *letters, char letter)
{
    size_t n = strlen(letters);
    if (!n || letters[n - 1] != letter || !is_activation(l->g, tensor)) return NULL;
    const struct grain *grain = &l->grains[tensor];
    return grain->n_sections ? grain : NULL;
}

/* Elements of which a unit must be a multiple for this kind to work on whole ones. */
static int64_t own_unit(const struct lettered *l, char letter)
{
    if (letter == 'c' && l->op->kind == OP_group_norm)
        return l->g->tensors[l->op->input[0]].shape.dim[1] / l->op->attrs.groups;
    if (letter != 'h') return 1;
    if (l->op->kind == OP_rotary) return l->op->attrs.head_dim;
    if (l->op->kind == OP_rms_norm) return shape_last(&l->g->tensors[l->op->input[1]].shape);
    return 1;
}

/* Of a letter whose dimension is `size`. */
static struct grain letter_grain(const struct lettered *l, char letter, int64_t size)
{
    const struct graph_op *op = l->op;
    int64_t own = own_unit(l, letter);
    for (int32_t k = 0; k < op->n_inputs + op->n_outputs; k++) {
        bool in = k < op->n_inputs;
        int32_t j = in ? k : k - op->n_inputs, t = in ? op->input[j] : op->output[j];
        const struct grain *known = known_grain(l, t, in ? l->input[j] : l->output[j], letter);
        bool fits = known && grain_elements(known) == size;
        for (int32_t s = 0; fits && s < known->n_sections; s++) fits = known->unit[s] % own == 0;
        if (fits) return *known;
    }
    return (struct grain){.n_units = size / own, .n_sections = 1, .unit = {own}};
}

/* Heads: query heads come in runs of H/K for each key-value head. */
static struct grain attention_grain(const struct op_attrs *a, bool packed, bool query)
{
    int64_t d = a->head_dim, q = a->kv_heads ? a->heads / a->kv_heads * d : 0;
    struct grain g = {.n_units = a->kv_heads, .n_sections = 1, .name = INDEX_heads};
    g.unit[0] = query ? q : d;
    if (packed) g.n_sections = 3, g.unit[1] = g.unit[2] = d;
    return g;
}

/* k: input, or n_inputs + output */
static struct grain operand_grain(const struct lettered *l, int32_t k, char letter, int64_t size)
{
    const struct graph_op *op = l->op;
    if (op->kind != OP_attention || letter != 'h') return letter_grain(l, letter, size);
    bool output = k >= op->n_inputs;
    return attention_grain(&op->attrs, !output && op->n_inputs == 1, output || k == 0);
}

static int64_t letter_size(const struct lettered *l, char letter)
{
    for (int32_t k = 0; k < l->op->n_inputs; k++) {
        int32_t d = dim_of(l->input[k], letter);
        if (d >= 0) return l->g->tensors[l->op->input[k]].shape.dim[d];
    }
    for (int32_t k = 0; k < l->op->n_outputs; k++) {
        int32_t d = dim_of(l->output[k], letter);
        if (d >= 0) return l->g->tensors[l->op->output[k]].shape.dim[d];
    }
    return -1;
}

static const char all_letters[] = "bpfoihvec";

/* What the letter is called in this operator; none where it cannot be dealt out. */
static enum op_index letter_name(const struct lettered *l, char letter)
{
    int64_t size = letter_size(l, letter);
    if (size < 0) return INDEX_none;
    struct grain grain = operand_grain(l, 0, letter, size);
    if (letter == 'h' && grain.n_units < 2) return INDEX_none;
    if (grain.name == INDEX_none) return index_of_letter(letter);
    if (letter == 'i' && letter_size(l, 'o') >= 0 && /* both: the name is the output's */
        letter_grain(l, 'o', letter_size(l, 'o')).name == grain.name)
        return INDEX_inputs;
    return grain.name;
}

static char letter_by_name(const struct lettered *l, enum op_index index)
{
    if (l->row)
        for (const char *c = all_letters; *c; c++)
            if (index != INDEX_none && letter_name(l, *c) == index) return *c;
    return '\0';
}

/* --- grains of a whole graph --- */

static bool learn(struct grain *to, const struct grain *from, const struct shape *shape)
{
    if (to->n_sections || grain_elements(from) != shape_last(shape)) return false;
    *to = *from;
    return true;
}

/* Activations of one operator that end with the same letter are dealt out alike. */
static bool spread(const struct graph *g, const struct graph_op *op, struct grain *grains)
{
    struct lettered l = letters_of(g, op, grains);
    bool news = false;
    if (!l.row || op->kind == OP_attention || op->kind == OP_cross_entropy) return false;
    for (const char *c = all_letters + 2; *c; c++) {
        int64_t size = letter_size(&l, *c);
        if (size < 0) continue;
        struct grain grain = letter_grain(&l, *c, size);
        if (grain.name == INDEX_none) continue;
        for (int32_t k = 0; k < op->n_inputs + op->n_outputs; k++) {
            bool in = k < op->n_inputs;
            int32_t j = in ? k : k - op->n_inputs, t = in ? op->input[j] : op->output[j];
            const char *s = in ? l.input[j] : l.output[j];
            size_t n = strlen(s);
            if (is_activation(g, t) && n && s[n - 1] == *c)
                news |= learn(&grains[t], &grain, &g->tensors[t].shape);
        }
    }
    return news;
}

const struct grain *graph_grains(struct arena *a, const struct graph *g)
{
    struct grain *grains = ARENA_ARRAY(a, struct grain, (size_t)g->n_tensors);
    for (int32_t i = 0; i < g->n_forward; i++) {
        const struct graph_op *op = &g->ops[i];
        int32_t x = op->input[0];
        if (op->kind == OP_cross_entropy)
            grains[x] = (struct grain){.n_units = shape_last(&g->tensors[x].shape),
                                       .n_sections = 1,
                                       .unit = {1},
                                       .name = INDEX_vocabulary};
        if (op->kind != OP_attention) continue;
        for (int32_t k = 0; k < op->n_inputs; k++) {
            struct grain grain = attention_grain(&op->attrs, op->n_inputs == 1, k == 0);
            learn(&grains[op->input[k]], &grain, &g->tensors[op->input[k]].shape);
        }
        grains[op->output[0]] = attention_grain(&op->attrs, false, true);
    }
    for (bool news = true; news;) {
        news = false;
        for (int32_t i = g->n_forward - 1; i >= 0; i--) news |= spread(g, &g->ops[i], grains);
        for (int32_t i = 0; i < g->n_forward; i++) news |= spread(g, &g->ops[i], grains);
    }
    return grains;
}

/* --- choices --- */

uint32_t op_indices(const struct graph *g, const struct graph_op *op, const struct grain *grains)
{
    struct lettered l = letters_of(g, op, grains);
    uint32_t set = 1u << INDEX_none;
    if (!l.row) return set;
    for (const char *c = all_letters; *c; c++) set |= 1u << letter_name(&l, *c);
    if (l.row->linear) set |= 1u << INDEX_terms;
    return set;
}

enum op_index op_index_meant(const struct graph *g, const struct graph_op *op,
                             const struct grain *grains, enum op_index said)
{
    if (op_indices(g, op, grains) >> said & 1) return said;
    struct lettered l = letters_of(g, op, grains);
    for (const char *c = all_letters; l.row && *c; c++)
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
    return error_set(err, ERR_INPUT, "operator '%s' (%s) cannot be split by %s; it can by %s",
                     op->name, op_kind_name(op->kind), names[index], list);
}

static struct operand_split split_of(const struct lettered *l, int32_t k, char letter)
{
    bool in = k < l->op->n_inputs;
    int32_t j = in ? k : k - l->op->n_inputs;
    const char *s = in ? l->input[j] : l->output[j];
    int32_t t = in ? l->op->input[j] : l->op->output[j], dim = dim_of(s, letter);
    if (!in && *s == '.') return (struct operand_split){.how = PLACED_OWN};
    if (dim < 0)
        return (struct operand_split){.how = in ? PLACED_WHOLE : PLACED_PARTIAL,
                                      .gradient_partial = in};
    return (struct operand_split){.how = PLACED_SPLIT,
                                  .dim = dim,
                                  .grain =
                                      operand_grain(l, k, letter, l->g->tensors[t].shape.dim[dim])};
}

/* Everybody computes it, or everybody has a term of everything. */
static void split_plain(const struct graph_op *op, enum placing how, const struct lettered *l,
                        struct op_split *out)
{
    *out = (struct op_split){0};
    for (int32_t k = 0; k < op->n_inputs; k++) out->input[k].how = how;
    for (int32_t k = 0; k < op->n_outputs; k++)
        out->output[k].how = l->row && *l->output[k] == '.' ? PLACED_OWN : how;
}

enum status op_split_by(const struct graph *g, const struct graph_op *op,
                        const struct grain *grains, enum op_index said, struct op_split *out,
                        struct error *err)
{
    struct lettered l = letters_of(g, op, grains);
    enum op_index index = op_index_meant(g, op, grains, said);
    if (index == INDEX_COUNT) return no_such_index(op, op_indices(g, op, grains), said, err);
    if (index == INDEX_none || index == INDEX_terms) {
        split_plain(op, index == INDEX_none ? PLACED_WHOLE : PLACED_PARTIAL, &l, out);
        return OK;
    }
    char letter = letter_by_name(&l, index);
    *out = (struct op_split){0};
    for (int32_t k = 0; k < op->n_inputs; k++) out->input[k] = split_of(&l, k, letter);
    for (int32_t k = 0; k < op->n_outputs; k++)
        out->output[k] = split_of(&l, op->n_inputs + k, letter);
    out->n_units = operand_grain(&l, 0, letter, letter_size(&l, letter)).n_units;
    return OK;
}

/* Rows that the whole loss is the mean over. */
static int64_t loss_rows(const struct graph *g, const struct graph_op *op)
{
    const struct shape *logits = &g->tensors[op->input[0]].shape;
    return op->attrs.counted ? logits->dim[0] * op->attrs.counted : shape_rows(logits);
}

/* What a device drops is told by the number of the element in the whole, which from the first on go up one by one. */
static void count_elements(const struct shape *x, char letter, int64_t first,
                           struct op_attrs *attrs)
{
    int64_t sequence = 1, row = 1;
    for (int32_t d = 1; d < x->rank; d++) sequence *= x->dim[d];
    for (int32_t d = 2; d < x->rank; d++) row *= x->dim[d];
    attrs->start += first * (letter == 'b' ? sequence : row);
    attrs->whole = sequence;
}

void op_local_attrs(const struct graph *g, const struct graph_op *op, const struct grain *grains,
                    const struct op_split *split, enum op_index index, int64_t first, int64_t n,
                    struct op_attrs *attrs)
{
    struct lettered l = letters_of(g, op, grains);
    char letter = letter_by_name(&l, op_index_meant(g, op, grains, index));
    if (!letter || !split->n_units) return;
    if (l.row->start == letter) attrs->start += first;
    if (letter == 'v') attrs->whole = letter_size(&l, 'v');
    if (letter == 'e' && l.row->experts && !attrs->experts)
        attrs->experts = (int32_t)letter_size(&l, 'e');
    if (letter == 'c' && op->kind == OP_group_norm) attrs->groups = (int32_t)n;
    if (l.row->elements) count_elements(&g->tensors[op->input[0]].shape, letter, first, attrs);
    if (l.row->heads == letter) {
        attrs->heads = (int32_t)(op->attrs.heads / split->n_units * n);
        attrs->kv_heads = (int32_t)(op->attrs.kv_heads / split->n_units * n);
    }
    if (l.row->mean && (letter == 'b' || letter == 'p')) attrs->mean_rows = loss_rows(g, op);
}
