/* musher import nccl-tests FILE --cluster C --db DB: the medians of a run of nccl-tests become a table of the cluster's
 * next profile. Its parent is the newest profile of that cluster, or the prior if there is none; a table of the
 * same kind, ranks and nodes replaces the parent's. */
#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "profiles/fit.h"
#include "profiles/store.h"
#include "profiles/team.h"
#include "tools/common.h"
#include "tools/import/import.h"
#include "traces/import_nccl_tests.h"
#include "traces/quantile.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_bytes(const void *a, const void *b)
{
    int64_t x = ((const struct nccl_sample *)a)->bytes, y = ((const struct nccl_sample *)b)->bytes;
    return x < y ? -1 : x > y;
}

/* One row a size; out-of-place, in-place and repeated runs are its samples. */
static size_t rows_of(struct arena *a, const struct nccl_tests *t, const char *path,
                      const char *device, struct collective_row **out)
{
    const char *slash = strrchr(path, '/');
    const char *from =
        arena_printf(a, "nccl-tests %s%s%s%s%s", slash ? slash + 1 : path,
                     *t->version ? ", NCCL " : "", t->version, *t->device ? ", " : "", t->device);
    double *values = ARENA_ARRAY(a, double, t->n), *copy = ARENA_ARRAY(a, double, t->n);
    size_t n = 0;
    *out = ARENA_ARRAY(a, struct collective_row, t->n);
    qsort(t->samples, t->n, sizeof *t->samples, by_bytes);
    for (size_t first = 0, end; first < t->n; first = end) {
        for (end = first; end < t->n && t->samples[end].bytes == t->samples[first].bytes; end++)
            values[end - first] = copy[end - first] = t->samples[end].seconds;
        (*out)[n++] =
            (struct collective_row){.kind = t->kind,
                                    .n_ranks = t->n_ranks,
                                    .n_nodes = t->n_nodes,
                                    .algorithm = "",
                                    .protocol = "",
                                    .bytes = t->samples[first].bytes,
                                    .seconds = quantile_median_double(values, end - first),
                                    .spread = fit_spread(copy, end - first),
                                    .samples = (int32_t)(end - first),
                                    .provenance = from,
                                    .device = device};
    }
    return n;
}

static enum status parent_of(struct arena *a, struct store *s, const struct cluster *c,
                             struct profile *out, struct error *err)
{
    int64_t id = -1;
    bool exact = true;
    enum status st = store_latest(s, common_cluster_hash(a, c), c, &id, &exact, err);
    if (st != OK && id) return st;
    if (id) return store_load(s, a, id, out, err);
    *out = (struct profile){.machine = "",
                            .note = "tables of collectives; all else is the catalogue's prior",
                            .calibrated_on = "",
                            .pace = 1};
    return OK;
}

static enum status append(struct arena *a, const struct cluster *c, struct store *s,
                          const struct collective_row *rows, size_t n, struct profile *out,
                          struct error *err)
{
    struct profile parent;
    TRY(parent_of(a, s, c, &parent, err));
    *out = parent;
    out->parent = parent.id;
    out->id = 0;
    out->cluster = c->name;
    out->cluster_hash = common_cluster_hash(a, c);
    TRY(collective_table_merge(a, parent.collectives, parent.n_collectives, rows, n,
                               &out->collectives, &out->n_collectives, err));
    return store_append(s, out, err);
}

/* The catalogue id of all ranks: that of all devices of the cluster, else the one that the device's name has in it ("NVIDIA
 * A100-SXM4-80GB"). "": not known, so that the table holds for any device. */
static const char *device_of(const struct cluster *c, const struct nccl_tests *t)
{
    const char *found = "", *first = c->types[c->devices[0].type].catalogue;
    bool alike = true;
    for (int32_t i = 0; i < c->n_devices; i++) {
        const char *id = c->types[c->devices[i].type].catalogue;
        alike &= !strcmp(id, first);
        if (!t->mixed && strstr(t->device, id) && strlen(id) > strlen(found)) found = id;
    }
    return alike ? first : found;
}

