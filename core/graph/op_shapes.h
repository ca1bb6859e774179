/* core/graph/op_shapes.h - the shape rules of the operator table's rows; private to core/graph/op.c.
 *
 * A rule reads shapes->input[0 … n_inputs-1] (their number is already checked against the row) and
 * writes shapes->output; n_outputs is preset from the row and only attention_grad changes it.
 * Errors: ERR_INPUT naming the kind and the two shapes that do not fit. O(operands) each.
 */
#ifndef CORE_GRAPH_OP_SHAPES_H
#define CORE_GRAPH_OP_SHAPES_H

#include "core/base/error.h"
#include "core/graph/op.h"

typedef enum status op_shape_rule(enum op_kind kind, const struct op_attrs *attrs,
                                  struct op_shapes *shapes, struct error *err);

#define SHAPES(name) op_shape_rule shapes_##name;
#include "core/graph/op_rows.inc"

enum { SHAPE_TEXT_MAX = SHAPE_RANK_MAX * 20 + 3 };
/* ERR_INPUT with both shapes and the reason. */
MUST_CHECK enum status op_shapes_misfit(enum op_kind kind, const struct shape *a,
                                        const struct shape *b, const char *why, struct error *err);
/* Number of attrs.lines; ERR_INPUT if they are not within `all`. */
MUST_CHECK enum status op_shapes_lines(enum op_kind kind, const struct op_attrs *attrs, int64_t all,
                                       int64_t *n, struct error *err);
/* "(8,128,256)"; returns buffer. */
const char *op_shapes_text(char buffer[SHAPE_TEXT_MAX], const struct shape *s);

#endif
