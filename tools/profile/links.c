#include "tools/profile/links.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "core/document/json.h"
#include "core/lower/lower.h"
#include "exec/bench/bench.h"
#include "exec/comm/launch.h"
#include "profiles/fit.h"
#include "tools/mpi_hosts.h"
#include "tools/profile/cuda.h"
#include "tools/profile/switches.h"
#include "traces/quantile.h"
#include "traces/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINK_SIZES = 9 };

/* Suppresses the output of the benchmark's ranks. */
static enum status launch_quietly(int32_t n, const struct launch_hosts *on, char *const *argv, struct error *err)
{
    fflush(stdout);
    int keep = dup(STDOUT_FILENO), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (keep < 0 || null < 0 || dup2(null, STDOUT_FILENO) < 0)
        return error_set(err, ERR_RESOURCE, "/dev/null: %s", strerror(errno));
    enum status st = launch_ranks(n, on, argv, false, err);
    dup2(keep, STDOUT_FILENO);
    close(keep);
    close(null);
    return st;
}

static bool on_other_hosts(const struct program *p)
{
    for (int32_t i = 0; i < p->n_devices; i++)
        if (!launch_host_is_here(p->devices[i].host)) return true;
    return false;
}

enum status profile_run_bench(struct profile_links *b, const struct program *program,
                              const char *folder, struct trace **out, struct error *err)
{
    char *file = arena_printf(b->arena, "%s/bench.program", folder),
         *trace = arena_printf(b->arena, "%s/bench.trace", folder);
    char verb[] = "run", musher[] = "musher", option[] = "--trace", steps[] = "--steps",
         one[] = "1", quiet[] = "-q";
    char *argv[] = {musher, verb, file, option, trace, steps, one, quiet, NULL};
    struct launch_hosts on = {0};
    struct file f = {0};
    bool remote = on_other_hosts(program);
    TRY(file_open(&f, file, err));
    program_write(f.stream, program);
    TRY(file_commit(&f, err));
    enum status st = remote ? mpi_hosts_write(b->arena, program, b->agent, &on, err) : OK;
    if (st == OK) st = launch_quietly(program->n_devices, remote ? &on : NULL, argv, err);
    if (st == OK) st = trace_read(b->arena, trace, out, err);
    if (st != OK && st != ERR_INTERRUPTED && remote)
        st = error_wrap(err, st, "ranks on several hosts, which need %s on all of them (TMPDIR names the folder)", folder);
    mpi_hosts_remove(&on);
    unlink(file);
    unlink(trace);
    return st;
}

/* The costs of an emulated link are those of the cluster file; the measurement only checks them. */
static void check_link(struct profile_links *b, const struct link *l, const int64_t *bytes,
                       const double *seconds, size_t n, struct profile *p)
{
    double *offs = ARENA_ARRAY(b->arena, double, n + 1);
    struct link_model m = {.latency_s = l->latency_s,
                           .bandwidth_Bps = l->bandwidth_Bps,
                           .max_bytes = INT64_MAX,
                           .source = SOURCE_STATED};
    for (size_t i = 0; i < n; i++)
        offs[i] = fabs(seconds[i] / (l->latency_s + (double)bytes[i] / l->bandwidth_Bps) - 1);
    profile_set_link(b->arena, p, l->name, &m);
    b->off[l - b->cluster->links] = quantile(offs, n, 0.95);
}

/* Messages of the benchmark but the first of each size: bytes and seconds; their number. */
static size_t samples(struct arena *a, const struct trace *t, int64_t **bytes, double **seconds)
{
    size_t n = 0;
    *bytes = ARENA_ARRAY(a, int64_t, t->n_spans + 1);
    *seconds = ARENA_ARRAY(a, double, t->n_spans + 1);
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i];
        if (s->kind != SPAN_RECEIVE || s->microbatch == 0) continue;
        (*bytes)[n] = s->bytes;
        (*seconds)[n++] = units_s_from_ns(s->end_ns - s->begin_ns);
    }
    return n;
}

