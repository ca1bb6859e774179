/* What a stage holds, counted as lowering lays it out (sim/stage.c says by which rules). */
#include "sim/stage_internal.h"

/* What one of the table's cards holds of a tensor that they do not share alike. */
static int64_t tensor_bytes(const struct stage_table *t, const struct tensor *x)
{
    struct shape shape = x->shape;
    int64_t shared = x->shares ? shares_at(x->shares, t->cards) : -1;
    if (shared >= 0) shape.dim[shape.rank - 1] = shared;
    return (shape_elements(&shape) * dtype_bytes(x->dtype) + 63) / 64 * 64;
}

static bool reads_between(const struct readers *r, int32_t first, int32_t last)
{
    for (int32_t i = 0; i < r->n; i++)
        if (r->layer[i] >= first && r->layer[i] <= last) return true;
    return false;
}

/* Lists for each tensor of the layers of operators [from, to) that read it. Two passes: count, then fill. */
static struct readers *find_readers(struct arena *a, const struct graph *g, int32_t from,
                                    int32_t to)
{
    struct readers *r = ARENA_ARRAY(a, struct readers, (size_t)g->n_tensors);
    for (int32_t i = from; i < to; i++)
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) r[g->ops[i].input[k]].n++;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        r[t].layer = ARENA_ARRAY(a, int32_t, (size_t)r[t].n);
        r[t].n = 0;
    }
    for (int32_t i = from; i < to; i++)
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) {
            struct readers *x = &r[g->ops[i].input[k]];
            if (!reads_between(x, g->ops[i].layer, g->ops[i].layer))
                x->layer[x->n++] = g->ops[i].layer;
        }
    return r;
}

/* Kept tensors that one layer makes, or loads, and the same alone reads, are added up; the others are listed. */
static void find_kept(struct stage_table *t)
{
    const struct graph *g = t->g;
    const struct readers *back = find_readers(t->arena, g, g->n_forward, g->n_ops);
    int32_t *next = t->first_kept = ARENA_ARRAY(t->arena, int32_t, (size_t)g->n_layers + 3);
    struct kept *all = ARENA_ARRAY(t->arena, struct kept, (size_t)g->n_tensors);
    for (int32_t i = 0; i < g->n_tensors; i++) {
        const struct tensor *x = &g->tensors[i];
        bool forward = x->producer >= 0 && x->producer < g->n_forward;
        if (!back[i].n || (!forward && x->role != TENSOR_INPUT)) continue;
        struct kept k = {i, forward ? g->ops[x->producer].layer : -1, tensor_bytes(t, x), back[i]};
        if (back[i].n == 1 && (!forward || back[i].layer[0] == k.made_in)) {
            struct layer_sums *sum = &t->sums[back[i].layer[0] + 1];
            sum->kept += k.bytes;
            if (!forward) sum->input += k.bytes;
        } else {
            all[t->n_kept++] = k;
            next[k.made_in + 3]++;
        }
    }
    for (int32_t l = 2; l < g->n_layers + 3; l++) next[l] += next[l - 1];
    t->kept = ARENA_ARRAY(t->arena, struct kept, (size_t)t->n_kept);
    for (int32_t i = 0; i < t->n_kept; i++) t->kept[next[all[i].made_in + 2]++] = all[i];
}

static void find_parameters(struct stage_table *t)
{
    const struct graph *g = t->g;
    const struct readers *all = find_readers(t->arena, g, 0, g->n_ops);
    int32_t *index = ARENA_ARRAY(t->arena, int32_t, (size_t)g->n_tensors);
    t->parameters = ARENA_ARRAY(t->arena, struct stage_parameter, (size_t)g->n_tensors);
    for (int32_t i = 0; i < g->n_tensors; i++) {
        if (g->tensors[i].role != TENSOR_PARAMETER) continue;
        index[i] = t->n_parameters;
        t->parameters[t->n_parameters++] =
            (struct stage_parameter){i, tensor_bytes(t, &g->tensors[i]), all[i], {0, NULL}};
    }
    for (int32_t i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].role == TENSOR_PARAMETER_GRADIENT && g->tensors[i].producer >= 0)
            t->parameters[index[g->tensors[i].of]].uses.n++;
    for (int32_t i = 0; i < t->n_parameters; i++) {
        struct readers *u = &t->parameters[i].uses;
        u->layer = ARENA_ARRAY(t->arena, int32_t, (size_t)u->n);
        u->n = 0;
    }
    for (int32_t i = 0; i < g->n_tensors; i++)
        if (g->tensors[i].role == TENSOR_PARAMETER_GRADIENT && g->tensors[i].producer >= 0) {
            struct readers *u = &t->parameters[index[g->tensors[i].of]].uses;
            u->layer[u->n++] = g->ops[g->tensors[i].producer].layer;
        }
}

static bool within_layer(const struct stage_parameter *p)
{
    if (p->used.n != 1) return false;
    for (int32_t k = 0; k < p->uses.n; k++)
        if (p->uses.layer[k] != p->used.layer[0]) return false;
    return true;
}

int64_t stage_master_bytes(const struct graph *g) { return dtype_bytes(dtype_master(g->dtype)); }

