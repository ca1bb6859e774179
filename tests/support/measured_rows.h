/* tests/support/measured_rows.h - measured times of the layers of the model "toy" for a profile made by a test. */
#ifndef TESTS_SUPPORT_MEASURED_ROWS_H
#define TESTS_SUPPORT_MEASURED_ROWS_H

#include "core/base/arena.h"
#include "core/graph/op.h"
#include "core/model/measured.h"
#include "profiles/profile.h"

/* Appends the time in seconds of a measured operator. base: device type of the row; cost: name of the layer's costs; room: capacity of
 * p->ops, 0 before the first row. */
static inline void measured_rows_add(struct arena *a, struct profile *p, size_t *room,
                                     const char *base, const char *cost, int64_t sequences,
                                     enum op_kind kind, double seconds)
{
    struct op_attrs attrs = {.row = op_measured_row("toy", cost), .sequences = sequences};
    struct op_shapes none = {0};
    p->ops = arena_grow(a, p->ops, p->n_ops, room, sizeof *p->ops);
    p->ops[p->n_ops++] = (struct op_row){.base = base,
                                         .key = op_key(kind, &attrs, &none, DTYPE_fp32),
                                         .kind = kind,
                                         .dtype = DTYPE_fp32,
                                         .text = "",
                                         .seconds = seconds,
                                         .provenance = "test"};
}

#endif
