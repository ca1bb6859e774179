/* core/graph/op_shapes.c - shape rules: compatibility of operands, shapes of outputs.
 *
 * Rules require as little structure as possible: a kind that works on rows takes any
 * number of leading dimensions, so that the flattened shapes of a structural key (op_key) pass the
 * same rules as the shapes of the graph. Only attention and rotary require (b, T, features).
 */
#include "core/graph/op_shapes.h"

#include "core/graph/loss_scale.h"

#include <inttypes.h>
#include <stdio.h>

const char *op_shapes_text(char buffer[SHAPE_TEXT_MAX], const struct shape *s)
{
    int used = snprintf(buffer, SHAPE_TEXT_MAX, "(");
    for (int32_t i = 0; i < s->rank; i++)
        used += snprintf(buffer + used, (size_t)(SHAPE_TEXT_MAX - used), "%s%" PRId64, i ? "," : "",
                         s->dim[i]);
    snprintf(buffer + used, (size_t)(SHAPE_TEXT_MAX - used), ")");
    return buffer;
}

int64_t shape_elements(const struct shape *s)
{
    int64_t n = 1;
    for (int32_t i = 0; i < s->rank; i++) n *= s->dim[i];
    return n;
}

int64_t shape_rows(const struct shape *s)
{
    int64_t n = 1;
    for (int32_t i = 0; i + 1 < s->rank; i++) n *= s->dim[i];
    return n;
}

int64_t shape_last(const struct shape *s) { return s->rank ? s->dim[s->rank - 1] : 1; }

