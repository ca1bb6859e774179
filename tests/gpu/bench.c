/* tests/gpu/bench.c - `make gpu-bench`: how far the GPU's kernels are from what it can do, and GPT-2 beside PyTorch.
 *
 * usage: gpu-bench FOLDER TORCH JSON
 * FOLDER holds `trained`, lines "NAME ROUNDS", and NAME.program of each (`make gpu-files`); the first one's operators are the
 * kernels that are measured. TORCH has the lines of tests/gpu/torch_gpt2.py; JSON is written: all that is printed, and every
 * operator.
 * Training: steps without a trace and steps with one, in turn, ROUNDS times; medians of both, and what tracing costs. Figures,
 * not verdicts: ends with 0 whatever they are, with 1 where something could not be measured. Last of all, in ranks of their own, as
 * many steps with kernels in the trace (CUPTI, where it is; nothing fails where it is not): what that costs, and JSON.NAME.trace,
 * of which `musher show` tells what runs in operators.
 * Each part is a forked rank of its own (a context of CUDA does not survive a fork) with a time limit; all have GPU_SECONDS.
 */
#include "tests/gpu/bench.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/document/json.h"
#include "core/program/program.h"
#include "exec/comm/launch_local.h"
#include "exec/worker/worker.h"
#include "tests/gpu/budget.h"
#include "traces/quantile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALL_S = 200, KERNELS_S = 70, TRAINING_S = 120, BELOW_S = 25, LIST_MAX = 1 << 16, ROWS_SHOWN = 24 };

struct task {
    const char *folder;
    struct bench_results *results;
    struct bench_trained *trained; /* this one; NULL: kernels */
    const char *below;             /* once more, with kernels in a trace of this name; NULL: rounds */
};

static const char *const modes[] = {"eager", "compile"};
enum { MODES = sizeof modes / sizeof *modes };

struct torch { /* tokens/s and most memory of a mode; 0: not known */
    double rate, bytes;
};

/* --- measuring, in ranks --- */

static enum status train(struct arena *a, const struct program *p, int32_t steps, bool trace,
                         struct bench_trained *out, double *rate, struct error *err)
{
    struct run_result r;
    struct run_options o = {.steps = steps, .keep_trace = trace};
    TRY(worker_run(a, p, &o, &r, err));
    *rate = r.tokens_per_s, out->loss = r.losses[steps - 1];
    return OK;
}

/* Its own context is the first that CUPTI sees of this process. */
static enum status measure_below(struct arena *a, const struct task *j, struct error *err)
{
    struct program p;
    struct run_result r;
    struct run_options o = {
        .steps = j->results->size.steps, .keep_trace = true, .keep_kernels = true};
    TRY(program_read(a, arena_printf(a, "%s/%s.program", j->folder, j->trained->name), &p, err));
    TRY(worker_run(a, &p, &o, &r, err));
    TRY(trace_write(r.trace, j->below, err));
    j->trained->kernels = r.tokens_per_s;
    return OK;
}

static enum status measure_training(struct arena *a, const struct task *j, struct error *err)
{
    struct bench_trained *x = j->trained;
    struct program p;
    TRY(program_read(a, arena_printf(a, "%s/%s.program", j->folder, x->name), &p, err));
    x->memory_bytes = program_lane_bytes(&p, 0);
    for (int32_t i = 0; i < x->rounds; i++) {
        struct arena *run = arena_new();
        enum status st = train(run, &p, j->results->size.steps, i % 2, x,
                               i % 2 ? &x->traced[i] : &x->plain[i], err);
        if (st == OK)
            st = train(run, &p, j->results->size.steps, !(i % 2), x,
                       i % 2 ? &x->plain[i] : &x->traced[i], err);
        arena_free(run);
        TRY(st);
        x->done = i + 1;
    }
    return OK;
}

