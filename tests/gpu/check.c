/* tests/gpu/check.c - `make gpu-check`: does the GPU compute what the host computes, and do ranks end when one is gone?
 *
 * usage: gpu-check [--kernels] FOLDER
 * FOLDER holds what `make gpu-files` wrote where there are all libraries: `cases`, programs, and the host's losses. Here is a GPU
 * and little else, so this program knows neither MPI nor Check nor OpenBLAS (its reference products are plain loops).
 * Every check is a group of forked ranks of its own (a CUDA context does not survive a fork) with a time limit: nothing here
 * can hang, and all of them together have GPU_SECONDS. Prints a line a check and a count at the end; exit 1 where one failed, 8 where there is no device.
 *   kernels   each kind and its gradient operators, fp32 fp64 bf16 fp16, beside the host in fp64 (tests/support/compare_kernels.h)
 *   train     a line of `cases`: NAME RANKS STEPS LIMIT REFERENCE [SKIPPED]: NAME.program's losses against REFERENCE.losses; of the steps
 *             so many are skipped, since fp16's gradients overflow
 *   save      a line `save NAME RANKS STEPS LIMIT REFERENCE`: as train, with a checkpoint behind every second step, written while
 *             training goes on; FOLDER/NAME.saved must hold the last one
 *   collectives  a line `collectives NAME RANKS`: between the ranks of NAME.program, every call exact (tests/gpu/collectives.h)
 *   dead      a line `dead NAME RANKS`: its last rank is killed; the others must end with 7, in time and by themselves
 */
#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/program/program.h"
#include "exec/comm/launch_local.h"
#include "exec/plugin.h"
#include "exec/worker/worker.h"
#include "tests/gpu/budget.h"
#include "tests/gpu/collectives.h"
#include "tests/gpu/words.h"
#include "tests/support/compare_kernels.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALL_S = 420, KERNELS_S = 150, ALONE_S = 1000, LIMIT_S = 90, CASES_MAX = 1 << 16 };
enum { RANKS_MAX = 64, STEPS_MAX = 1000000, UNTOLD = -1 };
/* A rank is killed when it trains: a GPU's context and its communicators take some seconds to make. */
enum { KILL_AFTER_S = 15, KILL_AFTER_SMALL_S = 3 };

struct check {
    const char *folder, *name, *reference;
    int32_t ranks;
    int64_t steps, skipped; /* skipped: UNTOLD: any */
    double limit;
    bool dies, collects, saves;
    enum status ended; /* as run_check found it */
};

static const char *path_of(struct arena *a, const struct check *c, const char *name,
                           const char *ending)
{
    return arena_printf(a, "%s/%s%s", c->folder, name, ending);
}

static int failed(const struct check *c, enum status st, const struct error *err)
{
    printf("not ok %s: %s\n", c->name, err->text);
    fflush(stdout);
    return (int)st;
}

/* --- kernels --- */

/* GPU_SMALL=1: a GPU that is emulated. */
static bool is_small(void)
{
    const char *small = getenv("GPU_SMALL");
    return small && !strcmp(small, "1");
}

/* One that is off is told, and the others are compared all the same: what a GPU says in one call should be all it has to say. */
static enum status compare_one(struct kernel_comparison *x, const struct kernel_row *row, enum dtype t,
                               bool add, int *off, struct error *err)
{
    enum status st = kernel_comparison_row(x, row, t, add, err);
    if (st != ERR_TOLERANCE) return st;
    ++*off;
    printf("   off: %s\n", err->text);
    return OK;
}

/* Where it is small each call has one of the two forms, with and without a sum to add to. */
static enum status compare_all(struct kernel_comparison *x, struct error *err)
{
    int off = 0;
    bool one = is_small();
    static const enum dtype types[] = {DTYPE_fp32, DTYPE_fp64, DTYPE_bf16, DTYPE_fp16};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t i = 0; i < sizeof kernel_rows / sizeof *kernel_rows; i++)
            for (int add = 0; add < 2; add++)
                if (!one || add == (int)((i + t) % 2))
                    TRY(compare_one(x, &kernel_rows[i], types[t], add, &off, err));
    return off ? error_set(err, ERR_TOLERANCE, "%d of the rows are off", off) : OK;
}

static int kernels(void *owner, int32_t rank)
{
    const struct check *c = owner;
    struct arena *a = arena_new();
    struct host_context host;
    struct backend b;
    struct kernel_comparison x;
    struct error err = {0};
    (void)rank;
    enum status st = plugin_open_backend("cuda", &b, &err);
    if (st == OK) st = b.open(&b, 0, &err);
    if (st != OK) return failed(c, st, &err);
    host_context_init(&host);
    kernel_comparison_begin(&x, &b, a, &host, 1);
    x.any_address = false; /* products and attention go other ways where operands are not aligned */
    st = compare_all(&x, &err);
    b.close(&b);
    if (st != OK) return failed(c, st, &err);
    printf("ok kernels: %" PRId64 " calls; nearest to its limit:", x.n_calls);
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (x.worst[t] > 0)
            printf(" %s %.2f (%s)", dtype_name((enum dtype)t), x.worst[t], x.worst_call[t]);
    putchar('\n');
    fflush(stdout);
    return 0;
}

