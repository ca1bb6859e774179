/* tests/gpu/bench_kernels.c - what the GPU can do, and how far from it kernels are. */
#include "tests/gpu/bench.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/program/program.h"
#include "exec/bench/bench.h"
#include "exec/plugin.h"
#include "exec/worker/worker.h"
#include "traces/quantile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNTED_FLOOR_S 20e-6
enum {
    GROUP = 16
}; /* operators that are measured in turns, so that a drift of clocks shows as spread */

/* --- the GPU --- */

struct timed { /* what is timed, and between which events */
    struct backend *b;
    int32_t begin, end;
    void *to, *from;
    int64_t bytes;
    const struct op_call *call; /* NULL: a copy */
};

static enum status time_once(const struct timed *t, double *out_s, struct error *err)
{
    struct backend *b = t->b;
    int64_t from_ns = 0, to_ns = 0;
    TRY(b->event_record(b, t->begin, STREAM_COMPUTE, err));
    if (t->call)
        TRY(b->run(b, STREAM_COMPUTE, t->call, err));
    else
        TRY(b->copy(b, STREAM_COMPUTE, t->to, t->from, t->bytes, err));
    TRY(b->event_record(b, t->end, STREAM_COMPUTE, err));
    TRY(b->event_wait_here(b, t->end, err));
    TRY(b->event_at(b, t->begin, &from_ns, err));
    TRY(b->event_at(b, t->end, &to_ns, err));
    *out_s = units_s_from_ns(to_ns - from_ns);
    return OK;
}

/* The median of n times, behind as many that nobody counts: clocks come up. */
static enum status time_it(struct arena *a, const struct timed *t, int32_t n, double *out_s,
                           struct error *err)
{
    double *took = ARENA_ARRAY(a, double, (size_t)n);
    for (int32_t i = -n; i < n; i++) TRY(time_once(t, &took[i < 0 ? 0 : i], err));
    *out_s = quantile(took, (size_t)n, 0.5);
    return OK;
}

/* Numbers as they are in a model: what a product draws, and so how fast it is, depends on its operands' bits. */
static enum status fill(struct arena *a, struct backend *b, void *to, int64_t n, struct error *err)
{
    uint16_t *x = ARENA_ARRAY(a, uint16_t, (size_t)n);
    uint32_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * UINT32_C(1664525) + UINT32_C(1013904223);
        x[i] = (uint16_t)((state >> 16 & 0x807f) |
                          (UINT32_C(0x3e80) + (state >> 24 & 0x0180))); /* ±[0.25, 4) */
    }
    return b->upload(b, to, x, n * (int64_t)sizeof *x, err);
}

static enum status time_gpu(struct arena *a, struct backend *b, const struct bench_size *size,
                            struct bench_kernels *out, struct error *err)
{
    const int64_t n = size->product_rows;
    struct op_attrs none = {0};
    struct op_shapes shapes = {.n_inputs = 2, .n_outputs = 1};
    struct timed t = {.b = b, .bytes = size->copy_bytes};
    double s;
    for (int i = 0; i < 2; i++) shapes.input[i] = (struct shape){2, {n, n}};
    shapes.output[0] = shapes.input[0];
    TRY(b->event_make(b, true, &t.begin, err));
    TRY(b->event_make(b, true, &t.end, err));
    TRY(b->allocate(b, size->copy_bytes, &t.from, err));
    TRY(b->allocate(b, size->copy_bytes, &t.to, err));
    TRY(fill(a, b, t.from, 2 * n * n, err));
    char *p = t.from;
    struct op_call c = {.kind = OP_matmul,
                        .dtype = DTYPE_bf16,
                        .attrs = &none,
                        .shapes = &shapes,
                        .input = {p, p + 2 * n * n},
                        .output = {t.to}};
    t.call = &c;
    TRY(time_it(a, &t, size->copies, &s, err));
    out->product_flops = op_flops(OP_matmul, &none, &shapes) / s;
    t.call = NULL;
    TRY(time_it(a, &t, size->copies, &s, err));
    out->copy_Bps = 2 * (double)size->copy_bytes / s;
    b->release(b, t.from);
    b->release(b, t.to);
    return OK;
}

static enum status measure_gpu(struct arena *a, const struct bench_size *size,
                               struct bench_kernels *out, struct error *err)
{
    struct backend b;
    struct backend_device device;
    TRY(plugin_open_backend("cuda", &b, err));
    TRY(b.describe(&b, 0, &device, err));
    TRY(b.open(&b, 0, err));
    enum status st = time_gpu(a, &b, size, out, err);
    b.close(&b);
    snprintf(out->device, sizeof out->device, "%s", device.name);
    snprintf(out->version, sizeof out->version, "%s", device.version);
    return st;
}

/* --- kernels --- */

struct timed_op {
    struct program_op op;
    int32_t times;
    int64_t bytes; /* of its operands */
};

static int64_t operand_bytes(const struct program_op *op)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < op->shapes.n_inputs; i++)
        bytes += shape_elements(&op->shapes.input[i]) * dtype_bytes(op->dtype);
    return bytes;
}