static int measuring_rank(void *owner, int32_t rank)
{
    struct arena *a = arena_new();
    struct error err = {0};
    const struct task *j = owner;
    struct bench_results *r = j->results;
    (void)rank;
    enum status st = j->below     ? measure_below(a, j, &err)
                     : j->trained ? measure_training(a, j, &err)
                                  : bench_measure_kernels(
                               a, arena_printf(a, "%s/%s.program", j->folder, r->trained[0].name),
                               &r->size, &r->kernels, &err);
    if (st != OK && j->below)
        snprintf(j->trained->why_not, sizeof j->trained->why_not, "%.150s", err.text);
    else if (st != OK)
        printf("gpu-bench: %s\n", err.text);
    fflush(stdout);
    arena_free(a);
    return (int)st;
}

static bool measure(struct task j, const struct budget *budget, double seconds)
{
    const char *what = j.trained ? j.trained->name : "kernels";
    double limit = budget_part(budget, seconds);
    struct error err = {0};
    enum status st = limit > 0 ? launch_local(1, measuring_rank, &j, limit, &err)
                               : error_set(&err, ERR_RESOURCE, "no time is left");
    if (st != OK) printf("gpu-bench: %s: %s\n", what, err.text);
    return st == OK;
}

/* Where it has the time, and never at the cost of what is measured else. */
static void look_below(struct arena *a, const char *folder, struct bench_results *r,
                       const struct budget *budget, const char *json)
{
    for (int32_t i = 0; i < r->n_trained; i++) {
        struct bench_trained *x = &r->trained[i];
        struct task j = {folder, r, x, arena_printf(a, "%s.%s.trace", json, x->name)};
        double limit = x->done ? budget_part(budget, BELOW_S) : 0;
        struct error err = {0};
        if (!(limit > 0)) continue;
        if (launch_local(1, measuring_rank, &j, limit, &err) != OK && !x->why_not[0])
            snprintf(x->why_not, sizeof x->why_not, "%.150s", err.text);
    }
}

/* --- what was found --- */

/* Of a line "torch MODE SIZE RATE LOSS VERSION BYTES"; SIZE is what stands behind the dash of a name. */
static struct torch torch_of(struct arena *a, const char *text, const char *mode, const char *name)
{
    struct torch x = {0, 0};
    const char *size = strchr(name, '-');
    const char *head = arena_printf(a, "torch %s %s ", mode, size ? size + 1 : name);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, head, strlen(head)) != 0) continue;
        if (sscanf(line + strlen(head), "%lf %*s %*s %lf", &x.rate, &x.bytes) < 1) x.rate = 0;
    }
    return x;
}

static double median_of(const double *values, int32_t n)
{
    double copy[BENCH_ROUNDS_MAX];
    memcpy(copy, values, (size_t)n * sizeof *copy);
    return quantile_median_double(copy, (size_t)n);
}

/* What a step takes longer with a trace, of what it takes without: the median over rounds. */
static double overhead_of(const struct bench_trained *x)
{
    double each[BENCH_ROUNDS_MAX];
    for (int32_t i = 0; i < x->done; i++) each[i] = x->plain[i] / x->traced[i] - 1;
    return quantile_median_double(each, (size_t)x->done);
}

static void print_kernels(const struct bench_kernels *k)
{
    printf("%-72s %5s %9s %7s %9s %6s  %s\n", "operator", "times", "us", "spread", "floor us",
           "share", "bound by");
    for (int32_t i = 0; i < k->n_rows && i < ROWS_SHOWN; i++) {
        const struct bench_row *r = &k->rows[i];
        printf("%-72.72s %5" PRId32 " %9.1f %5.1f %% %9.1f %4.0f %%  %s\n", r->key, r->times,
               r->median_s * 1e6, 100 * r->spread, r->floor_s * 1e6, 100 * r->floor_s / r->median_s,
               r->by_flops ? "products" : "memory");
    }
}