static void add_parameter(const struct stage_table *t, const struct stage_parameter *p,
                          int32_t uses, struct layer_sums *sum)
{
    int64_t wide = stage_master_bytes(t->g) / dtype_bytes(t->g->dtype);
    sum->parameter += p->bytes;
    sum->gradient += p->bytes * wide * (uses > 1 ? uses : 1);
    if (t->g->tensors[p->tensor].decay) sum->decayed += p->bytes;
}

/* Parameters of several layers first; the others are added up. */
static void part_parameters(struct stage_table *t)
{
    for (int32_t i = 0; i < t->n_parameters; i++) {
        struct stage_parameter *p = &t->parameters[i], moved = *p;
        if (within_layer(p)) {
            add_parameter(t, p, p->uses.n, &t->sums[p->used.layer[0] + 1]);
            continue;
        }
        *p = t->parameters[t->n_across];
        t->parameters[t->n_across++] = moved;
    }
}

static void sum_layers(struct stage_table *t)
{
    for (int32_t l = 0; l < t->g->n_layers; l++) {
        struct layer_sums *x = &t->sums[l + 1], *before = &t->sums[l];
        x->parameter += before->parameter, x->decayed += before->decayed;
        x->gradient += before->gradient, x->kept += before->kept, x->input += before->input;
    }
}

/* Most bytes alive inside a layer's forward or backward of tensors that live in one procedure only. */
static void find_scratch(struct stage_table *t)
{
    const struct graph *g = t->g;
    int32_t *last = ARENA_ARRAY(t->arena, int32_t, (size_t)g->n_tensors);
    int64_t *ends = ARENA_ARRAY(t->arena, int64_t, (size_t)g->n_ops), live = 0;
    t->scratch = ARENA_ARRAY(t->arena, int64_t, (size_t)g->n_layers);
    for (int32_t i = 0; i < g->n_ops; i++) {
        for (int32_t k = 0; k < g->ops[i].n_outputs; k++) last[g->ops[i].output[k]] = i;
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) last[g->ops[i].input[k]] = i;
    }
    for (int32_t i = 0; i < g->n_ops; i++) {
        int64_t *most = &t->scratch[g->ops[i].layer];
        for (int32_t k = 0; k < g->ops[i].n_outputs; k++) {
            int32_t x = g->ops[i].output[k];
            bool one_part = (i < g->n_forward) == (last[x] < g->n_forward);
            if (g->tensors[x].role == TENSOR_PARAMETER_GRADIENT || g->tensors[x].producer != i ||
                !one_part)
                continue;
            live += tensor_bytes(t, &g->tensors[x]);
            ends[last[x]] += tensor_bytes(t, &g->tensors[x]);
        }
        if (live > *most) *most = live;
        live -= ends[i];
    }
}

/* Kept tensors made in layers from … to (-1: inputs) that are read in first … last. */
static int64_t kept_bytes(const struct stage_table *t, int32_t from, int32_t to, int32_t first,
                          int32_t last, int32_t only)
{
    int64_t bytes = 0;
    for (int32_t i = t->first_kept[from + 1]; i < t->first_kept[to + 2]; i++)
        if ((only < 0 || t->kept[i].tensor == only) &&
            reads_between(&t->kept[i].readers, first, last))
            bytes += t->kept[i].bytes;
    return bytes;
}

struct sizes stage_sizes_count(const struct stage_table *t, int32_t first, int32_t last)
{
    const struct graph *g = t->g;
    const struct layer_sums *to = &t->sums[last + 1], *from = &t->sums[first];
    struct layer_sums sum = {to->parameter - from->parameter, to->decayed - from->decayed,
                             to->gradient - from->gradient, to->kept - from->kept,
                             to->input - from->input};
    int32_t received = first > 0 ? g->cut[first - 1] : -1;
    for (int32_t i = 0; i < t->n_across; i++) {
        const struct stage_parameter *p = &t->parameters[i];
        int32_t uses = 0;
        if (!reads_between(&p->used, first, last)) continue;
        for (int32_t k = 0; k < p->uses.n; k++)
            uses += p->uses.layer[k] >= first && p->uses.layer[k] <= last;
        add_parameter(t, p, uses, &sum);
    }
    int64_t loaded = kept_bytes(t, -1, -1, first, last, -1);
    sum.input += loaded;
    sum.kept += loaded + kept_bytes(t, first, last, first, last, -1);
    if (received >= 0) {
        int32_t layer = g->ops[g->tensors[received].producer].layer;
        if (layer < first) sum.kept += kept_bytes(t, layer, layer, first, last, received);
        sum.input += tensor_bytes(t, &g->tensors[received]);
    }
    int64_t scratch = 0;
    for (int32_t l = first; l <= last; l++)
        if (t->scratch[l] > scratch) scratch = t->scratch[l];
    return (struct sizes){true,     sum.parameter, sum.decayed, sum.gradient,
                          sum.kept, sum.input,     scratch};
}

void stage_sizes_prepare(struct stage_table *t)
{
    t->sums = ARENA_ARRAY(t->arena, struct layer_sums, (size_t)t->g->n_layers + 1);
    find_kept(t);
    find_parameters(t);
    part_parameters(t);
    sum_layers(t);
    find_scratch(t);
}