/* Each key once, counted over the program's first stage. */
static int32_t find_ops(const struct program *p, struct timed_op *ops)
{
    const struct program_stage *s = &p->stages[0];
    int32_t n = 0;
    for (int32_t f = 0; f < s->n_procedures; f++)
        for (int32_t i = 0; i < s->procedures[f].n_instrs; i++) {
            const struct instr *x = &s->procedures[f].instrs[i];
            int32_t k = 0;
            if (x->kind != INSTR_COMPUTE || *s->procedures[f].variant) continue;
            const struct program_op *op = &s->ops[x->arg];
            while (k < n && ops[k].op.key != op->key) k++;
            if (k == n && n < BENCH_ROWS_MAX) {
                ops[n] = (struct timed_op){.op = *op, .bytes = operand_bytes(op)};
                program_op_wide(s, &ops[n++].op);
            }
            if (k < n) ops[k].times++;
        }
    return n;
}

static int by_bytes(const void *a, const void *b)
{
    const struct timed_op *x = a, *y = b;
    if (x->bytes != y->bytes) return (x->bytes > y->bytes) - (x->bytes < y->bytes);
    return (x->op.key > y->op.key) - (x->op.key < y->op.key);
}

/* Of the median: clocks are up after the GPU was measured, and the first rounds are not counted. */
static enum status read_row(const struct trace *t, const struct program_op *op, int32_t warm,
                            double *took, struct bench_row *out, struct error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i];
        if (s->kind == SPAN_COMPUTE && s->key == op->key && s->microbatch >= warm)
            took[n++] = units_s_from_ns(s->end_ns - s->begin_ns);
    }
    if (!n) return error_set(err, ERR_INTERNAL, "%s was not measured", op_kind_name(op->kind));
    out->median_s = quantile(took, n, 0.5);
    out->spread = (quantile(took, n, 0.75) - quantile(took, n, 0.25)) / 2 / out->median_s;
    return OK;
}

static void set_floor(const struct bench_kernels *k, const struct program_op *op,
                      struct bench_row *out)
{
    double bytes = (double)op_bytes_read(op->kind, &op->attrs, &op->shapes, op->dtype) +
                   (double)op_bytes_written(op->kind, &op->attrs, &op->shapes, op->dtype);
    double by_bytes = bytes / k->copy_Bps,
           by_flops = op_flops(op->kind, &op->attrs, &op->shapes) / k->product_flops;
    out->by_flops = by_flops > by_bytes;
    out->floor_s = out->by_flops ? by_flops : by_bytes;
    op_key_text(out->key, sizeof out->key, op->kind, &op->attrs, &op->shapes, op->dtype);
}

static enum status measure_group(const struct program *p, const struct timed_op *ops, int32_t n,
                                 const struct bench_size *size, struct arena *a,
                                 struct bench_kernels *out, struct error *err)
{
    struct program bench;
    struct run_result r;
    struct run_options o = {.steps = 1, .keep_trace = true};
    struct program_op *group = ARENA_ARRAY(a, struct program_op, (size_t)n);
    int32_t warm = size->repeats / 2;
    double *took = ARENA_ARRAY(a, double, (size_t)size->repeats);
    for (int32_t i = 0; i < n; i++) group[i] = ops[i].op;
    TRY(bench_ops(a, group, n, &p->devices[0], size->repeats + warm, p->vocabulary, &bench, err));
    TRY(worker_run(a, &bench, &o, &r, err));
    for (int32_t i = 0; i < n; i++) {
        struct bench_row *row = &out->rows[out->n_rows];
        *row = (struct bench_row){.kind = group[i].kind, .times = ops[i].times};
        TRY(read_row(r.trace, &group[i], warm, took, row, err));
        set_floor(out, &group[i], row);
        out->n_rows++;
    }
    return OK;
}

/* In groups of ascending operands: a group's rows stay valid if the time limit ends a later one. The initial values of the
 * operands take longest, 60 s of CPU for the logits of 16,384 tokens and 50,257 words in half precision. */
static enum status measure_rows(struct arena *a, const struct program *p,
                                const struct bench_size *size, struct bench_kernels *out,
                                struct error *err)
{
    struct timed_op *ops = ARENA_ARRAY(a, struct timed_op, BENCH_ROWS_MAX);
    enum status st = OK;
    out->n_ops = find_ops(p, ops);
    qsort(ops, (size_t)out->n_ops, sizeof *ops, by_bytes);
    for (int32_t at = 0; at < out->n_ops && st == OK; at += GROUP) {
        struct arena *run = arena_new();
        int32_t left = out->n_ops - at;
        st = measure_group(p, ops + at, left < GROUP ? left : GROUP, size, run, out, err);
        arena_free(run);
    }
    return st;
}

enum status bench_measure_kernels(struct arena *a, const char *program,
                                  const struct bench_size *size, struct bench_kernels *out,
                                  struct error *err)
{
    struct program p;
    TRY(program_read(a, program, &p, err));
    TRY(measure_gpu(a, size, out, err));
    return measure_rows(a, &p, size, out, err);
}

static int by_time(const void *a, const void *b)
{
    const struct bench_row *x = a, *y = b;
    double s = x->times * x->median_s, t = y->times * y->median_s;
    return (s < t) - (s > t);
}

void bench_sort_rows(struct bench_kernels *k)
{
    qsort(k->rows, (size_t)k->n_rows, sizeof *k->rows, by_time);
}

double bench_least_share(const struct bench_kernels *k)
{
    double least = NAN;
    for (int32_t i = 0; i < k->n_rows; i++) {
        const struct bench_row *r = &k->rows[i];
        double share = r->floor_s / r->median_s;
        if (!r->by_flops && r->floor_s > COUNTED_FLOOR_S && !(share >= least)) least = share;
    }
    return least;
}
