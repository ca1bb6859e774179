/* A whole run on stand-in GPUs in which one rank is killed, or stopped, at one of its calls: whatever the others are at, they end
 * with the code for it by themselves, and what was saved is whole. Ranks are forked; under MPI: tests/cli/peers.sh. */
#include "exec/checkpoint/checkpoint.h"
#include "exec/worker/worker.h"

#include "core/base/log.h"
#include "tests/standin/standin.h"
#include "tests/support/data.h"
#include "tests/support/device_ranks.h"
#include "tests/support/plans.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define SILENCE_S 1.5 /* and the stand-in computes no longer than that between two messages */
enum { LIMIT_S = 60, STEPS = 2, RANKS = 4 };

struct seen { /* shared with the ranks */
    _Atomic int64_t calls[RANKS];
    _Atomic int ended; /* ranks, by themselves */
    _Atomic int wrong;
};

/* What all ranks wrote on stderr. */
static char heard[1 << 16];

struct victim {
    const struct program *p;
    const char *folder; /* of checkpoints */
    const char *log;
    int rank, signal; /* signal 0: none */
    int64_t call;
    bool resumes;
    struct seen *seen;
};

struct points { /* at which a rank is struck: evenly over a part of its calls */
    int n;
    double from, to;  /* of its calls, 0 … 1 */
    int rank, signal; /* -1, 0: drawn, and killed and stopped by turns */
};

/* ---- programs --------------------------------------------------------------------------------- */

static struct plan gpus(struct arena *a, int32_t n)
{
    struct plan p = plans_new(a, "gpt2", 2, n);
    p.job.model.vocabulary = 256;
    p.cluster.types[0].catalogue = "H100-SXM5";
    p.cluster.types[0].backend = "cuda";
    p.cluster.types[0].memory_bytes = INT64_C(1) << 28;
    return p;
}

/* Stages in a row: messages alone. */
static const struct program *in_a_row(struct arena *a, int32_t n)
{
    struct plan p = gpus(a, n);
    int32_t layers = plans_layers(a, &p), last[RANKS];
    for (int32_t i = 0; i < n; i++) last[i] = (i + 1) * layers / n - 1;
    plans_replica(a, &p, 4, n, last);
    return plans_lower(a, &p, true);
}

/* Replicas with unequal shares: sums, or ZeRO's halves and a checkpoint that is put together. */
static const struct program *replicas(struct arena *a, int32_t n, int zero)
{
    struct plan p = gpus(a, n);
    int32_t last = plans_layers(a, &p) - 1;
    for (int32_t i = 0; i < n; i++)
        plans_replica(a, &p, zero ? 2 : 1 + i % 2, 1, &last)->stages[0].zero = zero;
    return plans_lower(a, &p, true);
}

/* ---- a run ------------------------------------------------------------------------------------ */

static int work(void *owner, int32_t rank)
{
    struct victim *v = owner;
    struct arena *a = arena_new();
    struct error err = {.code = OK};
    struct run_result r;
    char text[64];
    struct run_options o = {.steps = STEPS,
                            .data = DATA_FILE("LICENSE"),
                            .save = v->folder,
                            .resume = v->resumes ? v->folder : NULL,
                            .save_every = 1,
                            .keep_trace = true};
    log_set_level(LOG_LEVEL_ERROR);
    if (!freopen(v->log, "a", stderr)) return 1;
    setvbuf(stderr, NULL, _IONBF, 0); /* it may end by _exit */
    snprintf(text, sizeof text, "%lld:%d", (long long)v->call, v->signal);
    if (v->signal && rank == v->rank) setenv("STANDIN_SIGNAL_AT", text, 1);
    enum status status = worker_run(a, v->p, &o, &r, &err);
    for (int64_t i = 0; status == OK && rank == 0 && i < STEPS; i++)
        if (!isfinite(r.losses[i])) ++v->seen->wrong;
    if (status != OK) fprintf(stderr, "%s\n", err.text);
    v->seen->calls[rank] = standin_calls();
    ++v->seen->ended;
    arena_free(a);
    return (int)status;
}

static void remove_folder(const char *path)
{
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        char at[PATH_MAX];
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        snprintf(at, sizeof at, "%s/%s", path, e->d_name);
        if (unlink(at)) remove_folder(at);
    }
    if (d) closedir(d);
    rmdir(path);
}

/* A reader finds whole generations, or none. */
static void check_saved(struct arena *a, const char *folder)
{
    struct checkpoint c;
    struct error err = {.code = OK};
    DIR *d = opendir(folder);
    bool any = false;
    for (struct dirent *e; d && (e = readdir(d));) any |= !strncmp(e->d_name, "step-", 5);
    if (d) closedir(d);
    if (!any) return;
    ck_assert_msg(checkpoint_find(a, folder, &c, &err) == OK, "%s", err.text);
    for (int32_t i = 0; i < c.n_tensors; i++) {
        void *copy = arena_alloc(a, (size_t)c.tensors[i].bytes + 1, 1);
        ck_assert_msg(checkpoint_load(&c, c.tensors[i].name, &c.tensors[i].shape,
                                      (enum dtype)c.tensors[i].dtype, copy, &err) == OK,
                      "%s", err.text);
    }
}

