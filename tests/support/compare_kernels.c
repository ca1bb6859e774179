#include "tests/support/compare_kernels.h"

#include "core/base/rng.h"
#include "tests/support/narrow.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

enum { GUARD = 64, SHIFTS = 2 };

void kernel_comparison_begin(struct kernel_comparison *c, struct backend *device, struct arena *arena,
                      struct host_context *host, uint64_t seed)
{
    *c = (struct kernel_comparison){.device = device,
                             .any_address = true,
                             .maker = {.arena = arena, .host = host, .seed = seed}};
}

static bool is_norm_grad(enum op_kind kind)
{
    return kind == OP_layer_norm_grad || kind == OP_layer_norm_grad_add ||
           kind == OP_rms_norm_grad || kind == OP_group_norm_grad ||
           kind == OP_group_norm_weight_grad; /* of few outputs, whose terms cancel */
}

/* fp64: some hundred roundings of 2^-53. fp32: they add up like a walk, and exp, tanh and erf err by 2 in the last place of 24
 * bits. A narrow result is rounded once, by at most 2^-8 (bf16) and 2^-11 (fp16) of each element; attention rounds its
 * probabilities too, which go through the same units as its operands. A norm's gradient is a difference of near numbers, times
 * 1/std. */
double kernel_comparison_limit(enum op_kind kind, enum dtype t, enum dtype out)
{
    bool gelu = kind == OP_linear_gelu || kind == OP_matmul_gelu_grad; /* maybe apart, and sums of that */
    bool twice = kind == OP_attention || kind == OP_attention_grad || gelu;
    double near = is_norm_grad(kind) ? 10 : 1;
    if (t == DTYPE_fp64) return near * 1e-13;
    if (out == DTYPE_fp32) return twice && !gelu && t != DTYPE_fp32 ? 1e-3 : near * 1e-6;
    return out == DTYPE_bf16 ? (twice ? 1e-2 : 4e-3) : (twice ? 2e-3 : 5e-4);
}

static const char *call_text(char buffer[200], const struct kernel_problem *p)
{
    return op_key_text(buffer, 200, p->call.kind, &p->attrs, &p->shapes, p->dtype);
}

#define WRONG(p, ...) wrong(p, err, __VA_ARGS__)
PRINTF_LIKE(3, 4)
static enum status wrong(const struct kernel_problem *p, struct error *err, const char *fmt, ...)
{
    char key[200], text[240];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return error_set(err, ERR_TOLERANCE, "%s (wide %" PRIx32 " -> %" PRIx32 "): %s",
                     call_text(key, p), p->wide_input, p->wide_output, text);
}

/* --- one run --- */

struct piece {                   /* an operand on the device */
    unsigned char *host, *after; /* what it began with, guard included, and what was found */
    unsigned char *device;
    int64_t bytes, shift;
};

struct run_of_call {
    struct piece in[OP_OPERANDS_MAX], out[OP_OPERANDS_MAX];
};

static enum status place(struct kernel_comparison *c, struct piece *p, enum dtype t, int64_t n,
                         const double *values, const int32_t *ids, int32_t shift, struct error *err)
{
    struct arena *a = c->maker.arena;
    p->bytes = n * dtype_bytes(t), p->shift = shift * dtype_bytes(t);
    int64_t all = p->shift + p->bytes + GUARD;
    p->host = ARENA_ARRAY(a, unsigned char, (size_t)all);
    p->after = ARENA_ARRAY(a, unsigned char, (size_t)all);
    memset(p->host, 0xff, (size_t)all);
    unsigned char *at = p->host + p->shift;
    if (ids && n) memcpy(at, ids, (size_t)p->bytes);
    for (int64_t i = 0; values && i < n; i++) {
        double element[1]; /* aligned, which `at` need not be */
        narrow_set(t, element, 0, values[i]);
        memcpy(at + i * dtype_bytes(t), element, (size_t)dtype_bytes(t));
    }
    void *device;
    TRY(c->device->allocate(c->device, all, &device, err));
    p->device = device;
    return c->device->upload(c->device, device, p->host, all, err);
}

static enum status place_operands(struct kernel_comparison *c, const struct kernel_problem *p,
                                  struct run_of_call *r, int32_t shift, struct error *err)
{
    for (int32_t i = 0; i < p->shapes.n_outputs; i++)
        TRY(place(c, &r->out[i], kernel_problem_output_type(p, i), kernel_problem_output_size(p, i), p->begin[i],
                  NULL, shift, err));
    for (int32_t i = 0; i < p->shapes.n_inputs && !p->in_place; i++) {
        bool ids = op_input_is_int32(p->call.kind, i);
        TRY(place(c, &r->in[i], kernel_problem_input_type(p, i), kernel_problem_input_size(p, i),
                  ids ? NULL : p->call.input[i], ids ? p->call.input[i] : NULL, shift, err));
    }
    return OK;
}

static enum status run_call(struct kernel_comparison *c, const struct kernel_problem *p,
                            struct run_of_call *r, struct error *err)
{
    struct backend *b = c->device;
    struct op_call call = p->call;
    call.dtype = p->dtype;
    call.wide_input = p->wide_input, call.wide_output = p->wide_output;
    for (int32_t i = 0; i < p->shapes.n_outputs; i++)
        call.output[i] = r->out[i].device + r->out[i].shift;
    for (int32_t i = 0; i < p->shapes.n_inputs; i++)
        call.input[i] = p->in_place ? call.output[i] : r->in[i].device + r->in[i].shift;
    TRY(b->run(b, STREAM_COMPUTE, &call, err));
    TRY(b->finish(b, err));
    struct piece *pieces[2] = {r->in, r->out};
    for (int side = 0; side < 2; side++)
        for (int32_t i = 0; i < OP_OPERANDS_MAX; i++) {
            struct piece *q = &pieces[side][i];
            if (q->device)
                TRY(b->download(b, q->after, q->device, q->shift + q->bytes + GUARD, err));
        }
    return OK;
}

