#include "tools/profile/collectives.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/settings.h"
#include "core/base/units.h"
#include "core/document/json.h"
#include "core/lower/lower.h"
#include "exec/bench/collectives.h"
#include "exec/device_transport/device_comm.h"
#include "exec/plugin.h"
#include "profiles/fit.h"
#include "tools/profile/cuda.h"
#include "traces/quantile.h"
#include "traces/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS_MAX = 64, GROUPS_MAX = 512, BYTES_MIN = 1024, BYTES_FACTOR = 4 };

struct form { /* a table of the profile */
    enum collective_kind kind;
    enum collective_algorithm by;
    int64_t first_share;
    const char *name, *shares; /* name "": the library's own algorithm; shares "": equal */
};
static const struct form forms[] = {
    {COLLECTIVE_ALL_REDUCE, ALGORITHM_RING, 1, "", ""},
    {COLLECTIVE_ALL_GATHER, ALGORITHM_RING, 1, "", ""},
    {COLLECTIVE_REDUCE_SCATTER, ALGORITHM_RING, 1, "", ""},
    {COLLECTIVE_ALL_GATHER, ALGORITHM_RING, 2, "padded", "2:1"},
    {COLLECTIVE_REDUCE_SCATTER, ALGORITHM_RING, 2, "padded", "2:1"},
    {COLLECTIVE_ALL_GATHER, ALGORITHM_PAIRS, 2, "grouped", "2:1"},
    {COLLECTIVE_REDUCE_SCATTER, ALGORITHM_PAIRS, 2, "grouped", "2:1"},
    {COLLECTIVE_ALL_GATHER, ALGORITHM_PAIRS, 8, "pairwise", "8:1"},
    {COLLECTIVE_REDUCE_SCATTER, ALGORITHM_PAIRS, 8, "pairwise", "8:1"}};
enum { FORMS = sizeof forms / sizeof *forms };

struct team { /* members of a collective */
    int32_t n, n_nodes, device[GPUS_MAX];
    const char *type; /* collective_table_device */
};

/* ---- members ------------------------------------------------------------------------------------ */

/* Each GPU once, because two devices of the cluster on one GPU have no link between them. */
static struct team gpus_here(const struct profile_links *b)
{
    const struct cluster *c = b->cluster;
    struct team t = {0};
    for (int32_t i = 0; i < c->n_devices && t.n < GPUS_MAX; i++) {
        bool again = false;
        for (int32_t k = 0; k < t.n; k++) again |= profile_same_gpu(c, i, t.device[k]);
        struct program_device d = lower_device(c, i);
        if (!program_device_is_host(&d) && profile_is_here(b->gpus, i) && !again)
            t.device[t.n++] = i;
    }
    return t;
}

/* The first m GPUs of each of the first k nodes that have m: groups that a table's key (ranks, nodes) describes. False: none. */
static bool team_of(const struct cluster *c, const struct team *all, int32_t k, int32_t m,
                    struct team *out)
{
    *out = (struct team){.n_nodes = k};
    for (int32_t node = 0; node < c->n_nodes && out->n < k * m; node++) {
        int32_t found = 0;
        for (int32_t i = 0; i < all->n; i++) found += c->devices[all->device[i]].node == node;
        if (found < m) continue;
        for (int32_t i = 0, taken = 0; i < all->n && taken < m; i++)
            if (c->devices[all->device[i]].node == node)
                out->device[out->n++] = all->device[i], taken++;
    }
    return out->n == k * m;
}

/* The reason if two members have no link; NULL: measurable. */
static const char *why_not(struct arena *a, const struct cluster *c, const struct team *t)
{
    int32_t direction;
    for (int32_t i = 0; i < t->n; i++)
        for (int32_t k = 0; k < t->n; k++)
            if (i != k && cluster_link(c, t->device[i], t->device[k], &direction) < 0)
                return arena_printf(a, "%s and %s have no common link",
                                    c->devices[t->device[i]].name, c->devices[t->device[k]].name);
    return NULL;
}

static const char *names_of(struct arena *a, const struct cluster *c, const struct team *t)
{
    const char *text = c->devices[t->device[0]].name;
    for (int32_t i = 1; i < t->n; i++)
        text = arena_printf(a, "%s %s", text, c->devices[t->device[i]].name);
    return text;
}

