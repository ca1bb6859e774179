/* tests/gpu/run.c - runs programs where there is a GPU and little else, and brings their traces back.
 *
 * usage: gpu-run FOLDER OUT [--kernels]     --kernels: in traces of plans, what ran in operators too (exec/activity.h)
 * FOLDER may hold
 *   benches   names, a line each, written by `musher profile --emit`: NAME.program, one rank. OUT/NAME.trace; then OUT/copies, what
 *             copies between pinned memory and the first GPU took (tools/profile/remote.h)
 *   runs      lines NAME STEPS: NAME.program on text.txt, a forked rank a device. OUT/NAME.trace, which carries the plan
 *             NAME.yaml, so that calibrate learns from it; the iteration is printed
 * Every program is a group of forked ranks of its own with a time limit, and all have GPU_SECONDS together. Prints a line a
 * program and a count at the end; exit 1 where one failed.
 */
#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/program/program.h"
#include "exec/bench/copies.h"
#include "exec/comm/launch_local.h"
#include "exec/plugin.h"
#include "exec/worker/worker.h"
#include "tests/gpu/budget.h"
#include "tests/gpu/words.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS_MAX = 1000000 };
enum { ALL_S = 240, LIMIT_S = 90, LIST_MAX = 1 << 16, PLAN_MAX = 1 << 22 };
enum { COPY_SIZES = 8, COPY_REPEATS = 15 };

struct running {
    const char *folder, *out, *name;
    int64_t steps;
    bool is_plan, kernels;
};

static const char *path_of(struct arena *a, const char *folder, const char *name,
                           const char *ending)
{
    return arena_printf(a, "%s/%s%s", folder, name, ending);
}

/* --- one program --- */

static enum status write_trace(struct arena *a, const struct running *j, struct trace *t,
                               struct error *err)
{
    char *text;
    size_t n;
    if (j->is_plan) {
        TRY(file_read(a, path_of(a, j->folder, j->name, ".yaml"), PLAN_MAX, &text, &n, err));
        t->plan_text = text;
    }
    return trace_write(t, path_of(a, j->out, j->name, ".trace"), err);
}

static enum status run_program(struct arena *a, const struct running *j, int32_t rank,
                               struct error *err)
{
    struct program p;
    struct run_result r;
    struct run_options o = {.steps = j->steps, .keep_trace = true};
    o.keep_kernels = j->kernels;
    if (j->is_plan) o.data = data_source_of(a, path_of(a, j->folder, "text", ".txt"), DATA_BYTES);
    TRY(program_read(a, path_of(a, j->folder, j->name, ".program"), &p, err));
    TRY(worker_run(a, &p, &o, &r, err));
    if (rank) return OK;
    TRY(write_trace(a, j, r.trace, err));
    if (j->is_plan)
        printf("ok %s: %.3f ms per iteration, %" PRId64 " steps on %" PRId32 " ranks\n", j->name,
               (double)r.iteration_ns * 1e-6, r.steps, p.n_devices);
    else
        printf("ok %s: %zu samples\n", j->name, r.trace->n_spans);
    return OK;
}

static int program_rank(void *owner, int32_t rank)
{
    const struct running *j = owner;
    struct arena *a = arena_new();
    struct error err = {0};
    enum status st = run_program(a, j, rank, &err);
    if (st != OK && !rank) printf("   %s: %s\n", j->name, err.text);
    fflush(stdout);
    arena_free(a);
    return (int)st;
}

/* --- copies --- */

static enum status measure_copies(struct arena *a, const struct running *j, struct error *err)
{
    int64_t bytes[COPY_SIZES];
    struct copy_sample s[COPY_SIZES];
    struct backend b;
    struct file f = {0};
    for (int i = 0; i < COPY_SIZES; i++) bytes[i] = (int64_t)4096 << 2 * i; /* 4 KiB … 64 MiB */
    TRY(plugin_open_backend("cuda", &b, err));
    TRY(b.open(&b, 0, err));
    enum status st = bench_copies(a, &b, bytes, COPY_SIZES, COPY_REPEATS, s, err);
    b.close(&b);
    TRY(st);
    TRY(file_open(&f, path_of(a, j->out, j->name, ""), err));
    for (int i = 0; i < COPY_SIZES; i++)
        fprintf(f.stream, "%" PRId64 " %.9g %.4f %.9g %.4f\n", s[i].bytes, s[i].up_s,
                s[i].up_spread, s[i].down_s, s[i].down_spread);
    TRY(file_commit(&f, err));
    const struct copy_sample *most = &s[COPY_SIZES - 1];
    printf("ok copies: 64 MiB up %.1f GB/s, down %.1f GB/s\n",
           (double)most->bytes / most->up_s * 1e-9, (double)most->bytes / most->down_s * 1e-9);
    return OK;
}