static void print_trained(struct arena *a, const struct bench_trained *x, const char *torch)
{
    double rate = median_of(x->plain, x->done);
    printf("%-11s %9.0f tokens/s  trace %+5.2f %%", x->name, rate, 100 * overhead_of(x));
    if (x->kernels > 0) printf("  with kernels %+5.2f %%", 100 * (rate / x->kernels - 1));
    printf("  %6.2f GB  loss %.4f", (double)x->memory_bytes * 1e-9, x->loss);
    for (int i = 0; i < MODES; i++) {
        struct torch t = torch_of(a, torch, modes[i], x->name);
        if (t.rate > 0)
            printf("  PyTorch %s %.0f (%.2f times, %.2f GB)", modes[i], t.rate, rate / t.rate,
                   t.bytes * 1e-9);
    }
    putchar('\n');
}

static void print_all(struct arena *a, const struct bench_results *r, const char *torch)
{
    const struct bench_kernels *k = &r->kernels;
    if (k->copy_Bps > 0) {
        print_kernels(k);
        if (k->n_rows < k->n_ops)
            printf("%" PRId32 " of %" PRId32 " operators were measured\n", k->n_rows, k->n_ops);
        printf("\n%s (%s)\n", k->device, k->version);
        printf("copy %.0f GB/s, product bf16 %.0f TFLOP/s; least share of the copy's bandwidth "
               "among operators of 20 us and more: %.0f %%\n",
               k->copy_Bps * 1e-9, k->product_flops * 1e-12, 100 * bench_least_share(k));
    }
    for (int32_t i = 0; i < r->n_trained; i++)
        if (r->trained[i].done) print_trained(a, &r->trained[i], torch);
    for (int32_t i = 0; i < r->n_trained; i++)
        if (r->trained[i].why_not[0])
            printf("%s without kernels: %s\n", r->trained[i].name, r->trained[i].why_not);
}

static void put_kernels(struct json *j, const struct bench_kernels *k)
{
    json_put_text(j, "device", k->device);
    json_put_text(j, "version", k->version);
    json_put_double(j, "copy_Bps", k->copy_Bps);
    json_put_double(j, "product_flops", k->product_flops);
    json_put_double(j, "least_share", bench_least_share(k));
    json_put_int(j, "operators_of_program", k->n_ops);
    json_put_list(j, "operators");
    for (int32_t i = 0; i < k->n_rows; i++) {
        const struct bench_row *r = &k->rows[i];
        json_put_object_line(j, NULL);
        json_put_text(j, "operator", r->key);
        json_put_int(j, "times", r->times);
        json_put_double(j, "median_s", r->median_s);
        json_put_double(j, "spread", r->spread);
        json_put_double(j, "floor_s", r->floor_s);
        json_put_text(j, "bound_by", r->by_flops ? "products" : "memory");
        json_close(j);
    }
    json_close(j);
}

static void put_rates(struct json *j, const char *key, const double *rates, int32_t n)
{
    json_put_list_line(j, key);
    for (int32_t i = 0; i < n; i++) json_put_double(j, NULL, rates[i]);
    json_close(j);
}

static void put_trained(struct json *j, struct arena *a, const struct bench_trained *x,
                        const char *torch)
{
    json_put_object(j, NULL);
    json_put_text(j, "model", x->name);
    json_put_double(j, "tokens_per_s", median_of(x->plain, x->done));
    json_put_double(j, "trace_overhead", overhead_of(x));
    if (x->kernels > 0)
        json_put_double(j, "kernels_overhead", median_of(x->plain, x->done) / x->kernels - 1);
    put_rates(j, "plain", x->plain, x->done);
    put_rates(j, "traced", x->traced, x->done);
    json_put_int(j, "memory_bytes", x->memory_bytes);
    json_put_double(j, "loss", x->loss);
    for (int i = 0; i < MODES; i++) {
        struct torch t = torch_of(a, torch, modes[i], x->name);
        if (!(t.rate > 0)) continue;
        json_put_object_line(j, arena_printf(a, "torch_%s", modes[i]));
        json_put_double(j, "tokens_per_s", t.rate);
        json_put_double(j, "memory_bytes", t.bytes);
        json_close(j);
    }
    json_close(j);
}

