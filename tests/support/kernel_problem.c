#include "tests/support/kernel_problem.h"

#include "core/base/rng.h"
#include "tests/support/narrow.h"

#include <stdlib.h>

enum dtype kernel_problem_input_type(const struct kernel_problem *p, int32_t i)
{
    if (op_input_is_int32(p->call.kind, i)) return DTYPE_int32;
    return p->wide_input >> i & 1 ? dtype_master(p->dtype) : p->dtype;
}

enum dtype kernel_problem_output_type(const struct kernel_problem *p, int32_t i)
{
    return p->wide_output >> i & 1 ? dtype_master(p->dtype) : p->dtype;
}

int64_t kernel_problem_input_size(const struct kernel_problem *p, int32_t i)
{
    return shape_elements(&p->shapes.input[i]);
}

int64_t kernel_problem_output_size(const struct kernel_problem *p, int32_t i)
{
    return shape_elements(&p->shapes.output[i]);
}

static bool is_update(enum op_kind kind)
{
    return op_is_update(kind) || kind == OP_outer_average || kind == OP_outer_nesterov;
}

/* always: operands that are wide whatever is chosen; either: those that may be. Bit i: operand i. */
struct wide_row {
    enum op_kind kind;
    uint32_t always_in, always_out, either_in;
};

static const struct wide_row wide_rows[] = {
    {OP_bias, 0, 0, 2},
    {OP_bias_gelu, 0, 0, 2},
    {OP_bias_gelu_grad, 0, 0, 2},
    {OP_bias_grad, 0, 1, 0},
    {OP_layer_norm, 0, 2, 6},
    {OP_layer_norm_grad, 4, 0, 2},
    {OP_layer_norm_grad_add, 4, 0, 2},
    {OP_layer_norm_weight_grad, 2, 3, 0},
    {OP_rms_norm, 0, 2, 2},
    {OP_rms_norm_grad, 4, 0, 2},
    {OP_rms_norm_weight_grad, 2, 1, 0},
    {OP_group_norm, 0, 2, 6},
    {OP_group_norm_grad, 4, 0, 2},
    {OP_group_norm_weight_grad, 2, 3, 0},
    {OP_embedding, 0, 0, 2},
    {OP_embedding_grad, 0, 1, 0},
    {OP_prepend, 0, 0, 2},
    {OP_overflow, 0, 1, 1},
    {OP_square_sum, 0, 1, 1},
    {OP_clip, 1, 1, 0},
    {OP_outer_delta, 3, 1, 0},
    {OP_attention, 0, 2, 0},
    {OP_cross_entropy, 0, 3, 1},
    {OP_cross_entropy_grad, 4, 0, 1},
    {OP_cross_entropy_shard, 0, 1, 1},
    {OP_cross_entropy_join, 1, 3, 0},
    {OP_conv2d_weight_grad, 0, 1, 0},
    {OP_logits_weight_grad, 0, 1, 0},
    {OP_max_pool2d, 0, 0, 0},
    {OP_gating, 0, 0, 1},
    {OP_gating_grad, 0, 0, 7},
    {OP_dispatch, 0, 0, 2},
    {OP_combine, 0, 0, 2},
    {OP_gates_grad, 0, 0, 2},
    {OP_expert_matmul, 0, 0, 4},
};

static struct wide_row wide_row_of(enum op_kind kind, const struct op_attrs *attrs,
                                   int32_t n_inputs, uint32_t choice)
{
    bool weight = attrs->trans_a && (kind == OP_matmul || kind == OP_expert_matmul);
    if (weight) return (struct wide_row){kind, 0, 1, kind == OP_expert_matmul ? 4 : 0};
    /* all but the narrow copy of p */
    if (is_update(kind))
        return (struct wide_row){kind, (1u << n_inputs) - 1, (1u << n_inputs) - 1, 0};
    if (kind == OP_attention_grad) return (struct wide_row){kind, 1u << (n_inputs - 2), 0, 0};
    /* gradients that are added up: from narrow ones or from wide ones, or nothing is wide */
    if (kind == OP_add_to_slice) /* of few rows, some are of each kind */
        return (struct wide_row){kind, choice % 3 == 2, choice % 3 > 0, 0};
    if (kind == OP_accumulate)
        return (struct wide_row){kind, choice >> 1 & choice & 1, choice & 1, 0};
    if (kind == OP_zero || kind == OP_local_slice || kind == OP_slice)
        return (struct wide_row){kind, choice & 1, choice & 1, 0};
    for (size_t i = 0; i < sizeof wide_rows / sizeof *wide_rows; i++)
        if (wide_rows[i].kind == kind) return wide_rows[i];
    return (struct wide_row){kind, 0, 0, 0};
}