static enum status run_at(struct kernel_comparison *c, const struct kernel_problem *p,
                          struct run_of_call *r, int32_t shift, struct error *err)
{
    *r = (struct run_of_call){0};
    enum status s = place_operands(c, p, r, shift, err);
    if (s == OK) s = run_call(c, p, r, err);
    for (int32_t i = 0; i < OP_OPERANDS_MAX; i++) {
        c->device->release(c->device, r->in[i].device);
        c->device->release(c->device, r->out[i].device);
    }
    return s;
}

/* --- what came of it --- */

static bool same(const struct piece *p, int64_t from, int64_t n)
{
    return !n || !memcmp(p->host + from, p->after + from, (size_t)n);
}

static enum status check_untouched(const struct kernel_problem *p, const struct run_of_call *r,
                                   struct error *err)
{
    for (int32_t i = 0; i < OP_OPERANDS_MAX; i++) {
        const struct piece *in = &r->in[i], *out = &r->out[i];
        if (in->device && !same(in, 0, in->shift + in->bytes + GUARD))
            return WRONG(p, "writes input %d", i);
        if (out->device && !same(out, 0, out->shift))
            return WRONG(p, "writes in front of output %d", i);
        if (out->device && !same(out, out->shift + out->bytes, GUARD))
            return WRONG(p, "writes behind output %d", i);
    }
    return OK;
}

static double element(const struct piece *p, enum dtype t, int64_t i)
{
    double one[1];
    memcpy(one, p->after + p->shift + i * dtype_bytes(t), (size_t)dtype_bytes(t));
    return narrow_get(t, one, 0);
}

/* Smallest magnitude of an output element that an error is related to. A gradient through a normalisation or a softmax is a
 * difference of two numbers of order 1: for a row of one or two elements it cancels, exactly or nearly, and what remains is the
 * rounding of those two numbers. It depends on the order of the sums, so on the processor's BLAS kernel. */
static double floor_of(enum op_kind kind)
{
    if (is_norm_grad(kind)) return 0.2;
    return kind == OP_attention_grad ? 0.05 : 1e-2;
}

static enum status check_output(struct kernel_comparison *c, const struct kernel_problem *p,
                                const struct piece *piece, int32_t o, struct error *err)
{
    enum dtype t = kernel_problem_output_type(p, o);
    int64_t n = kernel_problem_output_size(p, o);
    const double *want = p->call.output[o];
    double off = 0, all = 0, limit = kernel_comparison_limit(p->call.kind, p->dtype, t);
    for (int64_t i = 0; i < n; i++) {
        double got = element(piece, t, i);
        if (got == want[i]) {
            all += isfinite(got) ? got * got : 0;
            continue;
        }
        if (!isfinite(got) || !isfinite(want[i]))
            return WRONG(p, "output %d [%" PRId64 "] is %g, not %g", o, i, got, want[i]);
        off += (got - want[i]) * (got - want[i]), all += want[i] * want[i];
    }
    double distance =
        sqrt(off) / fmax(sqrt(all), floor_of(p->call.kind) * sqrt((double)n) + 1e-300);
    if (!(distance <= limit))
        return WRONG(p, "output %d is off by %.3g, limit %.3g", o, distance, limit);
    if (distance / limit > c->worst[t] || !*c->worst_call[t]) {
        c->worst[t] = distance / limit;
        call_text(c->worst_call[t], p);
    }
    return OK;
}

static enum status check_same(const struct kernel_problem *p, const struct run_of_call *a,
                              const struct run_of_call *b, const char *when, struct error *err)
{
    for (int32_t o = 0; o < p->shapes.n_outputs; o++) {
        const struct piece *x = &a->out[o], *y = &b->out[o];
        if (x->bytes && memcmp(x->after + x->shift, y->after + y->shift, (size_t)x->bytes))
            return WRONG(p, "output %d has other bytes %s", o, when);
    }
    return OK;
}

enum status kernel_comparison_problem(struct kernel_comparison *c, struct kernel_problem *p, struct error *err)
{
    struct run_of_call first, again;
    char key[200];
    if (run_at(c, p, &first, 0, err) != OK)
        return error_wrap(err, err->code, "%s", call_text(key, p));
    TRY(check_untouched(p, &first, err));
    for (int32_t o = 0; o < p->shapes.n_outputs; o++) {
        TRY(check_output(c, p, &first.out[o], o, err));
        c->digest = rng_hash_bytes(c->digest, first.out[o].after + first.out[o].shift,
                               (size_t)first.out[o].bytes);
    }
    for (int32_t shift = 0; shift < (c->any_address ? SHIFTS : 1); shift++) {
        TRY(run_at(c, p, &again, shift, err));
        TRY(check_untouched(p, &again, err));
        TRY(check_same(p, &first, &again, shift ? "at another address" : "the second time", err));
    }
    c->n_calls++;
    return OK;
}

enum status kernel_comparison_row(struct kernel_comparison *c, const struct kernel_row *row, enum dtype t,
                        bool accumulate, struct error *err)
{
    struct kernel_problem *p[PROBLEMS_MAX];
    int32_t n;
    TRY(kernel_problem_of_row(&c->maker, row, t, accumulate, p, &n, err));
    for (int32_t i = 0; i < n; i++) TRY(kernel_comparison_problem(c, p[i], err));
    return OK;
}