static enum status write_json(struct arena *a, const struct bench_results *r, const char *torch,
                              const char *path, struct error *err)
{
    struct file f = {0};
    struct json j;
    TRY(file_open(&f, path, err));
    json_begin(&j, f.stream, JSON_INDENTED);
    json_put_object(&j, NULL);
    json_put_int(&j, "schema", 1);
    json_put_bool(&j, "small", r->size.steps < 20);
    if (r->kernels.copy_Bps > 0) put_kernels(&j, &r->kernels);
    json_put_list(&j, "trained");
    for (int32_t i = 0; i < r->n_trained; i++)
        if (r->trained[i].done) put_trained(&j, a, &r->trained[i], torch);
    json_close(&j);
    json_close(&j);
    json_end(&j);
    return file_commit(&f, err);
}

/* --- all of it --- */

static enum status read_tasks(struct arena *a, const char *folder, struct bench_results *r,
                              struct error *err)
{
    char *text, *line;
    size_t n;
    TRY(file_read(a, arena_printf(a, "%s/trained", folder), LIST_MAX, &text, &n, err));
    while ((line = strsep(&text, "\n"))) {
        struct bench_trained *x = &r->trained[r->n_trained];
        if (!*line) continue;
        if (r->n_trained == BENCH_TRAINED_MAX ||
            sscanf(line, "%63s %" SCNd32, x->name, &x->rounds) != 2 || x->rounds < 1 ||
            x->rounds > BENCH_ROUNDS_MAX)
            return error_set(err, ERR_INPUT, "%s/trained: not \"NAME ROUNDS\": %s", folder, line);
        r->n_trained++;
    }
    return r->n_trained ? OK : error_set(err, ERR_INPUT, "%s/trained names no program", folder);
}

static struct bench_size size_requested(void)
{
    const char *small = getenv("GPU_SMALL");
    if (small && !strcmp(small, "1"))
        return (struct bench_size){
            .copy_bytes = 1 << 20, .product_rows = 64, .repeats = 2, .copies = 3, .steps = 3};
    return (struct bench_size){.copy_bytes = INT64_C(1) << 30,
                               .product_rows = 8192,
                               .repeats = 20,
                               .copies = 20,
                               .steps = 20};
}

static enum status bench(struct arena *a, char **argv, struct bench_results *r, bool *whole,
                         struct error *err)
{
    struct budget budget = budget_start(ALL_S);
    char *torch = NULL;
    size_t n;
    r->size = size_requested();
    TRY(read_tasks(a, argv[1], r, err));
    TRY(file_read(a, argv[2], LIST_MAX, &torch, &n, err));
    *whole = measure((struct task){argv[1], r, NULL, NULL}, &budget, KERNELS_S);
    for (int32_t i = 0; i < r->n_trained; i++)
        *whole &= measure((struct task){argv[1], r, &r->trained[i], NULL}, &budget, TRAINING_S);
    look_below(a, argv[1], r, &budget, argv[3]);
    bench_sort_rows(&r->kernels);
    TRY(write_json(a, r, torch, argv[3], err));
    print_all(a, r, torch);
    return OK;
}

int main(int argc, char **argv)
{
    struct error err = {0};
    bool whole = false;
    if (argc != 4) {
        fprintf(stderr, "usage: gpu-bench FOLDER TORCH JSON\n");
        return ERR_USAGE;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct bench_results *r =
        mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r == MAP_FAILED) {
        fprintf(stderr, "gpu-bench: no memory\n");
        return ERR_RESOURCE;
    }
    struct arena *a = arena_new();
    enum status st = bench(a, argv, r, &whole, &err);
    if (st != OK) fprintf(stderr, "gpu-bench: %s\n", err.text);
    arena_free(a);
    return st != OK ? (int)st : !whole;
}