bool shape_equal(const struct shape *a, const struct shape *b)
{
    if (a->rank != b->rank) return false;
    for (int32_t i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

enum status op_shapes_misfit(enum op_kind kind, const struct shape *a, const struct shape *b,
                             const char *why, struct error *err)
{
    char ta[SHAPE_TEXT_MAX], tb[SHAPE_TEXT_MAX];
    return error_set(err, ERR_INPUT, "%s: %s and %s do not fit: %s", op_kind_name(kind),
                     op_shapes_text(ta, a), op_shapes_text(tb, b), why);
}

static struct shape vector(int64_t n) { return (struct shape){.rank = 1, .dim = {n}}; }
static struct shape matrix(int64_t m, int64_t n)
{
    return (struct shape){.rank = 2, .dim = {m, n}};
}

static struct shape with_last(struct shape s, int64_t n)
{
    s.dim[s.rank - 1] = n;
    return s;
}

static bool is_vector(const struct shape *s, int64_t n) { return s->rank == 1 && s->dim[0] == n; }

/* Inputs from first on must look like `like`. */
static enum status need_like(enum op_kind kind, const struct op_shapes *s, int32_t first,
                             const struct shape *like, struct error *err)
{
    for (int32_t i = first; i < s->n_inputs; i++)
        if (!shape_equal(&s->input[i], like))
            return op_shapes_misfit(kind, like, &s->input[i], "shapes must be equal", err);
    return OK;
}

enum status shapes_matmul(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                          struct error *err)
{
    const struct shape *a = &s->input[0], *b = &s->input[1];
    if (attrs->trans_a && attrs->trans_b)
        return op_shapes_misfit(kind, a, b, "only one operand may be transposed", err);
    if (a->rank < 2 || b->rank < 2)
        return op_shapes_misfit(kind, a, b, "both need two dimensions", err);
    if (attrs->trans_a) {
        if (shape_rows(a) != shape_rows(b)) return op_shapes_misfit(kind, a, b, "rows differ", err);
        s->output[0] = matrix(shape_last(a), shape_last(b));
        return OK;
    }
    if (b->rank != 2) return op_shapes_misfit(kind, a, b, "the second must be a matrix", err);
    if (shape_last(a) != b->dim[attrs->trans_b ? 1 : 0])
        return op_shapes_misfit(kind, a, b,
                                attrs->trans_b ? "the last dimensions differ (trans_b)"
                                               : "the last of one is not the first of the other",
                                err);
    s->output[0] = with_last(*a, b->dim[attrs->trans_b ? 0 : 1]);
    return OK;
}

enum status shapes_linear(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                          struct error *err)
{
    if (attrs->trans_a)
        return error_set(err, ERR_INPUT, "%s: its first operand is not transposed",
                         op_kind_name(kind));
    TRY(shapes_matmul(kind, attrs, s, err));
    if (s->n_outputs > 1) s->output[1] = s->output[0]; /* what gelu is taken of */
    if (is_vector(&s->input[2], shape_last(&s->output[0]))) return OK;
    return op_shapes_misfit(kind, &s->output[0], &s->input[2],
                            "the bias must be as long as the last dimension", err);
}

enum status shapes_same(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                        struct error *err)
{
    (void)attrs;
    TRY(need_like(kind, s, 1, &s->input[0], err));
    for (int32_t i = 0; i < s->n_outputs; i++) s->output[i] = s->input[0];
    return OK;
}

enum status shapes_dropout(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                           struct error *err)
{
    if (!(attrs->rate >= 0 && attrs->rate < 1))
        return error_set(err, ERR_INPUT, "%s: a rate of %g is not from 0 to below 1",
                         op_kind_name(kind), attrs->rate);
    const struct op_shard *p = &attrs->columns;
    int64_t n = shape_last(&s->input[0]);
    if (p->of && (p->n != n || p->first < 0 || n > p->of - p->first))
        return error_set(err, ERR_INPUT, "%s: columns from %lld on, of %lld, are not rows of %lld",
                         op_kind_name(kind), (long long)p->first, (long long)p->of, (long long)n);
    return shapes_same(kind, attrs, s, err);
}

enum status shapes_none(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                        struct error *err)
{
    (void)kind, (void)attrs, (void)s, (void)err;
    return OK;
}

enum status shapes_overflow(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                            struct error *err)
{
    (void)kind, (void)attrs, (void)err;
    s->output[0] = (struct shape){1, {1}};
    return OK;
}

enum status shapes_clip(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s, struct error *err)
{
    const struct shape one = {1, {1}};
    (void)attrs;
    if (!shape_equal(&s->input[0], &one)) return op_shapes_misfit(kind, &s->input[0], &one, "is a sum of squares", err);
    s->output[0] = (struct shape){1, {2}};
    return OK;
}

enum status shapes_rescale(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                           struct error *err)
{
    const struct shape one = {1, {1}}, numbers = {1, {LOSS_SCALE_NUMBERS}};
    (void)attrs;
    if (!shape_equal(&s->input[0], &one))
        return op_shapes_misfit(kind, &s->input[0], &one, "says whether anything overflowed", err);
    s->output[0] = numbers;
    return OK;
}

enum status shapes_bias(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                        struct error *err)
{
    const struct shape *x = &s->input[0], *b = &s->input[1];
    bool some = attrs->dim > 0;
    for (int32_t i = 0; some && i < b->rank; i++)
        if (attrs->dim + i >= x->rank || b->dim[i] != x->dim[attrs->dim + i])
            return op_shapes_misfit(kind, x, b, "the bias must be of the dimensions from `dim` on",
                                    err);
    if (!some && !is_vector(b, shape_last(x)))
        return op_shapes_misfit(kind, x, b, "the bias must be as long as the last dimension", err);
    s->output[0] = *x;
    return need_like(kind, s, 2, x, err);
}

enum status shapes_bias_grad(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                             struct error *err)
{
    const struct shape *dy = &s->input[0];
    s->output[0] = vector(shape_last(dy));
    if (attrs->dim <= 0) return OK;
    if (attrs->dims < 1 || attrs->dim > dy->rank - attrs->dims)
        return error_set(err, ERR_INPUT, "%s: no %d dimensions from %d on in an operand of rank %d",
                         op_kind_name(kind), attrs->dims, attrs->dim, dy->rank);
    s->output[0].rank = attrs->dims;
    for (int32_t i = 0; i < attrs->dims; i++) s->output[0].dim[i] = dy->dim[attrs->dim + i];
    return OK;
}

/* Length of the runs a norm works on; layer_norm takes whole rows, rms_norm may split them. */
static bool runs_fit(enum op_kind kind, const struct shape *x, int64_t n)
{
    bool splits = kind == OP_rms_norm || kind == OP_rms_norm_grad;
    return n > 0 && (splits ? shape_last(x) % n == 0 : shape_last(x) == n);
}

static struct shape norm_stats(enum op_kind kind, const struct shape *x, int64_t n)
{
    bool rms = kind == OP_rms_norm || kind == OP_rms_norm_grad;
    return matrix(shape_elements(x) / n, rms ? 1 : 2);
}

enum status shapes_norm(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                        struct error *err)
{
    (void)attrs;
    const struct shape *x = &s->input[0];
    int64_t n = shape_last(&s->input[1]);
    for (int32_t i = 1; i < s->n_inputs; i++)
        if (!is_vector(&s->input[i], n) || !runs_fit(kind, x, n))
            return op_shapes_misfit(kind, x, &s->input[i],
                                    "the weight must be as long as what is normalised", err);
    s->output[0] = *x;
    s->output[1] = norm_stats(kind, x, n);
    return OK;
}

enum status shapes_norm_grad(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                             struct error *err)
{
    (void)attrs;
    const struct shape *x = &s->input[0];
    int64_t n = shape_last(&s->input[1]);
    if (!is_vector(&s->input[1], n) || !runs_fit(kind, x, n))
        return op_shapes_misfit(kind, x, &s->input[1],
                                "the weight must be as long as what is normalised", err);
    struct shape stats = norm_stats(kind, x, n);
    if (!shape_equal(&s->input[2], &stats))
        return op_shapes_misfit(kind, &stats, &s->input[2], "statistics of another shape", err);
    s->output[0] = *x;
    return need_like(kind, s, 3, x, err);
}

/* The length of a run follows from the number of statistics: elements / rows of stats; of nothing, from head_dim. */
enum status shapes_norm_weight_grad(enum op_kind kind, const struct op_attrs *attrs,
                                    struct op_shapes *s, struct error *err)
{
    const struct shape *x = &s->input[0], *stats = &s->input[1];
    bool rms = kind == OP_rms_norm_weight_grad;
    if (!shape_elements(x)) {
        int64_t n = rms ? attrs->head_dim : shape_last(x);
        if (n <= 0 || stats->rank != 2 || stats->dim[0])
            return op_shapes_misfit(kind, x, stats, "statistics of another shape", err);
        for (int32_t i = 0; i < s->n_outputs; i++) s->output[i] = vector(n);
        return need_like(kind, s, 2, x, err);
    }
    int64_t runs = stats->rank == 2 ? stats->dim[0] : 0, rows = shape_rows(x);
    bool fits =
        runs > 0 && stats->dim[1] == (rms ? 1 : 2) &&
        (rms ? shape_elements(x) % runs == 0 && runs % (rows ? rows : 1) == 0 : runs == rows);
    if (!fits) return op_shapes_misfit(kind, x, stats, "statistics of another shape", err);
    for (int32_t i = 0; i < s->n_outputs; i++) s->output[i] = vector(shape_elements(x) / runs);
    return need_like(kind, s, 2, x, err);
}

enum status shapes_embedding(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                             struct error *err)
{
    (void)attrs;
    const struct shape *ids = &s->input[0], *table = &s->input[1];
    if (table->rank != 2 || ids->rank >= SHAPE_RANK_MAX)
        return op_shapes_misfit(kind, ids, table, "the table must be (vocabulary, features)", err);
    s->output[0] = *ids;
    s->output[0].dim[s->output[0].rank++] = table->dim[1];
    return OK;
}

enum status shapes_embedding_grad(enum op_kind kind, const struct op_attrs *attrs,
                                  struct op_shapes *s, struct error *err)
{
    const struct shape *ids = &s->input[0], *dy = &s->input[1];
    if (dy->rank < 2 || shape_elements(ids) != shape_rows(dy))
        return op_shapes_misfit(kind, ids, dy, "one row of gradient for each id", err);
    s->output[0] = matrix(attrs->vocabulary, shape_last(dy));
    return OK;
}

enum status shapes_rotary(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                          struct error *err)
{
    const struct shape *x = &s->input[0];
    struct shape heads = matrix(attrs->heads, attrs->head_dim);
    if (x->rank != 3 || attrs->head_dim % 2 || shape_last(x) != shape_elements(&heads))
        return op_shapes_misfit(kind, x, &heads, "(b, T, heads x head_dim) with an even head_dim",
                                err);
    s->output[0] = *x;
    return OK;
}

/* Inputs 0 … n-1 are packed qkv (n = 1) or q, k, v (n = 3). */
static enum status need_qkv(enum op_kind kind, const struct op_attrs *a, const struct op_shapes *s,
                            int32_t n, struct error *err)
{
    int64_t q = (int64_t)a->heads * a->head_dim, kv = (int64_t)a->kv_heads * a->head_dim;
    struct shape first = s->input[0];
    /* A device whose part is empty has no heads. */
    bool heads_fit = a->head_dim > 0 && (a->kv_heads > 0 ? q > 0 && a->heads % a->kv_heads == 0
                                                         : a->kv_heads == 0 && a->heads == 0);
    if (first.rank != 3 || !heads_fit)
        return error_set(err, ERR_INPUT,
                         "%s: %d heads over %d key-value heads of %d on an operand of rank %d",
                         op_kind_name(kind), a->heads, a->kv_heads, a->head_dim, first.rank);
    if (a->bidirectional && a->window)
        return error_set(err, ERR_INPUT, "%s: a window of %d needs causal attention",
                         op_kind_name(kind), a->window);
    struct shape want = with_last(first, n == 1 ? q + 2 * kv : q);
    if (!shape_equal(&first, &want))
        return op_shapes_misfit(kind, &first, &want, "heads x head_dim", err);
    want = with_last(first, kv);
    /* Queries from position attrs.start on may be fewer than keys. */
    if (n > 1 && s->input[1].rank == 3 && a->start + first.dim[1] <= s->input[1].dim[1])
        want.dim[1] = s->input[1].dim[1];
    for (int32_t i = 1; i < n; i++)
        if (!shape_equal(&s->input[i], &want))
            return op_shapes_misfit(kind, &s->input[i], &want, "key-value heads x head_dim", err);
    return OK;
}

/* What the queries give: of a packed qkv perhaps some of the positions. */
static enum status attended(enum op_kind kind, const struct op_attrs *a, const struct op_shapes *s,
                            int32_t n, struct shape *out, struct error *err)
{
    TRY(need_qkv(kind, a, s, n, err));
    *out = with_last(s->input[0], (int64_t)a->heads * a->head_dim);
    int64_t keys = s->input[n > 1].dim[1], queries = s->input[0].dim[1];
    if (n == 1) TRY(op_shapes_lines(kind, a, keys, &out->dim[1], err));
    if (n == 1 || (a->start >= 0 && queries <= keys - a->start && !a->lines.of)) return OK;
    return error_set(err, ERR_INPUT,
                     "%s: %" PRId64 " queries from position %" PRId64 " on of %" PRId64,
                     op_kind_name(kind), queries, a->start, keys);
}

/* x: q or what it gives; k: what has the keys. */
static struct shape attention_lse(const struct op_attrs *a, const struct shape *x,
                                  const struct shape *k)
{
    if (a->eager)
        return (struct shape){.rank = 4, .dim = {x->dim[0], a->heads, x->dim[1], k->dim[1]}};
    return (struct shape){.rank = 3, .dim = {x->dim[0], a->heads, x->dim[1]}};
}

enum status shapes_attention(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                             struct error *err)
{
    TRY(attended(kind, attrs, s, s->n_inputs, &s->output[0], err));
    s->output[1] = attention_lse(attrs, &s->output[0], &s->input[s->n_inputs > 1]);
    return OK;
}

enum status shapes_attention_grad(enum op_kind kind, const struct op_attrs *attrs,
                                  struct op_shapes *s, struct error *err)
{
    int32_t n = s->n_inputs - 3;
    struct shape o;
    TRY(attended(kind, attrs, s, n, &o, err));
    struct shape lse = attention_lse(attrs, &o, &s->input[n > 1]);
    if (!shape_equal(&s->input[n + 1], &lse))
        return op_shapes_misfit(kind, &s->input[n + 1], &lse, "lse of another shape", err);
    if (!shape_equal(&s->input[n], &o))
        return op_shapes_misfit(kind, &s->input[n], &o, "output of another shape", err);
    s->n_outputs = n;
    for (int32_t i = 0; i < n; i++) s->output[i] = s->input[i];
    return need_like(kind, s, n + 2, &o, err);
}

static enum status need_targets(enum op_kind kind, const struct op_attrs *a,
                                const struct op_shapes *s, struct error *err)
{
    const struct shape *x = &s->input[0];
    int64_t length = x->rank && x->dim[0] ? shape_rows(x) / x->dim[0] : INT64_MAX;
    if (a->counted < 0 || a->counted > length)
        return error_set(err, ERR_INPUT,
                         "%s: %" PRId64 " targets that count of %" PRId64 " in a sequence",
                         op_kind_name(kind), a->counted, length);
    for (int32_t i = 1; i < s->n_inputs; i++)
        if (s->input[0].rank < 2 || shape_elements(&s->input[i]) != shape_rows(&s->input[0]))
            return op_shapes_misfit(kind, &s->input[0], &s->input[i],
                                    "one number for each row of logits", err);
    return OK;
}

enum status shapes_cross_entropy(enum op_kind kind, const struct op_attrs *attrs,
                                 struct op_shapes *s, struct error *err)
{
    TRY(need_targets(kind, attrs, s, err));
    s->output[0] = vector(1);
    s->output[1] = s->input[1];
    return OK;
}

enum status shapes_cross_entropy_grad(enum op_kind kind, const struct op_attrs *attrs,
                                      struct op_shapes *s, struct error *err)
{
    TRY(need_targets(kind, attrs, s, err));
    s->output[0] = s->input[0];
    return OK;
}

/* The sizes of a measured layer are data, not derived from its operands. */
enum status shapes_measured_forward(enum op_kind kind, const struct op_attrs *attrs,
                                    struct op_shapes *s, struct error *err)
{
    if (s->n_inputs != (attrs->first ? 1 : 2))
        return error_set(err, ERR_INPUT, "%s: %d operands", op_kind_name(kind), s->n_inputs);
    s->output[0] =
        attrs->out ? (struct shape){.rank = 2, .dim = {attrs->sequences, attrs->out}} : vector(1);
    s->output[1] = (struct shape){.rank = 2, .dim = {attrs->sequences, attrs->kept}};
    return OK;
}

enum status shapes_measured_backward(enum op_kind kind, const struct op_attrs *attrs,
                                     struct op_shapes *s, struct error *err)
{
    struct shape kept = {.rank = 2, .dim = {attrs->sequences, attrs->kept}};
    int32_t n = 2 + !attrs->first + (attrs->out > 0);
    if (s->n_inputs != n || !shape_equal(&s->input[1], &kept))
        return error_set(err, ERR_INPUT, "%s: %d operands, the second must be what was kept",
                         op_kind_name(kind), s->n_inputs);
    s->n_outputs = 2 + !attrs->first;
    s->output[0] = s->input[0];
    s->output[1] = kept;
    if (!attrs->first) s->output[2] = s->input[2];
    return OK;
}

/* [start, start + n) of so many, in dimension attrs.dim of x. */
static enum status need_shard(enum op_kind kind, const struct op_attrs *a, const struct shape *x,
                              int64_t n, int64_t whole, struct error *err)
{
    if (n >= 0 && a->start >= 0 && n <= whole && a->start <= whole - n) return OK;
    char text[SHAPE_TEXT_MAX];
    return error_set(err, ERR_INPUT,
                     "%s: %" PRId64 " %s from %" PRId64 " on are not all of %" PRId64
                     "; its operand is %s",
                     op_kind_name(kind), n, a->dim ? "places" : "sequences", a->start, whole,
                     op_shapes_text(text, x));
}

/* Extent of the dimension that a part is taken of; -1 where there is none. */
static int64_t shard_extent(const struct op_attrs *a, const struct shape *x)
{
    return a->dim >= 0 && a->dim < x->rank ? x->dim[a->dim] : -1;
}

enum status shapes_slice(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                         struct error *err)
{
    const struct shape *x = &s->input[0];
    TRY(need_shard(kind, attrs, x, attrs->sequences, shard_extent(attrs, x), err));
    s->output[0] = *x;
    s->output[0].dim[attrs->dim] = attrs->sequences;
    return OK;
}

enum status shapes_paste(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                         struct error *err)
{
    const struct shape *x = &s->input[0];
    TRY(need_shard(kind, attrs, x, shard_extent(attrs, x), attrs->sequences, err));
    s->output[0] = *x;
    s->output[0].dim[attrs->dim] = attrs->sequences;
    return OK;
}
