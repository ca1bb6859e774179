/* core/graph/op_shapes_fused.c - operands of products that are fused with more than a bias, and of logits in long rows. */
#include "core/graph/op_shapes.h"

/* dz as z is; its rows' sum. */
enum status shapes_matmul_gelu_grad(enum op_kind kind, const struct op_attrs *attrs,
                                    struct op_shapes *s, struct error *err)
{
    if (attrs->trans_a)
        return error_set(err, ERR_INPUT, "%s: its first operand is not transposed",
                         op_kind_name(kind));
    TRY(shapes_matmul(kind, attrs, s, err));
    s->output[1] = (struct shape){.rank = 1, .dim = {shape_last(&s->output[0])}};
    if (shape_equal(&s->output[0], &s->input[2])) return OK;
    return op_shapes_misfit(kind, &s->output[0], &s->input[2],
                         "the input of gelu must have the shape of its gradient", err);
}

static int64_t logits_row(int64_t vocabulary)
{
    return (vocabulary + LOGITS_PACK - 1) / LOGITS_PACK * LOGITS_PACK;
}

int64_t op_logits(const struct op_attrs *attrs, const struct shape *logits)
{
    int64_t n = shape_last(logits);
    return attrs->vocabulary > 0 && attrs->vocabulary < n ? attrs->vocabulary : n;
}

enum status shapes_logits(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                          struct error *err)
{
    (void)attrs;
    TRY(shapes_matmul(kind, &(struct op_attrs){.trans_b = true}, s, err));
    struct shape *y = &s->output[0];
    y->dim[y->rank - 1] = logits_row(shape_last(y));
    return OK;
}

enum status shapes_logits_grad(enum op_kind kind, const struct op_attrs *attrs,
                               struct op_shapes *s, struct error *err)
{
    (void)attrs;
    const struct shape *dy = &s->input[0], *w = &s->input[1];
    if (dy->rank < 2 || w->rank != 2 || shape_last(dy) != logits_row(w->dim[0]))
        return op_shapes_misfit(kind, dy, w, "rows are not those of logits of so many entries", err);
    s->output[0] = *dy;
    s->output[0].dim[dy->rank - 1] = w->dim[1];
    return OK;
}

enum status shapes_logits_weight_grad(enum op_kind kind, const struct op_attrs *attrs,
                                      struct op_shapes *s, struct error *err)
{
    const struct shape *dy = &s->input[0], *x = &s->input[1];
    if (dy->rank < 2 || x->rank < 2 || shape_rows(dy) != shape_rows(x) ||
        shape_last(dy) != logits_row(attrs->vocabulary))
        return op_shapes_misfit(kind, dy, x, "rows are not those of logits of so many entries", err);
    s->output[0] = (struct shape){.rank = 2, .dim = {attrs->vocabulary, shape_last(x)}};
    return OK;
}
