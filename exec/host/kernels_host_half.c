/* exec/host/kernels_host_half.c - bf16 and fp16 on the host: operands widened to fp32, the fp32 kernel, what is narrow rounded back.
 *
 * A host has no arithmetic in half precision that were faster, so what it owes a mixed team is the same numbers: every tensor
 * that the program says is narrow is rounded once, where a GPU rounds it, and everything between is fp32. It costs a pass over
 * each narrow operand. Discarded: kernels over a third REAL, whose sums would be in it; and refusing, which leaves a team's hosts
 * idle for want of a conversion.
 */
#include "exec/host/kernels_host.h"

#include "core/base/arena.h"
#include "core/graph/half.h"

#include <inttypes.h>

struct narrow { /* an operand of the call, and what stands for it */
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

static bool output_narrow(const struct op_call *c, int32_t i) { return !(c->wide_output >> i & 1); }

/* Updates: one more output than there are operands, p in half precision, which no kernel over one type writes. */
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

/* Whether outputs count for what they held before. */
static bool reads_outputs(const struct op_call *c)
{
    return c->attrs->accumulate || c->kind == OP_accumulate || c->kind == OP_paste ||
           c->kind == OP_add_to_slice;
}

/* One operand twice has one place. */
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