void kernel_problem_wide(enum op_kind kind, const struct op_attrs *attrs, int32_t n_inputs,
                         uint32_t choice, uint32_t *wide_input, uint32_t *wide_output)
{
    struct wide_row r = wide_row_of(kind, attrs, n_inputs, choice);
    *wide_input = (r.always_in | (r.either_in & choice)) & ((1u << n_inputs) - 1);
    *wide_output = r.always_out;
}

/* --- operands --- */

static double *numbers(struct problem_maker *m, enum dtype t, int64_t n)
{
    double *p = ARENA_ARRAY(m->arena, double, (size_t)n);
    m->stream++;
    for (int64_t i = 0; i < n; i++)
        p[i] = narrow_value(t, rng_normal(m->seed, m->stream, (uint64_t)i));
    return p;
}

/* About a third of them not 0. */
static double *some_gates(struct problem_maker *m, enum dtype t, int64_t n)
{
    double *p = numbers(m, t, n);
    for (int64_t i = 0; i < n; i++)
        if (rng_below(m->seed + 1, m->stream, (uint64_t)i, 3)) p[i] = 0;
    return p;
}

static int64_t vocabulary_of(const struct kernel_problem *p)
{
    const struct op_attrs *a = &p->attrs;
    const struct shape *s = p->shapes.input;
    if (a->whole > 0) return a->whole;
    if (p->call.kind == OP_embedding) return s[1].dim[0];
    if (a->vocabulary) return a->vocabulary;
    return shape_last(&s[p->call.kind == OP_cross_entropy_join]);
}

/* Targets of which only some count are -1 in the others' places. */
static int32_t *some_ids(struct problem_maker *m, const struct kernel_problem *p, int64_t n)
{
    int32_t *id = ARENA_ARRAY(m->arena, int32_t, (size_t)n);
    int64_t vocabulary = vocabulary_of(p);
    m->stream++;
    for (int64_t i = 0; i < n && vocabulary > 0; i++) {
        id[i] = (int32_t)rng_below(m->seed, m->stream, (uint64_t)i, (uint64_t)vocabulary);
        if (p->attrs.counted && rng_below(m->seed + 1, m->stream, (uint64_t)i, 2)) id[i] = -1;
    }
    return id;
}

static const void *drawn(struct problem_maker *m, const struct kernel_problem *p, int32_t i)
{
    int64_t n = kernel_problem_input_size(p, i);
    enum dtype t = kernel_problem_input_type(p, i);
    if (t == DTYPE_int32) return some_ids(m, p, n);
    return i == op_gates_input(p->call.kind) ? some_gates(m, t, n) : numbers(m, t, n);
}

/* A sum of squares is not negative. */
static const void *a_square(struct problem_maker *m, const struct kernel_problem *p)
{
    double *x = numbers(m, kernel_problem_input_type(p, 0), 1);
    *x = fabs(*x);
    return x;
}

/* What another operator made, as this one finds it. */
static const double *rounded(struct problem_maker *m, enum dtype t, const double *from, int64_t n)
{
    double *p = ARENA_ARRAY(m->arena, double, (size_t)n);
    for (int64_t i = 0; i < n; i++) p[i] = narrow_value(t, from[i]);
    return p;
}

static bool adds_to_outputs(const struct kernel_problem *p)
{
    return p->attrs.accumulate || p->call.kind == OP_accumulate ||
           (p->call.kind == OP_paste && !p->attrs.blank);
}

static void make_outputs(struct problem_maker *m, struct kernel_problem *p)
{
    for (int32_t i = 0; i < p->shapes.n_outputs; i++) {
        int64_t n = kernel_problem_output_size(p, i);
        double *out = ARENA_ARRAY(m->arena, double, (size_t)n);
        bool copy = p->in_place && i == p->shapes.n_inputs; /* p once more, narrow: written */
        if (!copy && (p->in_place || adds_to_outputs(p))) {
            p->begin[i] = numbers(m, kernel_problem_output_type(p, i), n);
            for (int64_t k = 0; k < n; k++) /* a second moment is not negative */
                out[k] = p->begin[i][k] = p->in_place && i == 2 && p->shapes.n_inputs == 4
                                              ? fabs(p->begin[i][k])
                                              : p->begin[i][k];
        }
        p->call.output[i] = out;
        if (p->in_place && !copy) p->call.input[i] = out;
    }
}

static const struct optimizer_step a_step = {
    .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .trust = 0.01, .max_grad_norm = 0.5, .outer_lr = 0.7, .outer_momentum = 0.9, .step = 7};