static enum status run_once(struct victim *v, struct error *err)
{
    v->seen->ended = 0;
    v->seen->wrong = 0;
    unlink(v->log);
    enum status status = launch_local(v->p->n_devices, work, v, LIMIT_S * TEST_SLOWDOWN, err);
    FILE *f = fopen(v->log, "re");
    heard[f ? fread(heard, 1, sizeof heard - 1, f) : 0] = 0;
    if (f) fclose(f);
    ck_assert_int_eq(v->seen->wrong, 0);
    return status;
}

/* The others' calls go on by themselves; only the stopped one is killed. */
static void strike(struct arena *a, struct victim *v)
{
    struct error err = {.code = OK};
    int32_t others = v->p->n_devices - 1;
    enum status status = run_once(v, &err);
    const char *how = v->signal == SIGKILL ? "kill" : "stop";
    ck_assert_msg(status == ERR_RANK, "%s rank %d at call %lld: status %d: %s", how, v->rank,
                  (long long)v->call, (int)status, err.text);
    ck_assert_msg(strstr(err.text, "had to be killed") == NULL &&
                      strstr(err.text, "had not ended") == NULL,
                  "%s rank %d at call %lld: %s", how, v->rank, (long long)v->call, err.text);
    ck_assert_int_le(v->seen->ended, others);
    const char *name = v->p->devices[v->rank].name;
    if (*heard)
        ck_assert_msg(strstr(heard, name) != NULL, "%s rank %d at call %lld: nobody names %s: %s",
                      how, v->rank, (long long)v->call, name, heard);
    check_saved(a, v->folder);
    remove_folder(v->folder);
}

static void strike_at(struct arena *a, const struct program *p, struct points x, uint64_t seed)
{
    char folder[] = "/tmp/musher-peers-XXXXXX";
    struct error err = {.code = OK};
    struct victim v = {.p = p};
    v.seen = mmap(NULL, sizeof *v.seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(v.seen != MAP_FAILED);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    v.folder = folder;
    v.log = arena_printf(a, "%s.log", folder);
    device_ranks_environment(p->n_devices);
    setenv("STANDIN_NAME", "NVIDIA H100", 1);
    unsetenv("MUSHER_TIMEOUT"); /* a machine that is busy is no silence */
    ck_assert_msg(run_once(&v, &err) == OK, "%s: %s", err.text, heard);
    setenv("MUSHER_TIMEOUT", arena_printf(a, "%g", SILENCE_S * TEST_SLOWDOWN), 1);
    check_saved(a, folder);
    remove_folder(folder);
    int64_t calls[RANKS];
    for (int i = 0; i < p->n_devices; i++) calls[i] = v.seen->calls[i];
    for (int i = 0; i < x.n; i++) {
        v.rank = x.rank < 0 ? (int)rng_below(3, seed, (uint64_t)i, (uint64_t)p->n_devices) : x.rank;
        v.signal = x.signal ? x.signal : i % 2 ? SIGSTOP : SIGKILL;
        double at = x.from + (x.to - x.from) * i / x.n;
        /* somewhere in each part */
        v.call = 1 + (int64_t)((double)calls[v.rank] * at) + (int64_t)rng_below(4, seed, (uint64_t)i, 40) / x.n;
        strike(a, &v);
    }
    unlink(v.log);
    munmap(v.seen, sizeof *v.seen);
}

static void strike_in_turn(struct arena *a, const struct program *p, uint64_t seed)
{
    strike_at(a, p, (struct points){suites_long() ? 24 : 3, 0, 0.9, -1, 0}, seed);
}

START_TEST(a_peer_that_dies_or_stops_in_a_row_of_stages_ends_the_run)
{
    struct arena *a = arena_new();
    strike_in_turn(a, in_a_row(a, 2 + 2 * _i), 100 + (uint64_t)_i);
    arena_free(a);
}
END_TEST

START_TEST(one_that_dies_or_stops_among_replicas_ends_the_run)
{
    struct arena *a = arena_new();
    strike_in_turn(a, replicas(a, 2 + _i, _i == 1 ? 2 : 0), 200 + (uint64_t)_i);
    arena_free(a);
}
END_TEST

/* A chain adds microbatch by microbatch: behind what comes from the peer stand more kernels than a stream takes. Nobody but the thread
 * that asks for them would see that the peer is stopped. */
START_TEST(one_that_stops_while_a_reduce_is_more_than_a_stream_takes_ends_the_run)
{
    struct arena *a = arena_new();
    struct plan p = gpus(a, 2);
    int32_t last = plans_layers(a, &p) - 1;
    p.deterministic = true;
    for (int32_t i = 0; i < 2; i++) plans_replica(a, &p, 9, 1, &last);
    setenv("STANDIN_QUEUE", "224", 1);
    strike_at(a, plans_lower(a, &p, true), (struct points){suites_long() ? 8 : 1, 0.3, 0.9, 0, SIGSTOP}, 300);
    unsetenv("STANDIN_QUEUE");
    arena_free(a);
}
END_TEST

Suite *peers_suite(void)
{
    Suite *s = suite_create("peers");
    TCase *t = tcase_create("peers");
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, a_peer_that_dies_or_stops_in_a_row_of_stages_ends_the_run, 0, 2);
    tcase_add_loop_test(t, one_that_dies_or_stops_among_replicas_ends_the_run, 0, 2);
    tcase_add_test(t, one_that_stops_while_a_reduce_is_more_than_a_stream_takes_ends_the_run);
    suite_add_tcase(s, t);
    return s;
}
