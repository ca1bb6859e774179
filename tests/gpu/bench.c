/* tests/gpu/bench.c - `make gpu-bench`: how far the card's kernels are from what it can do, and GPT-2 beside PyTorch.
 *
 * usage: gpu-bench FOLDER TORCH
 * FOLDER holds gpt2-124m.program and gpt2-350m.program (`make gpu-files`), TORCH the lines of tests/gpu/torch_gpt2.py.
 * Floors: bytes that an operator must move (core/op.h) ÷ the bandwidth of a large copy measured here, or its FLOPs ÷ the rate of
 * a large product in the same numbers measured here, whichever is longer. A kernel's share is floor ÷ its median.
 * Training: 20 steps without a trace and 20 with one. Figures, not verdicts: ends with 0 whatever they are.
 */
#include "exec/bench.h"
#include "core/arena.h"
#include "core/file.h"
#include "core/program.h"
#include "exec/launch_local.h"
#include "exec/plugin.h"
#include "exec/worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT_S = 110, REPEATS = 15, STEPS = 20, ROWS = 24, KEYS_MOST = 256, COPIES = 20 };
#define COPY_BYTES (INT64_C(1) << 30)
#define PRODUCT_ROWS 8192

struct card { /* what it can do, measured */
    double copy_Bps, product_flops;
};

struct row { /* operators of one key */
    struct program_op op;
    int32_t times; /* in the program's procedures, a step of one microbatch */
    double median_s, floor_s;
    bool by_flops;
};

