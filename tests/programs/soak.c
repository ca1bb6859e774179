/* tests/programs/soak.c - plan, simulate and describe the same questions again and again in one process (gate R20).
 *
 * soak SECONDS JOB CLUSTER…   A round parses job and clusters, plans the job on each with 1 and 3 threads in turn, writes the plan and reads it back, lowers and
 * simulates it, and hashes the plan's text and the trace. The first half of the time warms up: tables of libraries, and arenas of glibc, which threads share in
 * another order each time (one question of three devices: 30.4 MB resident in the first ten of 30 s, 31.8 MB at their end and after two minutes; allocated were 0.18
 * and 0.19 MB). Behind it memory is sampled after every round. Ends with 1, and the reason on stderr: a hash differs from the first round's, descriptors are
 * added, or the mean of the last third of the samples is above that of the first third, of resident memory by more than 1 %, of allocated bytes by more than
 * 1 % of resident memory. Prints "ROUNDS HASH RESIDENT_KB ITS_END ALLOCATED_KB ITS_END DESCRIPTORS".
 */
#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/rng.h"
#include "core/document/document.h"
#include "core/model/job.h"
#include "exec/clock.h"
#include "planner/search.h"
#include "profiles/profile.h"
#include "profiles/team.h"
#include "tools/common.h"

#include <dirent.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLES = 1 << 20, EVALUATIONS = 40 };
#define GROWTH 0.01 /* R20: resident memory flat to 1 % */

static void fail(const char *why)
{
    fprintf(stderr, "soak: %s\n", why);
    exit(1);
}

#define MUST(call)                   \
    do {                             \
        if ((call) != OK) fail(err.text); \
    } while (0)

static int64_t resident_kb(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f || fscanf(f, "%*s %ld", &pages) != 1) fail("no /proc/self/statm");
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static int64_t allocated_kb(void)
{
    struct mallinfo2 m = mallinfo2();
    return (int64_t)(m.uordblks + m.hblkhd) / 1024;
}

static int descriptors(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    if (!d) fail("no /proc/self/fd");
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

/* The plan's text and every span of its simulation. */
static uint64_t question(const char *job_path, const char *cluster_path, int32_t threads)
{
    struct arena *a = arena_new();
    struct error err = {0};
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct search_result found;
    struct plan again;
    struct program program;
    struct sim_result result;
    struct node *root;
    MUST(job_read(a, job_path, &job, &err));
    MUST(cluster_read(a, cluster_path, &cluster, &err));
    MUST(team_complete(&cluster, &err));
    MUST(profile_prior(a, &cluster, &profile, &err));
    MUST(search_plans(a, &job, &cluster, &profile, &(struct search_options){.top = 1, .threads = threads, .evaluations = EVALUATIONS}, &found, &err));
    const char *text = common_plan_text(a, &found.plans[0].plan);
    MUST(document_parse(a, "plan", text, strlen(text), &root, &err));
    MUST(plan_parse(a, root, ".", &again, &err));
    if (strcmp(common_plan_text(a, &again), text) != 0) fail("a plan that is read back has another text");
    MUST(common_simulate(a, &again, &profile, &(struct sim_options){.steps = 2, .keep_trace = true}, &result, &program, &err));
    uint64_t hash = rng_hash_text(rng_hash_text(1, text), plan_describe(a, &again));
    for (size_t i = 0; i < result.trace->n_spans; i++) {
        const int64_t times[] = {result.trace->spans[i].begin_ns, result.trace->spans[i].end_ns};
        hash = rng_hash_bytes(hash, times, sizeof times);
    }
    arena_free(a);
    return hash;
}

static double mean(const int64_t *x, size_t from, size_t to)
{
    double sum = 0;
    for (size_t i = from; i < to; i++) sum += (double)x[i];
    return sum / (double)(to - from);
}

int main(int argc, char **argv)
{
    static int64_t kb[SAMPLES], used_kb[SAMPLES];
    if (argc < 4) fail("usage: soak SECONDS JOB CLUSTER...");
    int64_t begin_ns = clock_wall_ns(), all_ns = (int64_t)(1e9 * strtod(argv[1], NULL));
    uint64_t first = 0, rounds = 0;
    size_t n = 0;
    int open = 0;
    log_set_level(LOG_LEVEL_ERROR);
    for (int64_t at_ns = 0; (at_ns < all_ns || n < 6) && n < SAMPLES; rounds++, at_ns = clock_wall_ns() - begin_ns) {
        uint64_t hash = 1;
        for (int i = 3; i < argc; i++) hash = rng_hash_bytes(hash, &(uint64_t){question(argv[2], argv[i], rounds % 2 ? 3 : 1)}, sizeof hash);
        if (!rounds) first = hash;
        if (hash != first) fail("a round has another plan or another simulation than the first one");
        if (rounds < 2 || at_ns < all_ns / 2) continue;
        if (!n) open = descriptors();
        used_kb[n] = allocated_kb();
        kb[n++] = resident_kb();
        if (descriptors() != open) fail("descriptors are left open");
    }
    double early = mean(kb, 0, n / 3), late = mean(kb, n - n / 3, n), used_early = mean(used_kb, 0, n / 3), used_late = mean(used_kb, n - n / 3, n);
    printf("%" PRIu64 " %016" PRIx64 " %.0f %.0f %.0f %.0f %d\n", rounds, first, early, late, used_early, used_late, open - 3); /* without ".", ".." and the folder itself */
    if (used_late - used_early > early * GROWTH) fail("allocated memory grows");
    if (late > early * (1 + GROWTH)) fail("resident memory grows");
    return 0;
}
