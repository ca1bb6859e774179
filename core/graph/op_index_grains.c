/* core/graph/op_index_grains.c - the units in which dimensions are sharded (grains).
 *
 * Attention, the loss and pooling define them; adjacent operators inherit them along their letters.
 */
#include "core/graph/op_index_internal.h"

#include "core/base/arena.h"

#include <string.h>

const char op_all_letters[] = "bpfoihvecrst";

bool grain_equal(const struct grain *x, const struct grain *y)
{
    if (x->n_units != y->n_units || x->n_sections != y->n_sections) return false;
    for (int32_t s = 0; s < x->n_sections; s++)
        if (x->unit[s] != y->unit[s]) return false;
    return true;
}

int64_t grain_elements(const struct grain *g)
{
    int64_t n = 0;
    for (int32_t s = 0; s < g->n_sections; s++) n += g->unit[s];
    return n * g->n_units;
}

int32_t op_index_letter_dim(const char *letters, char letter)
{
    for (int32_t d = 0; letters[d]; d++)
        if (letters[d] == letter) return d;
    return -1;
}

static bool is_activation(const struct graph *g, int32_t t)
{
    return g->tensors[t].role == TENSOR_ACTIVATION;
}

/* Of which of its letters a tensor's grain is: the last one, of images the rows. */
static char grained(const char *letters)
{
    size_t n = strlen(letters);
    return n == 4 && letters[2] == 'r' ? 'r' : n ? letters[n - 1] : '\0';
}

/* Is the letter the one that an activation has a known grain of? */
static const struct grain *known_grain(const struct lettered *l, int32_t tensor,
                                       const char *letters, char letter)
{
    if (grained(letters) != letter || !is_activation(l->g, tensor)) return NULL;
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
struct grain op_index_letter_grain(const struct lettered *l, char letter, int64_t size)
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

static struct grain times(struct grain g, int64_t n)
{
    for (int32_t s = 0; s < g.n_sections; s++) g.unit[s] *= n;
    return g;
}

/* Lines of x that a line of y is of, where kernels stand side by side. */
static int64_t lines_of(const struct lettered *l)
{
    return l->row->lines == 'r' && op_index_letter_dim(l->input[0], 'r') >= 0
               ? l->op->attrs.stencil.stride[0]
               : 1;
}

/* Of lines: x is cut between kernels, so its own grain counts where it is made of whole ones. Of y, or (x) of x. */
static struct grain lines_grain(const struct lettered *l, bool x)
{
    const struct graph *g = l->g;
    int64_t n = lines_of(l), size = g->tensors[l->op->output[0]].shape.dim[2];
    struct grain y = op_index_letter_grain(l, 'r', size),
                 in = op_index_letter_grain(l, 'r', size * n);
    if (n > 1 && in.name != INDEX_none && in.unit[0] % n == 0) y = in, y.unit[0] /= n;
    return x ? times(y, n) : y;
}

/* k: input, or n_inputs + output */
struct grain op_index_operand_grain(const struct lettered *l, int32_t k, char letter, int64_t size)
{
    const struct graph_op *op = l->op;
    if (letter == 'r' && l->row->lines == 'r') return lines_grain(l, k == 0);
    if (letter == 'r' && op->kind == OP_to_rows) {
        const struct shape *x = &l->g->tensors[op->input[0]].shape;
        return times(op_index_letter_grain(l, letter, x->dim[2]), k ? x->dim[3] : 1);
    }
    if (op->kind != OP_attention || letter != 'h') return op_index_letter_grain(l, letter, size);
    bool output = k >= op->n_inputs;
    return attention_grain(&op->attrs, !output && op->n_inputs == 1, output || k == 0);
}

/* --- grains of a whole graph --- */

static bool learn(struct grain *to, const struct grain *from, int64_t size)
{
    if (to->n_sections || grain_elements(from) != size) return false;
    *to = *from;
    return true;
}

/* Lines of a pooled tensor are sharded by complete windows, so that its producer can be sharded too. */
static bool spread_lines(const struct lettered *l, struct grain *grains)
{
    int32_t x = l->op->input[0], y = l->op->output[0];
    if (l->row->lines != 'r' || lines_of(l) < 2) return false;
    struct grain grain = lines_grain(l, true), small = lines_grain(l, false);
    bool news = false;
    grain.name = small.name = INDEX_rows;
    if (is_activation(l->g, x)) news |= learn(&grains[x], &grain, l->g->tensors[x].shape.dim[2]);
    if (small.unit[0] > 1) news |= learn(&grains[y], &small, l->g->tensors[y].shape.dim[2]);
    return news;
}

/* Activations of one operator with grains of the same letter are sharded alike. */
static bool spread(const struct graph *g, const struct graph_op *op, struct grain *grains)
{
    struct lettered l = op_index_letters(g, op, grains);
    if (!l.row || op->kind == OP_attention || op->kind == OP_cross_entropy) return false;
    bool news = spread_lines(&l, grains);
    for (const char *c = op_all_letters + 2; *c; c++) {
        int64_t size = op_index_letter_size(&l, *c);
        if (size < 0) continue;
        struct grain grain = op_index_letter_grain(&l, *c, size);
        if (grain.name == INDEX_none) continue;
        for (int32_t k = 0; k < op->n_inputs + op->n_outputs; k++) {
            bool in = k < op->n_inputs;
            int32_t j = in ? k : k - op->n_inputs, t = in ? op->input[j] : op->output[j];
            const char *s = in ? l.input[j] : l.output[j];
            if (is_activation(g, t) && grained(s) == *c)
                news |=
                    learn(&grains[t], &grain, g->tensors[t].shape.dim[op_index_letter_dim(s, *c)]);
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
            learn(&grains[op->input[k]], &grain, shape_last(&g->tensors[op->input[k]].shape));
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