static void warn(const struct import_request *q, const struct nccl_tests *t,
                 const struct cluster *c)
{
    if (!t->complete)
        log_warn("%s: the closing lines are missing; is the file truncated?", q->path);
    if (t->mixed) log_warn("%s: devices of several names; the first is %s", q->path, t->device);
    if (t->empty_rows) log_info("%s: %d rows of 0 bytes skipped", q->path, (int)t->empty_rows);
    if (t->n_ranks > c->n_devices || t->n_nodes > c->n_nodes)
        log_warn("%s: %d ranks on %d hosts are more than cluster %s has", q->path, (int)t->n_ranks,
                 (int)t->n_nodes, c->name);
}

/* Mean leave-one-out error |interpolated ÷ measured − 1|: the accuracy between rows. */
static double left_out_error(const struct collective_table *t)
{
    double sum = 0;
    for (size_t i = 1; i + 1 < t->n; i++)
        sum += fabs(collective_table_left_out(t, i) / t->rows[i].seconds - 1);
    return t->n > 2 ? sum / (double)(t->n - 2) : NAN;
}

static void report(const struct import_request *q, const struct nccl_tests *t,
                   const struct profile *p, const struct collective_row *rows, size_t n)
{
    const struct collective_row *last = &rows[n - 1];
    double between = left_out_error(&(struct collective_table){rows, n});
    double bus = collective_bus_factor(t->kind, t->n_ranks) * (double)last->bytes / last->seconds;
    if (q->json) {
        struct json j;
        common_json_begin(&j);
        json_put_int(&j, "profile_id", p->id);
        json_put_int(&j, "parent", p->parent);
        json_put_text(&j, "kind", collective_kind_name(t->kind));
        json_put_int(&j, "ranks", t->n_ranks);
        json_put_int(&j, "nodes", t->n_nodes);
        json_put_text(&j, "device", t->device);
        json_put_text(&j, "nccl", t->version);
        json_put_int(&j, "rows", (int64_t)n);
        json_put_int(&j, "samples", (int64_t)t->n);
        json_put_int(&j, "least_bytes", rows[0].bytes);
        json_put_int(&j, "max_bytes", last->bytes);
        json_put_double(&j, "bus_Bps", bus);
        json_put_double(&j, "left_out_error", between);
        json_put_bool(&j, "complete", t->complete);
        common_json_end(&j);
        return;
    }
    char least[32], most[32], rate[32];
    printf("profile %" PRId64 " (parent %" PRId64 "): %s of %" PRId32 " ranks on %" PRId32
           " nodes, %zu sizes from %s to %s, bus bandwidth %s at the last",
           p->id, p->parent, collective_kind_name(t->kind), t->n_ranks, t->n_nodes, n,
           units_print_bytes(least, (double)rows[0].bytes),
           units_print_bytes(most, (double)last->bytes), units_print_bytes_per_s(rate, bus));
    if (isfinite(between)) printf("; leave-one-out error %.1f %%", 100 * between);
    printf("\n");
}

enum status import_nccl_tests(struct arena *a, const struct import_request *q, struct error *err)
{
    struct cluster c;
    struct nccl_tests t;
    struct store *s = NULL;
    struct profile p = {0};
    struct collective_row *rows = NULL;
    if (!q->cluster || !q->db)
        return error_set(err, ERR_USAGE, "import nccl-tests needs --cluster and --db");
    if (q->out) return error_set(err, ERR_USAGE, "import nccl-tests writes to --db, not to --out");
    TRY(cluster_read(a, q->cluster, &c, err));
    TRY(team_complete(&c, err));
    TRY(import_nccl_tests_read(a, q->path, &t, err));
    size_t n = rows_of(a, &t, q->path, device_of(&c, &t), &rows);
    warn(q, &t, &c);
    TRY(store_open(a, q->db, true, &s, err));
    enum status st = append(a, &c, s, rows, n, &p, err);
    store_close(s);
    if (st == OK) report(q, &t, &p, rows, n);
    return st;
}