static int copies_rank(void *owner, int32_t rank)
{
    struct arena *a = arena_new();
    struct error err = {0};
    (void)rank;
    enum status st = measure_copies(a, owner, &err);
    if (st != OK) printf("   copies: %s\n", err.text);
    fflush(stdout);
    arena_free(a);
    return (int)st;
}

/* --- all of them --- */

struct tally {
    struct budget budget;
    int passed, failed;
};

static void run_one(struct tally *t, local_rank *body, struct running *j, int32_t ranks)
{
    struct error err = {0};
    double limit = budget_part(&t->budget, LIMIT_S);
    enum status st = limit > 0 ? launch_local(ranks, body, j, limit, &err)
                               : error_set(&err, ERR_RESOURCE, "no time is left");
    if (st != OK) printf("not ok %s: exit %d: %s\n", j->name, (int)st, err.text);
    *(st == OK ? &t->passed : &t->failed) += 1;
}

/* The program says how many ranks it has; one that cannot be read is the ranks' to complain about. */
static int32_t ranks_of(struct arena *a, const struct running *j)
{
    struct program p;
    struct error err;
    enum status st = program_read(a, path_of(a, j->folder, j->name, ".program"), &p, &err);
    return st == OK ? p.n_devices : 1;
}

/* The lines of FOLDER/name; NULL: it has no such list. */
static enum status read_list(struct arena *a, const char *folder, const char *name, char **out,
                             struct error *err)
{
    const char *path = path_of(a, folder, name, "");
    size_t n;
    *out = NULL;
    return access(path, F_OK) == 0 ? file_read(a, path, LIST_MAX, out, &n, err) : OK;
}

static void run_benches(struct tally *t, const char *folder, const char *out, char *list)
{
    struct running copies = {.folder = folder, .out = out, .name = "copies"};
    for (char *line; (line = strsep(&list, "\n"));) {
        struct running j = {.folder = folder, .out = out, .name = line, .steps = 1};
        if (*line) run_one(t, program_rank, &j, 1);
    }
    run_one(t, copies_rank, &copies, 1);
}

static void run_plans(struct arena *a, struct tally *t, const char *folder, const char *out,
                      char *list, bool kernels)
{
    struct words at = {.list = arena_printf(a, "%s/runs", folder)};
    for (char *line; (line = strsep(&list, "\n"));) {
        struct running j = {.folder = folder, .out = out, .is_plan = true, .kernels = kernels};
        struct error err = {0};
        at.line++;
        j.name = strsep(&line, " ");
        if (!*j.name) continue;
        if (words_number(at, "steps", line, 1, STEPS_MAX, &j.steps, &err) == OK)
            run_one(t, program_rank, &j, ranks_of(a, &j));
        else
            printf("not ok %s: %s\n", j.name, err.text), t->failed++;
    }
}

static enum status run_lists(struct arena *a, struct tally *t, const char *folder, const char *out,
                             bool kernels, struct error *err)
{
    char *benches, *runs;
    TRY(read_list(a, folder, "benches", &benches, err));
    TRY(read_list(a, folder, "runs", &runs, err));
    if (!benches && !runs)
        return error_set(err, ERR_INPUT, "%s holds neither benches nor runs", folder);
    if (benches) run_benches(t, folder, out, benches);
    if (runs) run_plans(a, t, folder, out, runs, kernels);
    return OK;
}

int main(int argc, char **argv)
{
    struct tally t = {.budget = budget_start(ALL_S)};
    struct arena *a = arena_new();
    struct error err = {0};
    bool kernels = argc == 4 && !strcmp(argv[3], "--kernels");
    if (argc != 3 + kernels) {
        fprintf(stderr, "usage: gpu-run FOLDER OUT [--kernels]\n");
        return ERR_USAGE;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    enum status st = run_lists(a, &t, argv[1], argv[2], kernels, &err);
    if (st != OK) fprintf(stderr, "gpu-run: %s\n", err.text);
    printf("%d ran, %d failed\n", t.passed, t.failed);
    arena_free(a);
    return st != OK ? (int)st : t.failed > 0;
}
