/* tests/support/calls.h - calls of host kernels on random operands, for the suites that test them.
 *
 * Operands live in `memory` until the test ends; outputs begin poisoned, or with numbers where the
 * operator adds to them. A suite uses begin and end as its checked fixture.
 */
#ifndef TESTS_SUPPORT_CALLS_H
#define TESTS_SUPPORT_CALLS_H

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "exec/host/kernels_host.h"

#include "tests/support/kernel_rows.h"
#include "tests/support/suites.h"

#include <math.h>

static struct arena *memory;
static struct host_context context;
static uint64_t stream; /* of random numbers; another for every operand */

static inline void calls_begin(void)
{
    memory = arena_new();
    host_context_init(&context);
    stream = 0;
}

static inline void calls_end(void)
{
    host_context_free(&context);
    arena_free(memory);
}

struct made { /* a call and what it points to */
    struct op_call c;
    struct op_attrs attrs;
    struct op_shapes shapes;
    struct optimizer_step step;
};

static inline double calls_get(enum dtype t, const void *p, int64_t i)
{
    return t == DTYPE_fp32 ? (double)((const float *)p)[i] : ((const double *)p)[i];
}

static inline void calls_set(enum dtype t, void *p, int64_t i, double v)
{
    if (t == DTYPE_fp32)
        ((float *)p)[i] = (float)v;
    else
        ((double *)p)[i] = v;
}

static inline void *calls_space(enum dtype t, int64_t n)
{
    return arena_alloc(memory, (size_t)n, (size_t)dtype_bytes(t));
}

/* Normal numbers that fp32 holds exactly, so that both types see the same. */
static inline void *calls_numbers(enum dtype t, int64_t n)
{
    void *p = calls_space(t, n);
    stream++;
    for (int64_t i = 0; i < n; i++)
        calls_set(t, p, i, (double)(float)rng_normal(1, stream, (uint64_t)i));
    return p;
}

/* About a third of them not 0. */
static inline void *calls_gates(enum dtype t, int64_t n)
{
    void *p = calls_numbers(t, n);
    for (int64_t i = 0; i < n; i++)
        if (rng_below(2, stream, (uint64_t)i, 3)) calls_set(t, p, i, 0);
    return p;
}

static inline int32_t *calls_ids(int64_t n, int64_t vocabulary)
{
    int32_t *p = calls_space(DTYPE_int32, n);
    stream++;
    for (int64_t i = 0; i < n; i++)
        p[i] = (int32_t)rng_below(1, stream, (uint64_t)i, (uint64_t)vocabulary);
    return p;
}

static inline void *calls_poisoned(enum dtype t, int64_t n)
{
    void *p = calls_space(t, n);
    if (n) memset(p, 0xff, (size_t)(n * dtype_bytes(t)));
    return p;
}

static inline void *calls_copy(const void *from, int64_t bytes)
{
    void *p = arena_alloc(memory, (size_t)bytes, 1);
    return bytes ? memcpy(p, from, (size_t)bytes) : p;
}

static inline int32_t calls_shapes(const char *s, struct shape *out)
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

static inline int64_t calls_input_size(const struct made *m, int32_t i)
{
    int64_t n = shape_elements(&m->shapes.input[i]);
    return n * (op_input_is_int32(m->c.kind, i) ? 4 : dtype_bytes(m->c.dtype));
}

static inline int64_t calls_output_size(const struct made *m, int32_t i)
{
    return shape_elements(&m->shapes.output[i]);
}

/* Infers, points the call at its parts, and makes outputs: poison, or numbers to add to. */
static inline void calls_finish(struct made *m, enum op_kind kind, enum dtype t)
{
    struct error err = {0};
    m->c.kind = kind;
    m->c.dtype = t;
    m->c.attrs = &m->attrs;
    m->c.shapes = &m->shapes;
    m->c.optimizer = &m->step;
    ck_assert_msg(op_infer(kind, &m->attrs, &m->shapes, &err) == OK, "%s", err.text);
    for (int32_t i = 0; i < m->shapes.n_outputs; i++)
        m->c.output[i] = m->attrs.accumulate ? calls_numbers(t, calls_output_size(m, i))
                                             : calls_poisoned(t, calls_output_size(m, i));
}

static inline struct made *calls_make(enum op_kind kind, const struct op_attrs *attrs,
                                      const char *inputs, enum dtype t)
{
    struct made *m = arena_alloc(memory, 1, sizeof *m);
    m->attrs = *attrs;
    m->shapes.n_inputs = calls_shapes(inputs, m->shapes.input);
    int64_t vocabulary =
        kind == OP_cross_entropy ? op_logits(&m->attrs, &m->shapes.input[0]) : VOCABULARY;
    for (int32_t i = 0; i < m->shapes.n_inputs; i++) {
        int64_t n = shape_elements(&m->shapes.input[i]);
        if (op_input_is_int32(kind, i))
            m->c.input[i] = calls_ids(n, vocabulary);
        else
            m->c.input[i] = i == op_gates_input(kind) ? calls_gates(t, n) : calls_numbers(t, n);
    }
    calls_finish(m, kind, t);
    return m;
}

static inline void calls_run(struct made *m)
{
    struct error err = {0};
    ck_assert_msg(kernels_host_run(&context, &m->c, &err) == OK, "%s", err.text);
}

/* Runs; inputs must stay as they were and every output must be a number afterwards. */
static inline void calls_run_checked(struct made *m)
{
    void *before[OP_OPERANDS_MAX];
    for (int32_t i = 0; i < m->shapes.n_inputs; i++)
        before[i] = calls_copy(m->c.input[i], calls_input_size(m, i));
    calls_run(m);
    for (int32_t i = 0; i < m->shapes.n_inputs; i++)
        ck_assert_msg(!memcmp(before[i], m->c.input[i], (size_t)calls_input_size(m, i)),
                      "%s writes input %d", op_kind_name(m->c.kind), i);
    for (int32_t i = 0; i < m->shapes.n_outputs; i++)
        for (int64_t j = 0; j < calls_output_size(m, i); j++)
            ck_assert_msg(isfinite(calls_get(m->c.dtype, m->c.output[i], j)),
                          "%s leaves output %d element %d", op_kind_name(m->c.kind), i, (int)j);
}

static inline double calls_largest(enum dtype t, const void *p, int64_t n)
{
    double m = 0;
    for (int64_t i = 0; i < n; i++) m = fmax(m, fabs(calls_get(t, p, i)));
    return m;
}

/* Largest difference, relative to the largest value of b (at least 0.01: gradients that cancel to
 * 0). */
static inline double calls_distance(enum dtype ta, const void *a, enum dtype tb, const void *b,
                                    int64_t n)
{
    double d = 0;
    for (int64_t i = 0; i < n; i++) d = fmax(d, fabs(calls_get(ta, a, i) - calls_get(tb, b, i)));
    return d / fmax(calls_largest(tb, b, n), 1e-2);
}
static inline void calls_check_near(const struct made *a, const struct made *b, double tolerance)
{
    for (int32_t o = 0; o < a->shapes.n_outputs; o++) {
        double d = calls_distance(a->c.dtype, a->c.output[o], b->c.dtype, b->c.output[o],
                                  calls_output_size(a, o));
        ck_assert_msg(d <= tolerance, "%s output %d differs by %g", op_kind_name(a->c.kind), o, d);
    }
}

#endif