static enum status fit_link(struct profile_links *b, const struct link *l, const struct trace *t,
                            struct profile *p, struct error *err)
{
    int64_t *bytes;
    double *seconds;
    size_t n = samples(b->arena, t, &bytes, &seconds);
    if (!b->cluster->emulated || !(l->bandwidth_Bps > 0))
        return profile_fit_link(b->arena, p, l->name, bytes, seconds, n, err);
    check_link(b, l, bytes, seconds, n, p);
    return OK;
}

bool profile_reaches(const struct profile_links *b, int32_t device)
{
    return profile_is_here(b->gpus, device) || (b->agent && !launch_host_is_here(lower_device(b->cluster, device).host));
}

/* The first pair of devices in reach whose messages cross the link. *crossed: some pair of the cluster crosses it. */
static bool pair_of(const struct profile_links *b, int32_t link, int32_t *from, int32_t *to,
                    bool *crossed)
{
    const struct cluster *c = b->cluster;
    *crossed = false;
    for (int32_t i = 0; i < c->n_devices; i++)
        for (int32_t j = 0; j < c->n_devices; j++) {
            int32_t direction = 0;
            if (i == j || cluster_link(c, i, j, &direction) != link) continue;
            if (profile_same_gpu(c, i, j)) continue; /* no link: the GPU's own memory */
            *crossed = true;
            if (!profile_reaches(b, i) || !profile_reaches(b, j)) continue;
            *from = i;
            *to = j;
            return true;
        }
    return false;
}

static bool between_gpus(const struct cluster *c, int32_t from, int32_t to)
{
    struct program_device a = lower_device(c, from), b = lower_device(c, to);
    return !program_device_is_host(&a) || !program_device_is_host(&b);
}

/* 1 KiB … 1 MiB; between GPUs, whose links are much faster, … 64 MiB, or --largest. */
static int32_t choose_sizes(const struct profile_links *b, int32_t from, int32_t to, int64_t *bytes)
{
    bool gpus = between_gpus(b->cluster, from, to);
    int32_t n = 0;
    for (; n < LINK_SIZES; n++) {
        bytes[n] = (int64_t)1024 << (gpus ? n * 2 : n * 4 / 3);
        if (gpus && n && bytes[n] > b->largest_bytes) break;
    }
    return n;
}

/* The time of each size, for output beside the fit. */
static void note_sizes(struct profile_links *b, const struct link *l, const int64_t *bytes,
                       int32_t n_bytes, const struct trace *t)
{
    double *values = ARENA_ARRAY(b->arena, double, t->n_spans + 1),
           *copy = ARENA_ARRAY(b->arena, double, t->n_spans + 1);
    for (int32_t i = 0; i < n_bytes; i++) {
        size_t n = 0;
        for (size_t k = 0; k < t->n_spans; k++) {
            const struct span *s = &t->spans[k];
            if (s->kind == SPAN_RECEIVE && s->microbatch && s->bytes == bytes[i])
                values[n] = copy[n] = units_s_from_ns(s->end_ns - s->begin_ns), n++;
        }
        if (!n) continue;
        b->sizes = arena_grow(b->arena, b->sizes, b->n_sizes, &b->sizes_capacity, sizeof *b->sizes);
        b->sizes[b->n_sizes++] = (struct link_size){
            l->name, bytes[i], quantile_median_double(values, n), fit_spread(copy, n), (int32_t)n};
    }
}

static enum status measure_link(struct profile_links *b, int32_t link, int64_t repeats,
                                const char *folder, struct profile *p, struct error *err)
{
    int64_t bytes[LINK_SIZES];
    int32_t from = 0, to = 0;
    struct program program;
    struct trace *t = NULL;
    bool crossed = false;
    if (!pair_of(b, link, &from, &to, &crossed)) {
        if (crossed)
            log_warn(
                "link %s: not both ends are on this machine%s: its costs stay the catalogue's prior",
                b->cluster->links[link].name, b->agent ? "" : " (--agent measures other hosts)");
        return OK;
    }
    int32_t n = choose_sizes(b, from, to, bytes);
    log_info("measuring link %s between %s and %s", b->cluster->links[link].name,
             b->cluster->devices[from].name, b->cluster->devices[to].name);
    TRY(bench_link(b->arena, b->cluster, from, to, bytes, n, (int32_t)repeats + 1, &program, err));
    TRY(profile_run_bench(b, &program, folder, &t, err));
    if (between_gpus(b->cluster, from, to)) note_sizes(b, &b->cluster->links[link], bytes, n, t);
    return fit_link(b, &b->cluster->links[link], t, p, err);
}