/* The communication library's version as text; NULL: unavailable, with the reason in *why. */
static const char *library_of(struct arena *a, const struct profile_links *b, int32_t device,
                              struct error *why)
{
    struct backend x;
    const char *text = NULL;
    if (settings_host_transport()) {
        error_set(why, ERR_RESOURCE,
                  "MUSHER_TRANSPORT=host routes collectives through host memory");
        return NULL;
    }
    if (plugin_open_backend(lower_device(b->cluster, device).kind, &x, why) != OK) return NULL;
    if (x.open(&x, b->cluster->devices[device].index, why) != OK) return NULL;
    int32_t v = x.comm ? x.comm->version : 0;
    if (x.comm)
        text = arena_printf(a, "%s %" PRId32 ".%" PRId32 ".%" PRId32, x.comm->name, v / 10000,
                            v / 100 % 100, v % 100);
    else
        error_set(why, ERR_RESOURCE, "the communication library does not load");
    x.close(&x);
    return text;
}

/* ---- benchmarks --------------------------------------------------------------------------------- */

static bool is_known(const struct profile *p, const struct form *f, const struct team *t)
{
    for (size_t i = 0; i < p->n_collectives; i++) {
        const struct collective_row *r = &p->collectives[i];
        if (r->kind == f->kind && r->n_ranks == t->n && r->n_nodes == t->n_nodes &&
            (!r->device || !*r->device || !strcmp(r->device, t->type)) &&
            !strcmp(r->algorithm, f->name) && !strcmp(r->protocol, f->shares))
            return true;
    }
    return false;
}

/* The collectives measured: form[k] of what[k]. */
static int32_t choose(const struct profile_links *b, const struct profile *p, const struct team *t,
                      bool again, struct bench_collective *what, int32_t *form)
{
    int32_t n = 0;
    for (int32_t f = 0; f < FORMS; f++) {
        if (!again && is_known(p, &forms[f], t)) continue;
        for (int64_t bytes = BYTES_MIN; bytes <= b->largest_bytes && n < GROUPS_MAX;
             bytes *= BYTES_FACTOR) {
            form[n] = f;
            what[n++] = (struct bench_collective){.kind = forms[f].kind,
                                                  .algorithm = forms[f].by,
                                                  .bytes = bytes,
                                                  .first_share = forms[f].first_share};
        }
    }
    return n;
}

/* The time of a collective is the shortest span of its members, because the last member to arrive does not wait. The first repetition
 * is warm-up. */
static size_t samples_of(struct arena *a, const struct trace *t, int32_t group, int32_t repeats,
                         double **out)
{
    double *best = ARENA_ARRAY(a, double, (size_t)repeats + 1);
    size_t n = 0;
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i];
        if (s->kind != SPAN_REDUCE || s->op != group || s->microbatch < 1 ||
            s->microbatch > repeats)
            continue;
        double seconds = units_s_from_ns(s->end_ns - s->begin_ns);
        double *x = &best[s->microbatch];
        if (!(*x > 0) || seconds < *x) *x = seconds;
    }
    *out = ARENA_ARRAY(a, double, (size_t)repeats + 1);
    for (int32_t i = 1; i <= repeats; i++)
        if (best[i] > 0) (*out)[n++] = best[i];
    return n;
}

static size_t rows_of(struct arena *a, const struct program *program, const struct trace *t,
                      const struct team *team, const int32_t *form, int32_t n, int32_t repeats,
                      const char *provenance, struct collective_row *rows)
{
    size_t made = 0;
    for (int32_t k = 0; k < n; k++) {
        const struct form *f = &forms[form[k]];
        double *seconds = NULL, *copy = ARENA_ARRAY(a, double, (size_t)repeats + 1);
        size_t samples = samples_of(a, t, k, repeats, &seconds);
        if (!samples) continue;
        memcpy(copy, seconds, samples * sizeof *copy);
        rows[made++] = (struct collective_row){.kind = f->kind,
                                               .n_ranks = team->n,
                                               .n_nodes = team->n_nodes,
                                               .algorithm = f->name,
                                               .protocol = f->shares,
                                               .bytes = program->collectives[k].elements *
                                                        dtype_bytes(DTYPE_fp32),
                                               .seconds = quantile_median_double(seconds, samples),
                                               .spread = fit_spread(copy, samples),
                                               .samples = (int32_t)samples,
                                               .provenance = provenance,
                                               .device = team->type};
    }
    return made;
}

/* ---- measurement -------------------------------------------------------------------------------- */

