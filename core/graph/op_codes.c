/* core/graph/op_codes.c - encode and decode of compressed messages (core/graph/encoding.h), orthonormal: shapes, FLOPs, bytes. */
#include "core/graph/encoding.h"
#include "core/graph/op_shapes.h"
#include "core/graph/op_work.h"

int64_t encoding_kept(const struct encoding *c, int64_t m)
{
    if (!encoding_is_sparse(c->kind)) return 0;
    return (c->kept * m + c->block - 1) / c->block;
}

int64_t encoding_block_words(const struct encoding *c, int64_t m)
{
    int64_t kept = encoding_kept(c, m);
    if (encoding_is_half(c->kind)) return (m + 1) / 2;
    if (c->kind == ENCODING_SIGN) return c->value_words + (m + 31) / 32;
    if (!encoding_is_sparse(c->kind)) return c->value_words + (m + 3) / 4;
    return (c->kind == ENCODING_TOP_K ? kept : 1) + kept * c->value_words;
}

int64_t encoding_words(const struct encoding *c, int64_t n)
{
    int64_t rest = n % c->block;
    return n / c->block * encoding_block_words(c, c->block) + (rest ? encoding_block_words(c, rest) : 0);
}

static int64_t kept_of(const struct encoding *c, int64_t n)
{
    return n / c->block * encoding_kept(c, c->block) + encoding_kept(c, n % c->block);
}

/* g, (e or h) -> code, (e or h) */
enum status shapes_encode(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                          struct error *err)
{
    const struct shape *g = &s->input[0];
    s->n_outputs = s->n_inputs;
    if (s->n_inputs != 1 + (attrs->code.feedback != FEEDBACK_NONE))
        return error_set(err, ERR_INPUT, "%s: %d operands with another kind of feedback", op_kind_name(kind), s->n_inputs);
    if (s->n_inputs == 2 && !shape_equal(g, &s->input[1]))
        return op_shapes_misfit(kind, g, &s->input[1], "feedback has the gradient's shape", err);
    s->output[0] = (struct shape){1, {encoding_words(&attrs->code, shape_elements(g))}};
    s->output[1] = *g;
    return OK;
}

/* g, codes, (H) -> g, (H) */
enum status shapes_decode(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                          struct error *err)
{
    const struct shape *g = &s->input[0], *codes = &s->input[1];
    int64_t words = encoding_words(&attrs->code, shape_elements(g)), all = shape_elements(codes);
    s->n_outputs = s->n_inputs - 1;
    if (s->n_inputs != 2 + (attrs->code.feedback == FEEDBACK_EF21))
        return error_set(err, ERR_INPUT, "%s: %d operands with another kind of feedback", op_kind_name(kind), s->n_inputs);
    if (words ? all % words != 0 : all != 0)
        return op_shapes_misfit(kind, g, codes, "codes of whole gradients are decoded", err);
    if (s->n_inputs == 3 && !shape_equal(g, &s->input[2]))
        return op_shapes_misfit(kind, g, &s->input[2], "feedback has the gradient's shape", err);
    s->output[0] = s->output[1] = *g;
    return OK;
}

/* Of an element: INT8 magnitude, maximum, product, rounding, decoded; FP8 also exponent, step, fraction; random bits as dropout's. Halves
 * rounding. SIGN sum, comparison, decoded. TOP_K: a
 * comparison for each byte of the threshold and one for the selection. Feedback: a sum before and one behind. */
double flops_encode(const struct op_attrs *attrs, const struct op_shapes *s)
{
    const struct encoding *c = &attrs->code;
    double n = (double)shape_elements(&s->input[0]), feedback = c->feedback ? 2 * n : 0;
    if (encoding_is_half(c->kind)) return feedback + n;
    if (c->kind == ENCODING_INT8 || encoding_is_fp8(c->kind))
        return feedback + n * ((c->kind == ENCODING_INT8 ? 5 : 8) + (c->stochastic ? 22 : 0));
    if (c->kind == ENCODING_SIGN) return feedback + n * 3;
    return feedback + (c->kind == ENCODING_TOP_K ? n * (4 * c->value_words + 1) : 0);
}

/* A product and a sum for each element of each code; the sparse ones a sum for each element that was kept. */
double flops_decode(const struct op_attrs *attrs, const struct op_shapes *s)
{
    const struct encoding *c = &attrs->code;
    int64_t n = shape_elements(&s->input[0]), words = encoding_words(c, n);
    double codes = words ? (double)(shape_elements(&s->input[1]) / words) : 0;
    return codes * (!encoding_is_sparse(c->kind) ? 2.0 * (double)n : (double)kept_of(c, n)) +
           (c->feedback == FEEDBACK_EF21 ? (double)n : 0);
}

/* Twice a product and a difference with each column before; then the length and the division. */
double flops_orthonormal(const struct op_attrs *attrs, const struct op_shapes *s)
{
    double n = (double)s->input[0].dim[0], r = (double)shape_last(&s->input[0]);
    (void)attrs;
    return n * r * (4 * (r - 1) + 3);
}

/* The gradient is only written. */
void bytes_decode(const struct op_attrs *attrs, const struct op_shapes *s, int64_t b, int64_t *read,
                  int64_t *written)
{
    int64_t n = shape_elements(&s->input[0]), sums = attrs->code.feedback == FEEDBACK_EF21 ? n * b : 0;
    *read = shape_elements(&s->input[1]) * 4 + sums;
    *written = n * b + sums;
}
