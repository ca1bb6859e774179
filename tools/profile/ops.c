/* The operators that a profile measures.
 *
 * Of a job: those of every microbatch size that a search may choose, updates and sums over flat_params in a few sizes for a linear
 * fit, and shards of operators. Of plans: exactly those of their programs, by key.
 */
#include "tools/profile/ops.h"

#include "core/base/arena.h"
#include "core/graph/gradient.h"
#include "core/lower/layer_classes.h"
#include "core/sharding/shard.h"
#include "tools/common.h"

enum { SIZES_MAX = 16, FLAT_SIZES = 6, LARGEST_MEASURED_FULLY = 8, SHARERS = 4 };

/* An operator by kind, shapes and operand widths; the rest is filled in. */
static void add_op(struct profile_ops *b, struct program_op op)
{
    char text[256];
    op.attrs.load_ppm = 0; /* benchmarks route evenly, prices scale them */
    op.key = op_key(op.kind, &op.attrs, &op.shapes, op.dtype);
    b->seen++;
    for (size_t i = 0; i < b->n; i++)
        if (b->ops[i].key == op.key) return;
    op.n_inputs = op.shapes.n_inputs, op.n_outputs = op.shapes.n_outputs;
    op.name = arena_strdup(
        b->arena, op_key_text(text, sizeof text, op.kind, &op.attrs, &op.shapes, op.dtype));
    b->ops = arena_grow(b->arena, b->ops, b->n, &b->capacity, sizeof *b->ops);
    b->ops[b->n++] = op;
}

/* Slots as in a program, from the tensors of the graph. */
static void mark_wide(const struct graph *g, const struct graph_op *from, struct program_op *to)
{
    if (!dtype_is_half(g->dtype)) return;
    for (int32_t i = 0; i < from->n_inputs; i++)
        to->wide_input |= (uint32_t)(g->tensors[from->input[i]].dtype == DTYPE_fp32) << i;
    for (int32_t i = 0; i < from->n_outputs; i++)
        to->wide_output |= (uint32_t)(g->tensors[from->output[i]].dtype == DTYPE_fp32) << i;
}

/* Appends all operators except collectives and empty ones. */
static void add_ops(struct profile_ops *b, const struct graph *g)
{
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *from = &g->ops[i];
        struct program_op op = {
            .kind = from->kind, .phase = from->phase, .attrs = from->attrs, .dtype = g->dtype};
        graph_op_shapes(g, from, &op.shapes);
        mark_wide(g, from, &op);
        if (!op.attrs.exchange && shape_elements(&op.shapes.output[0])) add_op(b, op);
    }
}

static enum status add_graph(struct profile_ops *b, int64_t microbatch, struct error *err)
{
    struct graph *g = NULL;
    TRY(lower_graph(b->arena, b->job, microbatch, &g, err));
    g = graph_fuse(g, b->lower.fused, b->lower.n_fused);
    TRY(gradient_build(g, 1, err));
    if (!b->layers) b->layers = layer_classes_text(b->arena, layer_classes_new(b->arena, g));
    add_ops(b, g);
    return OK;
}

/* The shards of one of several equal devices, by this index, because a fit of unsharded operators underestimates the time of shards. */
static enum status add_share(struct profile_ops *b, const struct graph *whole, enum op_index index,
                             struct error *err)
{
    static const double even[SHARERS] = {1, 1, 1, 1};
    const struct sharding_rule rule = {.match = "*", .choice = {.index = {index}}};
    const struct sharding s = {.n_devices = SHARERS,
                               .n_axes = 1,
                               .mesh = {SHARERS, 1},
                               .n_ratios = 1,
                               .n_operators = 1,
                               .ratios = even,
                               .operators = &rule};
    struct graph *g = NULL;
    if (shard_graph(b->arena, whole, &s, 0, 0, whole->n_layers - 1, &g, NULL) != OK)
        return OK; /* nothing of the model can be sharded by it */
    TRY(gradient_build(g, 1, err));
    add_ops(b, g);
    return OK;
}

static enum status add_shares(struct profile_ops *b, int64_t microbatch, struct error *err)
{
    struct graph *whole = NULL;
    if (b->cluster->n_devices < 2 || b->job->model.measured)
        return OK;
    TRY(lower_graph(b->arena, b->job, microbatch, &whole, err));
    for (int index = INDEX_batch; index < INDEX_COUNT; index++)
        TRY(add_share(b, whole, (enum op_index)index, err));
    return OK;
}