/* --- training --- */

/* Ranks that went by the host for want of NCCL show nothing of it. */
static enum status talks(const struct check *c, struct error *err)
{
    const struct plugin *plugin;
    if (c->ranks == 1) return OK;
    TRY(plugin_of("cuda", &plugin, err));
    return plugin->comm(err) ? OK : err->code;
}

/* One number a line. */
static enum status read_losses(struct arena *a, const char *path, int64_t n, double *out,
                               struct error *err)
{
    char *text, *end;
    size_t size;
    TRY(file_read(a, path, CASES_MAX, &text, &size, err));
    for (int64_t i = 0; i < n; i++, text = end) {
        out[i] = strtod(text, &end);
        if (end == text)
            return error_set(err, ERR_INPUT, "%s: %" PRId64 " losses, expected %" PRId64, path, i,
                             n);
    }
    return OK;
}

static enum status train_and_compare(struct arena *a, const struct check *c, int32_t rank,
                                     struct error *err)
{
    struct program p;
    struct run_result r;
    double *want = ARENA_ARRAY(a, double, (size_t)c->steps), worst = 0;
    struct run_options o = {.steps = c->steps, .data = data_source_of(a, path_of(a, c, "text", ".txt"), DATA_BYTES)};
    if (c->saves) o.save = path_of(a, c, c->name, ".saved"), o.save_every = 2;
    TRY(program_read(a, path_of(a, c, c->name, ".program"), &p, err));
    TRY(worker_run(a, &p, &o, &r, err));
    TRY(talks(c, err));
    if (rank) return OK;
    TRY(read_losses(a, path_of(a, c, c->reference, ".losses"), c->steps, want, err));
    for (int64_t i = 0; i < c->steps; i++) {
        double off = fabs(r.losses[i] / want[i] - 1);
        if (!(off <= worst)) worst = off; /* NaN as well */
    }
    if (!(worst <= c->limit))
        return error_set(err, ERR_TOLERANCE,
                         "%" PRId64 " losses are up to %.2e off the host's; at most %.0e", c->steps,
                         worst, c->limit);
    if (c->skipped != UNTOLD && r.n_skipped != c->skipped)
        return error_set(err, ERR_TOLERANCE,
                         "%" PRId64 " of %" PRId64 " steps were skipped, %" PRId64 " on the host",
                         r.n_skipped, c->steps, c->skipped);
    const char *last = arena_printf(a, "%s/step-%08" PRId64 "/manifest.json", c->saves ? o.save : "", c->steps);
    if (c->saves && access(last, R_OK)) return error_set(err, ERR_TOLERANCE, "no checkpoint: %s: %s", last, strerror(errno));
    printf("ok %s: %" PRId32 " rank%s, %" PRId64 " losses within %.2e of the host's (at most %.0e)",
           c->name, c->ranks, c->ranks > 1 ? "s" : "", c->steps, worst, c->limit);
    if (r.n_skipped) printf(", %" PRId64 " steps skipped", r.n_skipped);
    putchar('\n');
    fflush(stdout);
    return OK;
}

static int train(void *owner, int32_t rank)
{
    const struct check *c = owner;
    struct arena *a = arena_new();
    struct error err = {0};
    if (c->dies && rank == c->ranks - 1)
        alarm(is_small() ? KILL_AFTER_SMALL_S : KILL_AFTER_S); /* SIGALRM ends it */
    enum status st = train_and_compare(a, c, rank, &err);
    if (st != OK && c->dies) fprintf(stderr, "rank %" PRId32 ": %s\n", rank, err.text);
    if (st != OK && !c->dies) (void)failed(c, st, &err);
    arena_free(a);
    return (int)st;
}

/* --- collectives --- */

static int collect(void *owner, int32_t rank)
{
    const struct check *c = owner;
    struct arena *a = arena_new();
    struct program p;
    struct error err = {0};
    int64_t calls = 0;
    enum status st = program_read(a, path_of(a, c, c->reference, ".program"), &p, &err);
    if (st == OK) st = collectives_check(&p, &calls, &err);
    if (st != OK)
        (void)failed(c, st, &err);
    else if (!rank)
        printf("ok %s: %" PRId32 " ranks, %" PRId64 " calls exact to the bit\n", c->name, c->ranks,
               calls);
    fflush(stdout);
    arena_free(a);
    return (int)st;
}