enum status profile_link_between(struct profile_links *b, int32_t from, int32_t to, const char *name, int64_t repeats,
                                 const char *folder, struct link_model *out, struct error *err)
{
    int64_t sizes[LINK_SIZES], *bytes;
    double *seconds;
    struct program program;
    struct trace *t = NULL;
    struct profile one = {0};
    /* The cluster with a link of just these two: the benchmark's messages take whatever joins them. */
    struct cluster c = *b->cluster;
    c.links = ARENA_ARRAY(b->arena, struct link, (size_t)c.n_links + 1);
    if (c.n_links) memcpy(c.links, b->cluster->links, (size_t)c.n_links * sizeof *c.links);
    c.links[c.n_links++] = (struct link){.name = name, .n_ends = 2, .kind = {END_DEVICE, END_DEVICE}, .end = {from, to}};
    int32_t n = choose_sizes(b, from, to, sizes);
    log_info("measuring %s between %s and %s", name, c.devices[from].name, c.devices[to].name);
    TRY(bench_link(b->arena, &c, from, to, sizes, n, (int32_t)repeats + 1, &program, err));
    TRY(profile_run_bench(b, &program, folder, &t, err));
    size_t n_samples = samples(b->arena, t, &bytes, &seconds);
    TRY(profile_fit_link(b->arena, &one, name, bytes, seconds, n_samples, err));
    *out = one.links[0].model;
    return OK;
}

/* An agent's hosts have the working directory under the same name, but a /tmp of their own. */
enum status profile_bench_folder(struct profile_links *b, const char **out, struct error *err)
{
    const char *base = getenv("TMPDIR");
    char *folder = arena_printf(b->arena, "%s/musher-XXXXXX", base && *base ? base : b->agent ? "." : "/tmp");
    *out = folder;
    return mkdtemp(folder) ? OK : error_set(err, ERR_RESOURCE, "%s: %s", folder, strerror(errno));
}

void profile_bench_folder_gone(const char *folder) { rmdir(folder); }

enum status profile_links_measure(struct profile_links *b, int64_t repeats, struct profile *p,
                                  struct error *err)
{
    const char *folder;
    b->off = ARENA_ARRAY(b->arena, double, (size_t)b->cluster->n_links + 1);
    if (b->cluster->n_devices < 2) return OK;
    TRY(profile_bench_folder(b, &folder, err));
    enum status st = OK;
    for (int32_t i = 0; i < b->cluster->n_links && st == OK; i++)
        st = measure_link(b, i, repeats, folder, p, err);
    if (st == OK && b->agent) st = profile_switches_measure(b, repeats, folder, p, err);
    profile_bench_folder_gone(folder);
    return st;
}

double profile_link_off(const struct profile_links *b, const char *link)
{
    for (int32_t i = 0; i < b->cluster->n_links && b->off; i++)
        if (!strcmp(b->cluster->links[i].name, link)) return b->off[i];
    return 0;
}

/* Medians of each size; the fit uses all samples. */
void profile_sizes_print(const struct profile_links *b)
{
    for (size_t i = 0; i < b->n_sizes; i++) {
        const struct link_size *x = &b->sizes[i];
        char size[32], time[32];
        printf("    %-8s %8s %s (spread %.1f %%, %" PRId32 " samples)\n", x->link,
               units_print_bytes(size, (double)x->bytes),
               units_print_ns(time, units_ns_from_s(x->seconds)), 100 * x->spread, x->samples);
    }
}

void profile_sizes_json(struct json *j, const struct profile_links *b)
{
    json_put_list(j, "messages");
    for (size_t i = 0; i < b->n_sizes; i++) {
        const struct link_size *x = &b->sizes[i];
        json_put_object_line(j, NULL);
        json_put_text(j, "link", x->link);
        json_put_int(j, "bytes", x->bytes);
        json_put_double(j, "seconds", x->seconds);
        json_put_double(j, "spread", x->spread);
        json_put_int(j, "samples", x->samples);
        json_close(j);
    }
    json_close(j);
}
