/* exec/cuda/ops_tokens.c - embedding, rotary embedding and dropout by exec/cuda/kernels_tokens.h, kernels_dropout.h. */
#include "exec/cuda/context.h"
#include "exec/cuda/kernels_dropout.h"
#include "exec/cuda/kernels_tokens.h"
#include "exec/cuda/operands.h"
#include "exec/op_values.h"

cuda_op cuda_op_embedding, cuda_op_embedding_grad, cuda_op_rotary, cuda_op_dropout;

/* Ids of a vocabulary with `entries` rows on this device. */
static enum status check_ids(struct cuda_context *x, const struct op_call *c, int64_t entries,
                             struct error *err)
{
    int64_t vocabulary = c->attrs->whole > 0 ? c->attrs->whole : entries;
    return cuda_check_ids(x, c->kind, c->input[0], shape_elements(&c->shapes->input[0]), vocabulary,
                          false, err);
}

enum status cuda_op_embedding(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    const struct shape *table = &c->shapes->input[1];
    enum cuda_dtype dtype;
    TRY(cuda_major_dtype(c, 0, 1, &dtype, err));
    TRY(check_ids(x, c, table->dim[0], err));
    bool wide = dtype != CUDA_fp32 && cuda_input_is_wide(c, 1);
    return cuda_failed(cuda_embedding(dtype, c->input[0], shape_elements(&c->shapes->input[0]),
                                      c->attrs->start, table->dim[0], c->input[1], wide,
                                      shape_last(table), c->output[0], x->stream),
                       "embedding", err);
}

enum status cuda_op_embedding_grad(struct cuda_context *x, const struct op_call *c,
                                   struct error *err)
{
    int64_t n = shape_elements(&c->shapes->input[0]), d = shape_last(&c->shapes->input[1]);
    int64_t entries = c->attrs->vocabulary;
    enum cuda_dtype dtype;
    void *scratch;
    TRY(cuda_major_dtype(c, 2, 0, &dtype, err));
    if (n > INT32_MAX)
        return error_set(err, ERR_INPUT, "embedding_grad: %lld ids are more than %d", (long long)n,
                         INT32_MAX);
    TRY(check_ids(x, c, entries, err));
    TRY(cuda_scratch(x, cuda_embedding_grad_scratch(dtype, n, entries, d), &scratch, err));
    bool wide = dtype != CUDA_fp32 && cuda_output_is_wide(c, 0);
    return cuda_failed(cuda_embedding_grad(dtype, c->input[0], n, c->attrs->start, entries,
                                           c->input[1], d, c->output[0], wide, c->attrs->accumulate,
                                           scratch, x->stream),
                       "embedding_grad", err);
}

static int32_t pairs_of(const struct op_attrs *a)
{
    return (a->rotary_dim ? a->rotary_dim : a->head_dim) / 2;
}

/* Every call computes its table of angles, because it is small beside x and needs no state. */
static enum status rotary_table(struct cuda_context *x, const struct op_attrs *a,
                                enum cuda_dtype dtype, int64_t positions, void **table,
                                struct error *err)
{
    int32_t half = pairs_of(a);
    TRY(cuda_scratch(x, cuda_rotary_table_bytes(dtype, positions, half), table, err));
    for (int32_t first = 0, pairs; first < half; first += pairs) {
        double frequency[CUDA_ROTARY_PAIRS];
        pairs = half - first < CUDA_ROTARY_PAIRS ? half - first : CUDA_ROTARY_PAIRS;
        for (int32_t i = 0; i < pairs; i++) frequency[i] = op_values_rotary_frequency(a, first + i);
        TRY(cuda_failed(cuda_rotary_table(dtype, frequency, first, pairs, half, positions,
                                          a->start, *table, x->stream),
                        "rotary", err));
    }
    return OK;
}

enum status cuda_op_rotary(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    const struct shape *s = &c->shapes->input[0];
    const struct op_attrs *a = c->attrs;
    int64_t positions = s->dim[1];
    enum cuda_dtype dtype;
    void *table;
    TRY(cuda_major_dtype(c, 1, 1, &dtype, err));
    if (!shape_elements(s)) return OK;
    TRY(rotary_table(x, a, dtype, positions, &table, err));
    return cuda_failed(cuda_rotary(dtype, c->input[0], c->output[0], s->dim[0] * positions,
                                   positions, a->heads, a->head_dim, pairs_of(a), a->interleaved,
                                   a->inverse, table, x->stream),
                       "rotary", err);
}

/* Layout as on the host: a sequence's rows are consecutive, or a slice of each row of the full tensor. */
enum status cuda_op_dropout(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    const struct op_attrs *a = c->attrs;
    int64_t sequences = c->shapes->input[0].dim[0], all = shape_elements(&c->shapes->input[0]);
    int64_t n = sequences ? all / sequences : 0, whole = a->whole ? a->whole : n;
    if (!all) return OK;
    struct cuda_drop d = {.key = op_values_random_key(c),
                             .below = (uint32_t)(a->rate * 4294967296.0),
                             .scale = 1 / (1 - a->rate),
                             .n = a->columns.of ? a->columns.n : n,
                             .begin = a->start % whole + a->columns.first,
                             .step = a->columns.of ? a->columns.of : n,
                             .first = c->first_sequence + a->start / whole};
    d.per_sequence = n / d.n, d.rows = sequences * d.per_sequence;
    enum cuda_dtype dtype;
    TRY(cuda_major_dtype(c, 1, 1, &dtype, err));
    return cuda_failed(cuda_dropout(dtype, &d, c->input[0], c->output[0], x->stream), "dropout",
                       err);
}