/* --- all of them --- */

/* A dead rank's check succeeds by the others' exit 7; launch_local tells the first end, which is the killed one's. */
static bool run_check(struct check *c, local_rank *body, double seconds)
{
    struct error err = {0};
    enum status st = seconds > 0 ? launch_local(c->ranks, body, c, seconds, &err)
                                 : error_set(&err, ERR_RESOURCE, "no time is left");
    c->ended = st;
    if (c->dies && st == ERR_RANK && strstr(err.text, "killed by signal") &&
        !strstr(err.text, "others had to be killed") && !strstr(err.text, "failed with another error")) {
        printf("ok %s: %s; the others ended by themselves\n", c->name, err.text);
        return true;
    }
    if (st != OK) printf("not ok %s: exit %d: %s\n", c->name, (int)st, err.text);
    fflush(stdout);
    return st == OK;
}

/* A line of `cases`, which is cut up. */
static enum status read_case(struct words at, char *line, struct check *c, struct error *err)
{
    char *words[7] = {0}, **word = words, *end = NULL;
    int64_t ranks;
    for (int i = 0; i < 7; i++) words[i] = strsep(&line, " ");
    c->saves = !strcmp(word[0], "save") && word[1];
    word += c->saves;
    c->dies = !strcmp(word[0], "dead"), c->collects = !strcmp(word[0], "collectives");
    bool plain = !c->dies && !c->collects;
    c->name = word[c->dies], c->reference = word[1], c->steps = STEPS_MAX, c->skipped = UNTOLD;
    TRY(words_number(at, "ranks", word[plain ? 1 : 2], c->collects ? 2 : 1, RANKS_MAX, &ranks,
                     err));
    c->ranks = (int32_t)ranks;
    if (!plain) return OK;
    TRY(words_number(at, "steps", word[2], 1, STEPS_MAX, &c->steps, err));
    c->limit = word[3] ? strtod(word[3], &end) : 0;
    if (!(c->limit > 0) || !isfinite(c->limit) || (end && *end))
        return error_set(err, ERR_INPUT, "%s:%d: limit: '%s', expected a number above 0", at.list,
                         at.line, word[3] ? word[3] : "");
    c->reference = word[4];
    if (!c->reference || !*c->reference)
        return error_set(err, ERR_INPUT, "%s:%d: no file of losses is named", at.list, at.line);
    return word[5] ? words_number(at, "skipped steps", word[5], 0, c->steps, &c->skipped, err) : OK;
}

/* All of them, before the first one runs: (*n). */
static enum status read_cases(struct arena *a, const char *folder, struct check **out, int *n,
                              struct error *err)
{
    struct words at = {.list = arena_printf(a, "%s/cases", folder)};
    char *text, *line;
    size_t size, most = 1;
    TRY(file_read(a, at.list, CASES_MAX, &text, &size, err));
    for (const char *c = text; *c; c++) most += *c == '\n';
    *out = ARENA_ARRAY(a, struct check, most);
    *n = 0;
    while ((line = strsep(&text, "\n"))) {
        struct check *c = &(*out)[*n];
        at.line++;
        if (!*line) continue;
        c->folder = folder;
        TRY(read_case(at, line, c, err));
        ++*n;
    }
    if (!*n)
        return error_set(err, ERR_INPUT, "%s holds no check: make gpu-files writes it", at.list);
    return OK;
}

int main(int argc, char **argv)
{
    bool kernels_alone = argc == 3 && !strcmp(argv[1], "--kernels");
    struct check c = {.folder = argc > 1 ? argv[argc - 1] : NULL, .name = "kernels", .ranks = 1};
    struct error err = {0};
    struct check *cases;
    int passed = 0, wrong = 0, n;
    if (argc != 2 + kernels_alone) {
        fprintf(stderr, "usage: gpu-check [--kernels] FOLDER\n");
        return ERR_USAGE;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct arena *a = arena_new();
    if (read_cases(a, c.folder, &cases, &n, &err) != OK) {
        fprintf(stderr, "gpu-check: %s\n", err.text);
        arena_free(a);
        return ERR_INPUT;
    }
    struct budget budget = budget_start(ALL_S);
    *(run_check(&c, kernels, budget_part(&budget, kernels_alone ? ALONE_S : KERNELS_S)) ? &passed : &wrong) += 1;
    bool none = c.ended == ERR_NO_DEVICE;
    for (int i = 0; i < n && !none && !kernels_alone; i++)
        *(run_check(&cases[i], cases[i].collects ? collect : train, budget_part(&budget, LIMIT_S))
              ? &passed
              : &wrong) += 1;
    printf("%d passed, %d failed\n", passed, wrong);
    arena_free(a);
    return none ? ERR_NO_DEVICE : wrong > 0;
}