static enum status measure_team(struct profile_links *b, const struct team *t, const char *library,
                                int64_t repeats, bool again, const char *folder, struct profile *p,
                                size_t *measured, struct error *err)
{
    struct bench_collective *what = ARENA_ARRAY(b->arena, struct bench_collective, GROUPS_MAX);
    int32_t *form = ARENA_ARRAY(b->arena, int32_t, GROUPS_MAX);
    struct collective_row *rows = ARENA_ARRAY(b->arena, struct collective_row, GROUPS_MAX);
    struct program program;
    struct trace *trace = NULL;
    const char *names = names_of(b->arena, b->cluster, t), *why = why_not(b->arena, b->cluster, t);
    if (why) {
        log_warn("collectives of %s are not measured: %s", names, why);
        return OK;
    }
    int32_t n = choose(b, p, t, again, what, form);
    if (!n) return OK;
    log_info("measuring %" PRId32 " collectives of %s", n, names);
    TRY(bench_collectives(b->arena, b->cluster, t->device, t->n, what, n, (int32_t)repeats + 1,
                          &program, err));
    TRY(profile_run_bench(b, &program, folder, &trace, err));
    size_t made = rows_of(b->arena, &program, trace, t, form, n, (int32_t)repeats,
                          arena_printf(b->arena, "profile, %s, %s", names, library), rows);
    *measured += made;
    return collective_table_merge(b->arena, p->collectives, p->n_collectives, rows, made,
                                  &p->collectives, &p->n_collectives, err);
}

/* 1 … 8, 16, 32 … */
static int32_t next_number(int32_t n) { return n < 8 ? n + 1 : 2 * n; }

static enum status measure_all(struct profile_links *b, const struct team *all, const char *library,
                               int64_t repeats, bool again, const char *folder, struct profile *p,
                               size_t *measured, struct error *err)
{
    struct team t;
    for (int32_t k = 1; k <= all->n; k = next_number(k))
        for (int32_t m = 1; k * m <= all->n; m = next_number(m))
            if (k * m > 1 && team_of(b->cluster, all, k, m, &t)) {
                t.type = collective_table_device(b->arena, b->cluster, t.device, t.n);
                TRY(measure_team(b, &t, library, repeats, again, folder, p, measured, err));
            }
    return OK;
}

static int32_t tp_of(const struct cluster *c)
{
    int32_t n = 0;
    for (int32_t i = 0; i < c->n_devices; i++) {
        struct program_device d = lower_device(c, i);
        n += !program_device_is_host(&d);
    }
    return n;
}

enum status profile_collectives_measure(struct profile_links *b, int64_t repeats, bool again,
                                        struct profile *p, size_t *measured, struct error *err)
{
    struct team all = gpus_here(b);
    struct error why = {.code = OK};
    const char *folder;
    *measured = 0;
    if (b->cluster->emulated || tp_of(b->cluster) < 2) return OK;
    if (all.n < 2) {
        log_warn("collectives are not measured: this machine has %" PRId32 " of the cluster's "
                 "GPUs, and 2 are needed",
                 all.n);
        return OK;
    }
    const char *library = library_of(b->arena, b, all.device[0], &why);
    if (!library) {
        log_warn("collectives are not measured: %s", why.text);
        return OK;
    }
    TRY(profile_bench_folder(b, &folder, err));
    enum status st = measure_all(b, &all, library, repeats, again, folder, p, measured, err);
    profile_bench_folder_gone(folder);
    return st;
}

/* ---- output ------------------------------------------------------------------------------------- */

/* The largest size of each table, which is limited by bandwidth. */
void profile_collectives_print(const struct profile *p)
{
    size_t at = 0;
    struct collective_table t;
    while (collective_table_next(p->collectives, p->n_collectives, &at, &t)) {
        const struct collective_row *r = &t.rows[t.n - 1];
        char size[32], time[32];
        printf("  %-14s %" PRId32 " ranks, %" PRId32 " node%s%s%s%s%s: %zu sizes, %s in %s "
               "(spread %.1f %%)\n",
               collective_kind_name(r->kind), r->n_ranks, r->n_nodes, r->n_nodes > 1 ? "s" : "",
               *r->algorithm ? ", " : "", r->algorithm, *r->protocol ? " " : "", r->protocol, t.n,
               units_print_bytes(size, (double)r->bytes),
               units_print_ns(time, units_ns_from_s(r->seconds)), 100 * r->spread);
    }
}

void profile_collectives_json(struct json *j, const struct profile *p)
{
    json_put_list(j, "collectives");
    for (size_t i = 0; i < p->n_collectives; i++) {
        const struct collective_row *r = &p->collectives[i];
        json_put_object_line(j, NULL);
        json_put_text(j, "kind", collective_kind_name(r->kind));
        json_put_int(j, "ranks", r->n_ranks);
        json_put_int(j, "nodes", r->n_nodes);
        json_put_text(j, "device", r->device ? r->device : "");
        json_put_text(j, "algorithm", r->algorithm);
        json_put_text(j, "protocol", r->protocol);
        json_put_int(j, "bytes", r->bytes);
        json_put_double(j, "seconds", r->seconds);
        json_put_double(j, "spread", r->spread);
        json_put_int(j, "samples", r->samples);
        json_put_text(j, "provenance", r->provenance);
        json_close(j);
    }
    json_close(j);
}