static int by_time(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    double s = x->times * x->median_s, t = y->times * y->median_s;
    return (s < t) - (s > t);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* --- the card --- */

/* Median seconds of `what` asked COPIES times of the compute stream. */
#define TIME_IT(out, what)                                                                         \
    do {                                                                                           \
        double took_[COPIES];                                                                      \
        for (int i_ = 0; i_ < COPIES; i_++) {                                                      \
            int64_t from_ = 0, to_ = 0;                                                            \
            TRY(b->event_record(b, begin, STREAM_COMPUTE, err));                                   \
            TRY(what);                                                                             \
            TRY(b->event_record(b, end, STREAM_COMPUTE, err));                                     \
            TRY(b->event_wait_here(b, end, err));                                                  \
            TRY(b->event_at(b, begin, &from_, err));                                               \
            TRY(b->event_at(b, end, &to_, err));                                                   \
            took_[i_] = (double)(to_ - from_) * 1e-9;                                              \
        }                                                                                          \
        qsort(took_, COPIES, sizeof *took_, by_value);                                             \
        *(out) = took_[COPIES / 2];                                                                \
    } while (0)

static enum status measure_card(struct backend *b, struct card *out, struct error *err)
{
    int32_t begin, end;
    void *x, *y;
    double s;
    const int64_t n = PRODUCT_ROWS;
    struct op_attrs none = {0};
    struct op_shapes shapes = {.n_inputs = 2, .n_outputs = 1};
    for (int i = 0; i < 2; i++) shapes.input[i] = (struct shape){2, {n, n}};
    shapes.output[0] = shapes.input[0];
    TRY(b->event_make(b, true, &begin, err));
    TRY(b->event_make(b, true, &end, err));
    TRY(b->allocate(b, COPY_BYTES, &x, err));
    TRY(b->allocate(b, COPY_BYTES, &y, err));
    TIME_IT(&s, b->copy(b, STREAM_COMPUTE, y, x, COPY_BYTES, err));
    out->copy_Bps = 2 * (double)COPY_BYTES / s;
    char *p = x;
    struct op_call c = {.kind = OP_matmul,
                        .dtype = DTYPE_bf16,
                        .attrs = &none,
                        .shapes = &shapes,
                        .input = {p, p + 2 * n * n},
                        .output = {y}};
    TIME_IT(&s, b->run(b, STREAM_COMPUTE, &c, err));
    out->product_flops = op_flops(OP_matmul, &none, &shapes) / s;
    b->release(b, x);
    b->release(b, y);
    return OK;
}

/* --- kernels --- */

/* Each key once, counted over the program's first stage. */
static int32_t find_rows(const struct program *p, struct row *rows)
{
    const struct program_stage *s = &p->stages[0];
    int32_t n = 0;
    for (int32_t f = 0; f < s->n_procedures; f++)
        for (int32_t i = 0; i < s->procedures[f].n_instrs; i++) {
            const struct instr *x = &s->procedures[f].instrs[i];
            int32_t k = 0;
            if (x->kind != INSTR_COMPUTE || *s->procedures[f].variant) continue;
            const struct program_op *op = &s->ops[x->arg];
            while (k < n && rows[k].op.key != op->key) k++;
            if (k == n && n < KEYS_MOST) rows[n++] = (struct row){.op = *op};
            if (k < n) rows[k].times++;
        }
    return n;
}

static enum status measure_rows(struct arena *a, const struct program *p, struct row *rows,
                                int32_t n, struct error *err)
{
    struct program bench;
    struct run_result r;
    struct run_options o = {.steps = 1, .keep_trace = true};
    struct program_op *ops = ARENA_ARRAY(a, struct program_op, (size_t)n);
    for (int32_t i = 0; i < n; i++) ops[i] = rows[i].op;
    TRY(bench_ops(a, ops, n, &p->devices[0], REPEATS, p->vocabulary, &bench, err));
    TRY(worker_run(a, &bench, &o, &r, err));
    for (int32_t i = 0; i < n; i++) {
        double took[REPEATS];
        int32_t k = 0;
        for (size_t j = 0; j < r.trace->n_spans && k < REPEATS; j++) {
            const struct span *s = &r.trace->spans[j];
            if (s->kind == SPAN_COMPUTE && s->key == ops[i].key)
                took[k++] = (double)(s->end_ns - s->begin_ns) * 1e-9;
        }
        if (!k)
            return error_set(err, ERR_INTERNAL, "%s was not measured", op_kind_name(ops[i].kind));
        qsort(took, (size_t)k, sizeof *took, by_value);
        rows[i].median_s = took[k / 2];
    }
    return OK;
}

static void print_rows(struct row *rows, int32_t n, const struct card *card)
{
    double least = 1;
    char key[200];
    for (int32_t i = 0; i < n; i++) {
        const struct program_op *op = &rows[i].op;
        double bytes = (double)op_bytes_read(op->kind, &op->attrs, &op->shapes, op->dtype) +
                       (double)op_bytes_written(op->kind, &op->attrs, &op->shapes, op->dtype);
        double by_bytes = bytes / card->copy_Bps,
               by_flops = op_flops(op->kind, &op->attrs, &op->shapes) / card->product_flops;
        rows[i].by_flops = by_flops > by_bytes;
        rows[i].floor_s = rows[i].by_flops ? by_flops : by_bytes;
    }
    qsort(rows, (size_t)n, sizeof *rows, by_time);
    printf("%-72s %5s %9s %9s %6s  %s\n", "operator", "times", "us", "floor us", "share",
           "bound by");
    for (int32_t i = 0; i < n; i++) {
        const struct program_op *op = &rows[i].op;
        double share = rows[i].floor_s / rows[i].median_s;
        /* what fits in caches is not bound by memory */
        if (!rows[i].by_flops && rows[i].floor_s > 20e-6 && share < least) least = share;
        if (i < ROWS)
            printf("%-72.72s %5" PRId32 " %9.1f %9.1f %5.0f %%  %s\n",
                   op_key_text(key, sizeof key, op->kind, &op->attrs, &op->shapes, op->dtype),
                   rows[i].times, rows[i].median_s * 1e6, rows[i].floor_s * 1e6, share * 100,
                   rows[i].by_flops ? "products" : "memory");
    }
    printf("least share of the copy's bandwidth among operators of 20 us and more: %.0f %%\n",
           least * 100);
}

struct task {
    const char *folder, *name, *torch;
};

static enum status bench_kernels(struct arena *a, const struct task *j, struct error *err)
{
    struct program p;
    struct backend b;
    struct card card;
    struct backend_device device;
    struct row *rows = ARENA_ARRAY(a, struct row, KEYS_MOST);
    TRY(program_read(a, arena_printf(a, "%s/%s.program", j->folder, j->name), &p, err));
    TRY(plugin_open_backend("cuda", &b, err));
    TRY(b.describe(&b, 0, &device, err));
    TRY(b.open(&b, 0, err));
    enum status st = measure_card(&b, &card, err);
    b.close(&b);
    TRY(st);
    printf("%s (%s): copy %.0f GB/s, product bf16 %.0f TFLOP/s\n", device.name, device.version,
           card.copy_Bps * 1e-9, card.product_flops * 1e-12);
    int32_t n = find_rows(&p, rows);
    TRY(measure_rows(a, &p, rows, n, err));
    print_rows(rows, n, &card);
    return OK;
}

/* --- training --- */

static enum status train(struct arena *a, const struct program *p, bool trace, double *rate,
                         double *loss, struct error *err)
{
    struct run_result r;
    struct run_options o = {.steps = STEPS, .keep_trace = trace};
    TRY(worker_run(a, p, &o, &r, err));
    *rate = r.tokens_per_s, *loss = r.losses[STEPS - 1];
    return OK;
}

/* tokens/s of a line "torch MODE SIZE RATE …"; 0: there is none. */
static double torch_rate(struct arena *a, const char *path, const char *mode, const char *size)
{
    char *text, *line;
    size_t n;
    if (file_read(a, path, 1 << 16, &text, &n, NULL) != OK) return 0;
    const char *head = arena_printf(a, "torch %s %s ", mode, size);
    while ((line = strsep(&text, "\n")))
        if (!strncmp(line, head, strlen(head))) return strtod(line + strlen(head), NULL);
    return 0;
}

static enum status bench_training(struct arena *a, const struct task *j, struct error *err)
{
    static const char *const modes[] = {"eager", "compile"};
    struct program p;
    double rate, loss, traced, same;
    TRY(program_read(a, arena_printf(a, "%s/%s.program", j->folder, j->name), &p, err));
    TRY(train(a, &p, false, &rate, &loss, err));
    TRY(train(a, &p, true, &traced, &same, err));
    printf("%s: musher %.0f tokens/s (loss %.4f), with a trace %.0f (%+.1f %%)", j->name, rate,
           loss, traced, (rate / traced - 1) * 100);
    for (int i = 0; i < 2; i++) {
        double other = torch_rate(a, j->torch, modes[i], strchr(j->name, '-') + 1);
        if (other > 0) printf(", PyTorch %s %.0f (%.2f times)", modes[i], other, rate / other);
    }
    putchar('\n');
    return OK;
}

static int report(struct arena *a, enum status st, const struct error *err, const char *what)
{
    if (st != OK) printf("gpu-bench: %s: %s\n", what, err->text);
    fflush(stdout);
    arena_free(a);
    return (int)st;
}

static int kernels_rank(void *owner, int32_t rank)
{
    struct arena *a = arena_new();
    struct error err = {0};
    (void)rank;
    return report(a, bench_kernels(a, owner, &err), &err, "kernels");
}

static int training_rank(void *owner, int32_t rank)
{
    struct arena *a = arena_new();
    struct error err = {0};
    const struct task *j = owner;
    (void)rank;
    return report(a, bench_training(a, j, &err), &err, j->name);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"gpt2-124m", "gpt2-350m"};
    struct error err = {0};
    if (argc != 3) {
        fprintf(stderr, "usage: gpu-bench FOLDER TORCH\n");
        return ERR_USAGE;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct task j = {argv[1], names[0], argv[2]};
    if (launch_local(1, kernels_rank, &j, LIMIT_S, &err) != OK) printf("kernels: %s\n", err.text);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        j.name = names[i];
        if (launch_local(1, training_rank, &j, LIMIT_S, &err) != OK)
            printf("%s: %s\n", j.name, err.text);
    }
    return 0;
}