/* Operators over flat_params have sizes that depend on the plan, so a few sizes are measured for a linear fit. In half precision
 * masters, gradients and state are fp32, and an update also writes the half-precision copy. */
static enum status add_flat(struct profile_ops *b, enum op_kind kind, int64_t parameters,
                            struct error *err)
{
    const struct optimizer *o = &b->job->optimizer;
    bool updates = kind == optimizer_op(o, true);
    for (int64_t i = 0, n = parameters; i < FLAT_SIZES && n >= 1024; i++, n /= 4) {
        struct program_op op = {.kind = kind,
                                .phase = PHASE_U,
                                .attrs = {.decay = true},
                                .dtype = dtype_master(b->job->precision)};
        struct shape run = {.rank = 1, .dim = {n}};
        op.attrs.narrows = updates && dtype_is_half(b->job->precision);
        op.shapes.n_inputs = updates ? 2 + (int32_t)optimizer_state_tensors(o) : 1;
        for (int32_t k = 0; k < op.shapes.n_inputs; k++) op.shapes.input[k] = run;
        if (kind == OP_zero)
            op.shapes = (struct op_shapes){.n_outputs = 1, .output = {run}};
        else
            TRY(op_infer(kind, &op.attrs, &op.shapes, err));
        add_op(b, op);
    }
    return OK;
}

/* Microbatch sizes to measure: the stated ones, or the powers of two that the search may choose; its other sizes lie between them and are fitted. */
static int32_t sizes_of(const struct job *j, int64_t *sizes)
{
    int32_t n = 0;
    for (; n < j->n_microbatches_sizes; n++) sizes[n] = j->microbatch_sizes[n];
    for (int64_t size = 1; !j->n_microbatches_sizes && size <= 64 && size <= j->global_batch;
         size *= 2)
        if (j->global_batch % size == 0) sizes[n++] = size;
    return n;
}

enum status profile_ops_of_job(struct profile_ops *b, struct error *err)
{
    const struct job *j = b->job;
    int64_t parameters = model_parameters(&j->model);
    int64_t sizes[SIZES_MAX + 1];
    int32_t n = sizes_of(j, sizes);
    for (int32_t i = 0; i < n; i++)
        if (sizes[i] <= LARGEST_MEASURED_FULLY) TRY(add_graph(b, sizes[i], err));
    TRY(add_flat(b, optimizer_op(&j->optimizer, true), parameters, err));
    TRY(add_flat(b, OP_accumulate, parameters, err));
    TRY(add_flat(b, OP_zero, parameters, err));
    if (j->optimizer.max_grad_norm > 0) TRY(add_flat(b, OP_square_sum, parameters, err));
    b->n_fully = b->n;
    TRY(add_shares(b, sizes[n / 2], err));
    int64_t least = sizes[0], most = sizes[0];
    for (int32_t i = 0; i < n; i++) {
        if (sizes[i] > LARGEST_MEASURED_FULLY) TRY(add_graph(b, sizes[i], err));
        if (sizes[i] < least) least = sizes[i];
        if (sizes[i] > most) most = sizes[i];
    }
    /* one more size, because a fit of constant and slope needs two */
    if (least > 1) return add_graph(b, least / 2, err);
    return most <= LARGEST_MEASURED_FULLY ? add_graph(b, 2 * most, err) : OK;
}

/* The operators of a program that run as kernels; collectives are priced by links. */
static void add_program(struct profile_ops *b, const struct program *p)
{
    for (int32_t s = 0; s < p->n_stages; s++)
        for (int32_t i = 0; i < p->stages[s].n_ops; i++) {
            struct program_op op = p->stages[s].ops[i];
            if (op_is_group(op.kind) || op_is_measured(op.kind) || op.attrs.tp > 1 ||
                !op.shapes.n_outputs || !shape_elements(&op.shapes.output[0]))
                continue;
            program_op_wide(&p->stages[s], &op);
            op.attrs.scaled = op.attrs.clipped = false; /* a benchmark has no loss scale and no norm */
            add_op(b, op);
        }
}

enum status profile_ops_of_plan(struct profile_ops *b, const struct plan *p, struct error *err)
{
    struct program program;
    if (p->job.precision != b->job->precision)
        return error_set(err, ERR_INPUT, "the plan computes in %s, the job in %s",
                         dtype_name(p->job.precision), dtype_name(b->job->precision));
    TRY(common_lower(b->arena, p, false, &program, err));
    add_program(b, &program);
    b->n_fully = b->n;
    return OK;
}
