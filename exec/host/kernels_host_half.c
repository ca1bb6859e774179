/* exec/host/kernels_host_half.c - bf16 and fp16 on the host: operands are widened to fp32, the fp32 kernel runs,
 * half-precision outputs are rounded.
 *
 * A host has no faster half-precision arithmetic; a mixed team needs it to compute the same numbers. Every
 * half-precision tensor of the program is rounded once, at the same place as on a GPU, and everything between is
 * fp32. Cost: a pass over each half-precision operand. Rejected: kernels over a third REAL, whose sums would be in
 * half precision; and an error, which would leave a team's hosts idle.
 */
#include "exec/host/kernels_host.h"

#include "core/base/arena.h"
#include "core/graph/half.h"

#include <inttypes.h>

struct narrow { /* an operand of the call and its fp32 copy */
    const void *at;
    float *wide;
    int64_t n;
};

struct widened {
    struct op_call call;
    int32_t n;
    struct narrow narrow[2 * OP_OPERANDS_MAX];
};

static int64_t room_of(const struct shape *s) { return (shape_elements(s) + 15) / 16 * 16; }

static bool input_narrow(const struct op_call *c, int32_t i)
{
    return !op_input_is_int32(c->kind, i) && !(c->wide_input >> i & 1);
}

static bool output_narrow(const struct op_call *c, int32_t i)
{
    return !op_output_is_int32(c->kind, i) && !(c->wide_output >> i & 1);
}

/* Updates: one output more than operands, p in half precision, which no single-type kernel writes. */
static int32_t own_outputs(const struct op_call *c)
{
    return c->shapes->n_outputs - c->attrs->narrows;
}

static int64_t floats_of(const struct op_call *c)
{
    int64_t n = 0;
    for (int32_t i = 0; i < c->shapes->n_inputs; i++)
        if (input_narrow(c, i)) n += room_of(&c->shapes->input[i]);
    for (int32_t i = 0; i < own_outputs(c); i++)
        if (output_narrow(c, i)) n += room_of(&c->shapes->output[i]);
    return n;
}

/* Whether the kernel reads its outputs' previous values. */
static bool reads_outputs(const struct op_call *c)
{
    return c->attrs->accumulate || c->kind == OP_accumulate || c->kind == OP_paste ||
           c->kind == OP_add_to_slice;
}

/* An operand used twice has one copy. */
static float *wide_of(struct widened *w, float **free, const void *at, const struct shape *s,
                      bool read, enum dtype t)
{
    int64_t n = shape_elements(s);
    for (int32_t i = 0; i < w->n; i++)
        if (n && w->narrow[i].at == at && w->narrow[i].n == n) return w->narrow[i].wide;
    float *wide = *free;
    *free += room_of(s);
    w->narrow[w->n++] = (struct narrow){at, wide, n};
    if (read) half_widen(t, at, wide, n);
    return wide;
}

static void widen(struct widened *w, const struct op_call *c, float *free)
{
    w->call = *c;
    w->call.dtype = DTYPE_fp32, w->call.wide_input = w->call.wide_output = 0;
    for (int32_t i = 0; i < c->shapes->n_inputs; i++)
        if (input_narrow(c, i))
            w->call.input[i] = wide_of(w, &free, c->input[i], &c->shapes->input[i], true, c->dtype);
    for (int32_t i = 0; i < own_outputs(c); i++)
        if (output_narrow(c, i))
            w->call.output[i] =
                wide_of(w, &free, c->output[i], &c->shapes->output[i], reads_outputs(c), c->dtype);
}

enum status kernels_host_half(struct host_context *x, const struct op_call *c, struct error *err)
{
    struct widened w = {.n = 0};
    size_t bytes = (size_t)floats_of(c) * sizeof(float);
    if (bytes > x->wide_bytes) {
        arena_reset(x->wide_arena);
        x->wide = arena_alloc(x->wide_arena, bytes, 1);
        x->wide_bytes = bytes;
    }
    widen(&w, c, x->wide);
    TRY(kernels_host_fp32[c->kind](x, &w.call, err));
    for (int32_t i = 0; i < own_outputs(c); i++)
        if (output_narrow(c, i))
            half_narrow(c->dtype, w.call.output[i], c->output[i],
                        shape_elements(&c->shapes->output[i]));
    if (c->attrs->narrows)
        half_narrow(c->dtype, c->output[0], c->output[own_outputs(c)],
                    shape_elements(&c->shapes->output[0]));
    return OK;
}
