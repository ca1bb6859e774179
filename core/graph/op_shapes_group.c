/* core/graph/op_shapes_group.c - shape rules of shards and of conversions between devices.
 */
#include "core/graph/op_shapes.h"

#include "core/graph/exchange.h"

#include <inttypes.h>

/* Dimension dim of x must have n elements. */
static enum status need_dim(enum op_kind kind, const struct exchange *m, const struct shape *x,
                            int32_t dim, int64_t n, struct error *err)
{
    if (!m) BUG("%s without an exchange", op_kind_name(kind));
    if (dim >= 0 && dim < x->rank && x->dim[dim] == n) return OK;
    char text[SHAPE_TEXT_MAX];
    return error_set(err, ERR_INPUT, "%s: dimension %d of %s should be %" PRId64,
                     op_kind_name(kind), dim, op_shapes_text(text, x), n);
}

enum status shapes_local_slice(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                             struct error *err)
{
    const struct exchange *m = attrs->exchange;
    TRY(need_dim(kind, m, &s->input[0], m->dim, m->shards->whole, err));
    s->output[0] = s->input[0];
    s->output[0].dim[m->dim] = division_extent(m->shards, m->self);
    return OK;
}

enum status shapes_gather(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                          struct error *err)
{
    const struct exchange *m = attrs->exchange;
    TRY(need_dim(kind, m, &s->input[0], m->dim, division_extent(m->shards, m->self), err));
    s->output[0] = s->input[0];
    s->output[0].dim[m->dim] = m->shards->whole;
    return OK;
}

enum status shapes_add_to_slice(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                            struct error *err)
{
    return shapes_gather(kind, attrs, s, err);
}

enum status shapes_to_other_shard(enum op_kind kind, const struct op_attrs *attrs,
                                 struct op_shapes *s, struct error *err)
{
    const struct exchange *m = attrs->exchange;
    TRY(shapes_gather(kind, attrs, s, err));
    TRY(need_dim(kind, m, &s->output[0], m->to_dim, m->to->whole, err));
    s->output[0].dim[m->to_dim] = division_extent(m->to, m->self);
    return OK;
}

static enum status need_row_each(enum op_kind kind, const struct shape *logits,
                                 const struct shape *targets, struct error *err)
{
    if (logits->rank >= 2 && shape_elements(targets) == shape_rows(logits)) return OK;
    return op_shapes_misfit(kind, logits, targets, "one number for each row of logits", err);
}

enum status shapes_cross_entropy_shard(enum op_kind kind, const struct op_attrs *attrs,
                                      struct op_shapes *s, struct error *err)
{
    (void)attrs;
    TRY(need_row_each(kind, &s->input[0], &s->input[1], err));
    s->output[0] = s->input[0];
    s->output[0].dim[s->output[0].rank - 1] = 2;
    return OK;
}

/* Shards (…,2n), logits, targets. */
enum status shapes_cross_entropy_join(enum op_kind kind, const struct op_attrs *attrs,
                                      struct op_shapes *s, struct error *err)
{
    (void)attrs;
    const struct shape *shards = &s->input[0], *logits = &s->input[1], *targets = &s->input[2];
    TRY(need_row_each(kind, logits, targets, err));
    if (shards->rank != logits->rank || shape_rows(shards) != shape_rows(logits) ||
        shape_last(shards) % 2)
        return op_shapes_misfit(kind, shards, logits, "two numbers of each part for each row of logits",
                             err);
    s->output[0] = (struct shape){.rank = 1, .dim = {1}};
    s->output[1] = *targets;
    return OK;
}
