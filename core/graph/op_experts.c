/* core/graph/op_experts.c - shapes, FLOPs and bytes of the kinds that send rows to experts and back.
 *
 * Dispatched rows stand in slots, (b, experts, capacity, features): an index of its own for sequences, experts and features, so
 * that each may be split over devices. Gates (b, T, experts) say by what is not 0 which rows are dispatched; slots are filled
 * by position, so everybody who has the gates of an expert knows its slots without being told.
 */
#include "core/graph/op_shapes.h"
#include "core/graph/op_work.h"

#include <math.h>

static struct shape shape3(int64_t a, int64_t b, int64_t c)
{
    return (struct shape){.rank = 3, .dim = {a, b, c}};
}

static struct shape shape4(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (struct shape){.rank = 4, .dim = {a, b, c, d}};
}

enum status shapes_gating(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                          struct error *err)
{
    const struct shape *logits = &s->input[0];
    if (logits->rank != 3)
        return op_shapes_misfit(kind, logits, logits, "logits are (b, T, experts)", err);
    if (kind == OP_gating && (attrs->chosen < 1 || attrs->chosen > shape_last(logits)))
        return error_set(err, ERR_INPUT, "%s: top-%d of %lld experts is not possible",
                         op_kind_name(kind), attrs->chosen, (long long)shape_last(logits));
    for (int32_t i = 1; i < s->n_inputs; i++)
        if (!shape_equal(&s->input[i], logits))
            return op_shapes_misfit(kind, logits, &s->input[i], "shapes must be equal", err);
    s->output[0] = *logits;
    return OK;
}

enum status shapes_dispatch(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                            struct error *err)
{
    const struct shape *x = &s->input[0], *g = &s->input[1];
    int64_t rows = g->rank == 3 ? g->dim[1] : 0;
    if (g->rank == 3) TRY(op_shapes_lines(kind, attrs, rows, &rows, err));
    if (x->rank != 3 || g->rank != 3 || x->dim[0] != g->dim[0] || x->dim[1] != rows)
        return op_shapes_misfit(kind, x, g, "a gate for each expert and row", err);
    bool none = attrs->columns.of && !attrs->capacity; /* a device may have no slots */
    if (!none && (attrs->capacity < 1 || attrs->capacity > (g->dim[1] > 1 ? g->dim[1] : 1)))
        return error_set(err, ERR_INPUT, "%s: a capacity of %lld is not from 1 to %lld positions",
                         op_kind_name(kind), (long long)attrs->capacity, (long long)g->dim[1]);
    s->output[0] = shape4(x->dim[0], g->dim[2], attrs->capacity, x->dim[2]);
    return OK;
}

static bool slots_fit(const struct shape *rows, const struct shape *gates)
{
    return rows->rank == 4 && gates->rank == 3 && rows->dim[0] == gates->dim[0] &&
           rows->dim[1] == gates->dim[2];
}

enum status shapes_combine(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                           struct error *err)
{
    const struct shape *rows = &s->input[0], *g = &s->input[1];
    if (!slots_fit(rows, g))
        return op_shapes_misfit(kind, rows, g, "(b, experts, slots, d) and (b, T, experts)", err);
    s->output[0] = shape3(g->dim[0], g->dim[1], rows->dim[3]);
    return op_shapes_lines(kind, attrs, g->dim[1], &s->output[0].dim[1], err);
}

enum status shapes_gates_grad(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *s,
                              struct error *err)
{
    TRY(shapes_combine(kind, attrs, s, err));
    if (!shape_equal(&s->input[2], &s->output[0]))
        return op_shapes_misfit(kind, &s->output[0], &s->input[2], "a gradient for each row", err);
    s->output[0] = s->input[1];
    return OK;
}

enum status shapes_expert_matmul(enum op_kind kind, const struct op_attrs *attrs,
                                 struct op_shapes *s, struct error *err)
{
    const struct shape *x = &s->input[0], *w = &s->input[1];
    if (attrs->trans_a && attrs->trans_b)
        return op_shapes_misfit(kind, x, w, "only one operand may be transposed", err);
    if (!slots_fit(x, &s->input[2]))
        return op_shapes_misfit(kind, x, &s->input[2], "(b, experts, slots, d) and (b, T, experts)",
                                err);
    if (attrs->trans_a) {
        if (w->rank != 4 || w->dim[0] != x->dim[0] || w->dim[1] != x->dim[1] ||
            w->dim[2] != x->dim[2])
            return op_shapes_misfit(kind, x, w, "other slots", err);
        s->output[0] = shape3(x->dim[1], x->dim[3], w->dim[3]);
        return OK;
    }
    if (w->rank != 3 || w->dim[0] != x->dim[1] || w->dim[attrs->trans_b ? 2 : 1] != x->dim[3])
        return op_shapes_misfit(kind, x, w, "the second must be (experts, in, out), or out, in",
                                err);
    s->output[0] = shape4(x->dim[0], x->dim[1], x->dim[2], w->dim[attrs->trans_b ? 1 : 2]);
    return OK;
}

/* --- work --- */