/* Shapes and attributes stand in p, inputs that are given in its call; the rest is drawn and the host runs it. */
static enum status complete(struct problem_maker *m, struct kernel_problem *p, enum op_kind kind,
                            struct error *err)
{
    p->step = a_step;
    p->step.nesterov = p->attrs.decay;
    p->call.kind = kind, p->call.dtype = DTYPE_fp64;
    p->call.attrs = &p->attrs, p->call.shapes = &p->shapes, p->call.optimizer = &p->step;
    p->call.seed = m->seed * 1000003, p->call.first_sequence = (int64_t)(m->seed % 5);
    p->in_place = is_update(kind);
    if (kind == OP_zero) {
        p->shapes.output[0] = p->shapes.input[0], p->shapes.n_inputs = 0, p->shapes.n_outputs = 1;
    }
    TRY(op_infer(kind, &p->attrs, &p->shapes, err));
    kernel_problem_wide(kind, &p->attrs, p->shapes.n_inputs,
                        dtype_is_half(p->dtype) ? (uint32_t)rng_u64(m->seed, m->stream, 99) : 0,
                        &p->wide_input, &p->wide_output);
    for (int32_t i = 0; i < p->shapes.n_inputs; i++) {
        if (!p->call.input[i])
            p->call.input[i] = kind == OP_clip ? a_square(m, p) : drawn(m, p, i);
        else if (kernel_problem_input_type(p, i) != DTYPE_int32)
            p->call.input[i] = rounded(m, kernel_problem_input_type(p, i), p->call.input[i],
                                       kernel_problem_input_size(p, i));
    }
    make_outputs(m, p);
    TRY(kernels_host_run(m->host, &p->call, err));
    int32_t copy = p->shapes.n_inputs; /* the host has no half precision, and so no copy */
    for (int64_t i = 0; p->attrs.narrows && i < kernel_problem_output_size(p, copy); i++)
        ((double *)p->call.output[copy])[i] = ((const double *)p->call.output[0])[i];
    return OK;
}

static int32_t read_shapes(const char *s, struct shape *out)
{
    int32_t n = 0;
    out[0] = (struct shape){0};
    for (; *s; s++) {
        if (*s == 'x') out[++n] = (struct shape){0};
        if (*s < '0' || *s > '9') continue;
        char *rest;
        out[n].dim[out[n].rank++] = strtoll(s, &rest, 10);
        s = rest - 1;
    }
    return n + 1;
}

/* --- a row --- */

static void wire_input(const struct kernel_problem *f, const struct kernel_problem *before,
                       const double *dy, char from, struct kernel_problem *p, int32_t i)
{
    const void *at = dy;
    struct shape s = f->shapes.output[0];
    if (from >= 'a' && from <= 'c')
        at = f->call.input[from - 'a'], s = f->shapes.input[from - 'a'];
    else if (from == 'p')
        at = before->call.output[0], s = before->shapes.output[0];
    else if (from != 'd')
        at = f->call.output[from - 'A'], s = f->shapes.output[from - 'A'];
    p->call.input[i] = at, p->shapes.input[i] = s;
}

static void attrs_of_rule(const struct kernel_row *row, const struct kernel_rule *r,
                          const struct kernel_problem *f, bool accumulate, struct op_attrs *a)
{
    *a = row->attrs;
    a->trans_a = r->flags & TA;
    a->trans_b = r->flags & TB;
    a->accumulate = accumulate && r->flags & ACC;
    a->inverse = r->flags & TURN_BACK;
    a->blank = r->flags & BLANK;
    if (r->flags & BLANK) a->sequences = f->shapes.input[0].dim[a->dim];
    if (r->flags & FRONT) a->sequences = a->start, a->start = 0;
}

enum status kernel_problem_of_row(struct problem_maker *m, const struct kernel_row *row,
                                  enum dtype t, bool accumulate,
                                  struct kernel_problem *out[PROBLEMS_MAX], int32_t *n,
                                  struct error *err)
{
    struct kernel_problem *f = ARENA_ARRAY(m->arena, struct kernel_problem, 1);
    f->attrs = row->attrs, f->dtype = t;
    f->shapes.n_inputs = read_shapes(row->inputs, f->shapes.input);
    *n = 0;
    TRY(complete(m, f, row->kind, err));
    out[(*n)++] = f;
    if (!row->rules[0].in) return OK;
    const double *dy = numbers(m, t, kernel_problem_output_size(f, 0));
    for (int32_t r = 0; r < RULES_MAX && row->rules[r].in; r++) {
        const struct kernel_rule *rule = &row->rules[r];
        struct kernel_problem *p = ARENA_ARRAY(m->arena, struct kernel_problem, 1);
        attrs_of_rule(row, rule, f, accumulate, &p->attrs);
        p->dtype = t;
        p->shapes.n_inputs = (int32_t)strlen(rule->in);
        for (int32_t i = 0; i < p->shapes.n_inputs; i++)
            wire_input(f, out[*n - 1], dy, rule->in[i], p, i);
        TRY(complete(m, p, rule->kind, err));
        out[(*n)++] = p;
    }
    return OK;
}