/* Of one expert and one sequence; of a part of the slots those that are among them. */
static double filled_slots(const struct op_attrs *a, const struct shape *gates, int64_t capacity)
{
    double experts = a->experts ? a->experts : (double)gates->dim[2];
    double even = experts > 0 ? a->chosen * (double)gates->dim[1] / experts : 0;
    even = even > (double)a->columns.first ? even - (double)a->columns.first : 0;
    return even < (double)capacity ? even : (double)capacity;
}

static int64_t capacity_of(enum op_kind kind, const struct op_attrs *a, const struct op_shapes *s)
{
    return kind == OP_dispatch ? a->capacity : s->input[0].dim[2];
}

double op_expert_rows(enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *s)
{
    const struct shape *gates = &s->input[op_gates_input(kind)];
    return (double)gates->dim[0] * filled_slots(attrs, gates, capacity_of(kind, attrs, s));
}

/* Of the positions, those that the device has rows of. */
static double share_of_positions(const struct op_attrs *a)
{
    return a->lines.of ? (double)a->lines.n / (double)a->lines.of : 1;
}

double op_expert_excess(enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *s,
                        double spread)
{
    int32_t at = op_gates_input(kind);
    if (at < 0 || !attrs || !(spread > 0)) return 1;
    const struct shape *gates = &s->input[at];
    double all = attrs->experts, part = (double)gates->dim[2];
    int64_t slots = capacity_of(kind, attrs, s);
    double even = filled_slots(attrs, gates, slots);
    if (!(part > 0 && part < all && even > 0)) return 1;
    double deviation = spread * sqrt(part * (1 - part / all) * all / (all - 1)),
           most = fmin(part, attrs->chosen) *
                  (double)(slots < gates->dim[1] ? slots : gates->dim[1]) / even;
    return fmin(part + deviation * log((all / part - 0.375) / 0.625) / 1.702, most) / part;
}

/* Over all experts and sequences. */
static double all_rows(enum op_kind kind, const struct op_attrs *a, const struct op_shapes *s)
{
    return op_expert_rows(kind, a, s) * (double)s->input[op_gates_input(kind)].dim[2] *
           share_of_positions(a);
}

static int64_t whole(double x) { return (int64_t)(x + 0.5); }

/* Maximum, subtract, exp, sum, divide, and a comparison for each that is chosen. */
double flops_gating(const struct op_attrs *a, const struct op_shapes *s)
{
    return (5.0 + a->chosen) * (double)shape_elements(&s->input[0]);
}

/* Softmax again 4, Σ p·dg 2, p·(dg - Σ) 2; for balance Σ f·p 2, p·(f - Σ) 2. */
double flops_gating_grad(const struct op_attrs *a, const struct op_shapes *s)
{
    return (a->scale != 0 ? 12.0 : 8.0) * (double)shape_elements(&s->input[0]);
}

double flops_dispatch(const struct op_attrs *a, const struct op_shapes *s)
{
    return a->weighted ? all_rows(OP_dispatch, a, s) * (double)shape_last(&s->input[0]) : 0;
}

double flops_combine(const struct op_attrs *a, const struct op_shapes *s)
{
    return (a->weighted ? 2 : 1) * all_rows(OP_combine, a, s) * (double)shape_last(&s->input[0]);
}

double flops_gates_grad(const struct op_attrs *a, const struct op_shapes *s)
{
    return 2 * all_rows(OP_gates_grad, a, s) * (double)shape_last(&s->input[0]);
}

double flops_expert_matmul(const struct op_attrs *a, const struct op_shapes *s)
{
    return 2 * all_rows(OP_expert_matmul, a, s) * (double)shape_last(&s->input[0]) *
           (double)shape_last(&s->output[0]);
}

/* A read of each row for each slot it fills; empty slots are written too. */
void bytes_dispatch(const struct op_attrs *a, const struct op_shapes *s, int64_t b, int64_t *read,
                    int64_t *written)
{
    *read = b * (whole(all_rows(OP_dispatch, a, s)) * shape_last(&s->input[0]) +
                 shape_elements(&s->input[1]));
    *written = b * shape_elements(&s->output[0]);
}

void bytes_combine(const struct op_attrs *a, const struct op_shapes *s, int64_t b, int64_t *read,
                   int64_t *written)
{
    *read = b * (whole(all_rows(OP_combine, a, s)) * shape_last(&s->input[0]) +
                 shape_elements(&s->input[1]));
    *written = b * shape_elements(&s->output[0]);
}

void bytes_gates_grad(const struct op_attrs *a, const struct op_shapes *s, int64_t b, int64_t *read,
                      int64_t *written)
{
    *read = b * (whole(all_rows(OP_gates_grad, a, s)) * shape_last(&s->input[0]) +
                 shape_elements(&s->input[1]) + shape_elements(&s->input[2]));
    *written = b * shape_elements(&s->output[0]);
}

/* Filled slots are read, all are written. */
void bytes_expert_matmul(const struct op_attrs *a, const struct op_shapes *s, int64_t b,
                         int64_t *read, int64_t *written)
{
    int64_t rows = whole(all_rows(OP_expert_matmul, a, s)), left = rows * shape_last(&s->input[0]);
    int64_t right = a->trans_a ? rows * shape_last(&s->input[1]) : shape_elements(&s->input[1]);
    *written = b * shape_elements(&s->output[0]);
    *read = b * (left + right + shape_elements(&s->input[2])) + (a->accumulate ? *written : 0);
}
