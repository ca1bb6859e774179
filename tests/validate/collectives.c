#include "tests/validate/collectives.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/units.h"
#include "core/document/json.h"
#include "profiles/collective_table.h"
#include "tools/common.h"
#include "traces/quantile.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LUT "nccl_allreduce_vtrain_lut_pow2.csv"
#define BUSBW "nccl_busbw_measured.csv"
enum { FIELDS = 9, LARGE = 64 << 20 };
/* Of a node of B200 in the published rows: 8 × 50 GB/s (EFA v4, "50GB/s per accelerator" in their source column). */
static const double B200_NETWORK_BPS = 8 * 50e9;
/* Bus bandwidths are printed with two decimals, so a row below this is accurate to 5 % at best. */
static const double MIN_BUSBW = .1;

/* GPU names of the tables and their catalogue ids: all with NVLink, according to their bandwidths and sources. */
static const struct {
    const char *gpu, *catalogue;
} tp[] = {
    {"A100", "A100-SXM4-40"}, {"V100", "V100-SXM2-16"}, {"H200", "H200-SXM"}, {"B200", "B200-SXM"}};

struct table_file {
    struct arena *arena;
    const char *name;
    char *at;
    int line;
    struct published_collective **rows;
    size_t *n, capacity;
};

/* --- reading --------------------------------------------------------------------------------- */

/* The fields of the next line, without quotes; 0 at the end. */
static int next_line(struct table_file *f, char *field[FIELDS])
{
    int n = 0;
    if (!*f->at) return 0;
    f->line++;
    for (bool more = true; more && n < FIELDS;) {
        bool quoted = *f->at == '"';
        char *begin = f->at + quoted, *end = begin + strcspn(begin, quoted ? "\"\n" : ",\r\n");
        char *stop = end + (quoted && *end == '"');
        more = *stop == ',';
        if (*stop == '\r') stop++;
        f->at = *stop ? stop + 1 : stop;
        *end = 0;
        field[n++] = begin;
    }
    return n;
}

static enum status number(const struct table_file *f, const char *text, const char *name,
                          double *out, struct error *err)
{
    if (units_parse_number(text, out) && *out >= 0) return OK;
    return error_set(err, ERR_INPUT, "%s:%d: %s: '%s' is not a number", f->name, f->line, name,
                     text);
}

static enum status predict(struct published_collective *r, struct error *err)
{
    struct nccl_system s;
    for (size_t i = 0; i < sizeof tp / sizeof *tp; i++) {
        if (strcmp(tp[i].gpu, r->gpu) != 0) continue;
        TRY(nccl_system_of(tp[i].catalogue, r->n_ranks, r->n_nodes, B200_NETWORK_BPS, &s, err));
        if (strstr(r->algorithm, "NVLS off")) s.nvls_channels = 0;
        return nccl_choose(NCCL_VERSION_DEFAULT, &s, r->kind, r->bytes, &r->prior, err);
    }
    r->left_out = "no GPU of NVIDIA's that the row names";
    return OK;
}

static enum status add(struct table_file *f, struct published_collective row, struct error *err)
{
    row.file = f->name;
    row.line = f->line;
    row.gpu = arena_strdup(f->arena, row.gpu);
    row.algorithm = arena_strdup(f->arena, row.algorithm);
    row.source = arena_strdup(f->arena, row.source);
    if (!row.left_out) TRY(predict(&row, err));
    *f->rows = arena_grow(f->arena, *f->rows, *f->n, &f->capacity, sizeof row);
    (*f->rows)[(*f->n)++] = row;
    return OK;
}

static enum status lut_line(struct table_file *f, char **field, int n, struct error *err)
{
    double ranks, bytes, out, in;
    if (n != 8) return error_set(err, ERR_INPUT, "%s:%d: %d fields of 8", f->name, f->line, n);
    TRY(number(f, field[1], "gpus", &ranks, err));
    TRY(number(f, field[2], "size_bytes", &bytes, err));
    TRY(number(f, field[3], "oop_time_ns", &out, err));
    TRY(number(f, field[5], "ip_time_ns", &in, err));
    return add(f,
               (struct published_collective){.gpu = field[0],
                                             .algorithm = "?",
                                             .of_a_table = true,
                                             .source = field[7],
                                             .kind = COLLECTIVE_ALL_REDUCE,
                                             .n_ranks = (int32_t)ranks,
                                             .n_nodes = 1,
                                             .bytes = (int64_t)bytes,
                                             .seconds = (out + in) / 2 * 1e-9},
               err);
}

static const char *why_not(const struct published_collective *r, bool kind_known, double size,
                           double busbw)
{
    if (!kind_known) return "not one of the five collectives";
    if (!(size > 0)) return "its size is not said";
    if (r->n_ranks < 2) return "its number of ranks is not said";
    if (busbw < MIN_BUSBW) return "too few digits";
    return NULL;
}

static enum status busbw_line(struct table_file *f, char **field, int n, struct error *err)
{
    double nodes, ranks = 0, busbw, size = 0;
    struct published_collective r = {.gpu = field[0]};
    if (n != 9) return error_set(err, ERR_INPUT, "%s:%d: %d fields of 9", f->name, f->line, n);
    TRY(number(f, field[1], "nodes", &nodes, err));
    if (*field[2]) TRY(number(f, field[2], "gpus", &ranks, err));
    TRY(number(f, field[6], "busbw_GBps", &busbw, err));
    bool kind = collective_kind_parse(field[3], &r.kind);
    if (!units_parse_bytes(field[4], &size)) size = 0;
    r.algorithm = field[5];
    r.source = field[8];
    r.n_ranks = (int32_t)ranks, r.n_nodes = (int32_t)nodes;
    r.bytes = (int64_t)size;
    r.left_out = why_not(&r, kind, size, busbw);
    if (!r.left_out) r.seconds = size * collective_bus_factor(r.kind, r.n_ranks) / (busbw * 1e9);
    return add(f, r, err);
}

/* The header determines the format. */
static enum status read_csv(struct arena *a, const char *path, struct published_collective **rows,
                            size_t *n, size_t *capacity, struct error *err)
{
    const char *slash = strrchr(path, '/');
    struct table_file f = {
        .arena = a, .name = slash ? slash + 1 : path, .rows = rows, .n = n, .capacity = *capacity};
    size_t length = 0;
    char *field[FIELDS];
    TRY(file_read(a, path, (size_t)1 << 24, &f.at, &length, err));
    int fields = next_line(&f, field);
    bool lut = fields == 8 && !strcmp(field[2], "size_bytes");
    if (!lut && (fields != 9 || strcmp(field[6], "busbw_GBps") != 0))
        return error_set(err, ERR_INPUT,
                         "%s:1: not the columns of " LUT " (gpu,gpus,size_bytes,…) or " BUSBW
                         " (gpu,nodes,gpus,collective,…)",
                         path);
    while ((fields = next_line(&f, field)))
        TRY(lut ? lut_line(&f, field, fields, err) : busbw_line(&f, field, fields, err));
    *capacity = f.capacity;
    return OK;
}

enum status validate_collectives_read(struct arena *a, const char *folder_or_table,
                                      struct published_collective **out, size_t *n,
                                      struct error *err)
{
    size_t capacity = 0, length = strlen(folder_or_table);
    *out = NULL;
    *n = 0;
    if (length > 4 && !strcmp(folder_or_table + length - 4, ".csv"))
        return read_csv(a, folder_or_table, out, n, &capacity, err);
    TRY(read_csv(a, arena_printf(a, "%s/" LUT, folder_or_table), out, n, &capacity, err));
    return read_csv(a, arena_printf(a, "%s/" BUSBW, folder_or_table), out, n, &capacity, err);
}

/* --- errors ---------------------------------------------------------------------------------- */

static double error_of(const struct published_collective *r)
{
    return r->prior.seconds / r->seconds - 1;
}

/* Ranks of values; ties share their mean rank. O(n²), because tables are short. */
static void rank(const double *x, size_t n, double *out)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = 1;
        for (size_t k = 0; k < n; k++) {
            if (x[k] < x[i]) out[i] += 1;
            if (k != i && x[k] == x[i]) out[i] += .5;
        }
    }
}

static double spearman(struct arena *a, const double *x, const double *y, size_t n)
{
    double *u = ARENA_ARRAY(a, double, n), *v = ARENA_ARRAY(a, double, n);
    double mean = ((double)n + 1) / 2, uv = 0, uu = 0, vv = 0;
    if (n < 3) return NAN;
    rank(x, n, u);
    rank(y, n, v);
    for (size_t i = 0; i < n; i++) {
        uv += (u[i] - mean) * (v[i] - mean);
        uu += (u[i] - mean) * (u[i] - mean);
        vv += (v[i] - mean) * (v[i] - mean);
    }
    return uv / sqrt(uu * vv);
}

static bool belongs(const struct published_collective *r, const struct published_group *g)
{
    if (r->left_out || (g->gpu && strcmp(r->gpu, g->gpu) != 0)) return false;
    return !g->n_ranks || (r->n_ranks == g->n_ranks && r->n_nodes == g->n_nodes);
}

/* The all-reduces of the vTrain table as a collective table: leave-one-out interpolation of each inner row. */
static double between_rows(struct arena *a, const struct published_collective *rows, size_t n,
                           const struct published_group *g)
{
    struct collective_row *table = ARENA_ARRAY(a, struct collective_row, n);
    size_t m = 0;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        if (g->n_ranks && belongs(&rows[i], g) && rows[i].of_a_table)
            table[m++] = (struct collective_row){.n_ranks = g->n_ranks,
                                                 .n_nodes = 1,
                                                 .algorithm = "",
                                                 .protocol = "",
                                                 .bytes = rows[i].bytes,
                                                 .seconds = rows[i].seconds};
    if (m < 3 || collective_table_sort(table, m, NULL) != OK) return NAN;
    struct collective_table t = {table, m};
    for (size_t i = 1; i + 1 < m; i++)
        sum += fabs(collective_table_left_out(&t, i) / table[i].seconds - 1);
    return sum / (double)(m - 2);
}

static void fill(struct arena *a, const struct published_collective *rows, size_t n,
                 struct published_group *g)
{
    double *off = ARENA_ARRAY(a, double, n), *x = ARENA_ARRAY(a, double, n),
           *y = ARENA_ARRAY(a, double, n);
    double large = 0;
    int32_t n_large = 0;
    for (size_t i = 0; i < n; i++) {
        if (!belongs(&rows[i], g)) continue;
        if (rows[i].bytes >= LARGE) large += fabs(error_of(&rows[i])), n_large++;
        x[g->n] = rows[i].seconds, y[g->n] = rows[i].prior.seconds;
        off[g->n] = fabs(error_of(&rows[i]));
        if (rows[i].algorithm[0] != '?') {
            const char *name = nccl_algorithm_names[rows[i].prior.algorithm];
            g->n_known++;
            g->n_chosen += !strncmp(rows[i].algorithm, name, strlen(name));
        }
        g->bias += error_of(&rows[i]);
        g->mape += off[g->n++];
    }
    g->mape /= (double)g->n, g->bias /= (double)g->n;
    g->large = n_large ? large / n_large : NAN;
    g->p90 = quantile(off, g->n, .9);
    g->rank = spearman(a, x, y, g->n);
    g->between = between_rows(a, rows, n, g);
}

/* Adds a group if the row belongs to none of those from first on. */
static void seek(struct published_group *groups, size_t first, size_t *n_groups,
                 const struct published_collective *r, bool by_ranks)
{
    for (size_t k = first; k < *n_groups; k++)
        if (belongs(r, &groups[k])) return;
    if (!r->left_out)
        groups[(*n_groups)++] = (struct published_group){.gpu = r->gpu,
                                                         .n_ranks = by_ranks ? r->n_ranks : 0,
                                                         .n_nodes = by_ranks ? r->n_nodes : 0};
}

struct published_group *validate_collectives_groups(struct arena *a,
                                                    const struct published_collective *rows,
                                                    size_t n, size_t *n_groups)
{
    struct published_group *groups = ARENA_ARRAY(a, struct published_group, 2 * n + 1);
    *n_groups = 0;
    for (size_t i = 0; i < n; i++) seek(groups, 0, n_groups, &rows[i], true);
    size_t types = *n_groups;
    for (size_t i = 0; i < n; i++) seek(groups, types, n_groups, &rows[i], false);
    if (*n_groups) ++*n_groups; /* all together */
    for (size_t k = 0; k < *n_groups; k++) fill(a, rows, n, &groups[k]);
    return groups;
}

/* --- printing -------------------------------------------------------------------------------- */

static void print_rows(const struct published_collective *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct published_collective *r = &rows[i];
        char bytes[32], measured[32], prior[32];
        if (r->left_out) {
            printf("%-36s line %-4d %s: left out: %s\n", r->file, r->line, r->gpu, r->left_out);
            continue;
        }
        printf("%-36s line %-4d %s %" PRId32 " on %" PRId32 " %-14s %9s measured %10s, prior %10s "
               "%s/%s %+.1f %%\n",
               r->file, r->line, r->gpu, r->n_ranks, r->n_nodes, collective_kind_name(r->kind),
               units_print_bytes(bytes, (double)r->bytes),
               units_print_ns(measured, units_ns_from_s(r->seconds)),
               units_print_ns(prior, units_ns_from_s(r->prior.seconds)),
               nccl_algorithm_names[r->prior.algorithm], nccl_protocol_names[r->prior.protocol],
               100 * error_of(r));
    }
}

static void print_groups(const struct published_group *g, size_t n)
{
    printf("NCCL %s's model as a prior (nothing fitted):\n", NCCL_VERSION_DEFAULT);
    for (size_t i = 0; i < n; i++) {
        if (g[i].n_ranks)
            printf("  %-5s %2" PRId32 " ranks on %" PRId32 " nodes, %3zu rows: ", g[i].gpu,
                   g[i].n_ranks, g[i].n_nodes, g[i].n);
        else
            printf("  %-11s               %4zu rows: ", g[i].gpu ? g[i].gpu : "all of them",
                   g[i].n);
        printf("mean error %5.1f %%, P90 %5.1f %%, bias %+6.1f %%", 100 * g[i].mape, 100 * g[i].p90,
               100 * g[i].bias);
        if (isfinite(g[i].large)) printf(", from 64 MiB %.1f %%", 100 * g[i].large);
        if (isfinite(g[i].rank)) printf(", rank correlation %.3f", g[i].rank);
        if (g[i].n_known) printf(", the algorithm of %zu of %zu", g[i].n_chosen, g[i].n_known);
        if (isfinite(g[i].between)) printf("; table, row left out %.1f %%", 100 * g[i].between);
        printf("\n");
    }
}

static void put_json(const struct published_collective *rows, size_t n,
                     const struct published_group *g, size_t n_groups)
{
    struct json j;
    common_json_begin(&j);
    json_put_text(&j, "nccl", NCCL_VERSION_DEFAULT);
    json_put_list(&j, "groups");
    for (size_t i = 0; i < n_groups; i++) {
        json_put_object_line(&j, NULL);
        json_put_text(&j, "gpu", g[i].gpu);
        json_put_int(&j, "ranks", g[i].n_ranks);
        json_put_int(&j, "nodes", g[i].n_nodes);
        json_put_int(&j, "rows", (int64_t)g[i].n);
        json_put_double(&j, "mean_error", g[i].mape);
        json_put_double(&j, "p90_error", g[i].p90);
        json_put_double(&j, "bias", g[i].bias);
        json_put_double(&j, "mean_error_from_64MiB", g[i].large);
        json_put_double(&j, "rank_correlation", g[i].rank);
        json_put_double(&j, "left_out_error", g[i].between);
        json_put_int(&j, "algorithm_known", (int64_t)g[i].n_known);
        json_put_int(&j, "algorithm_right", (int64_t)g[i].n_chosen);
        json_close(&j);
    }
    json_close(&j);
    json_put_list(&j, "rows");
    for (size_t i = 0; i < n; i++) {
        const struct published_collective *r = &rows[i];
        json_put_object_line(&j, NULL);
        json_put_text(&j, "file", r->file);
        json_put_int(&j, "line", r->line);
        json_put_text(&j, "gpu", r->gpu);
        json_put_text(&j, "left_out", r->left_out);
        if (!r->left_out) {
            json_put_int(&j, "ranks", r->n_ranks);
            json_put_int(&j, "nodes", r->n_nodes);
            json_put_text(&j, "kind", collective_kind_name(r->kind));
            json_put_int(&j, "bytes", r->bytes);
            json_put_double(&j, "measured_s", r->seconds);
            json_put_double(&j, "prior_s", r->prior.seconds);
            json_put_text(&j, "algorithm", nccl_algorithm_names[r->prior.algorithm]);
            json_put_text(&j, "protocol", nccl_protocol_names[r->prior.protocol]);
            json_put_double(&j, "error", error_of(r));
        }
        json_put_text(&j, "source", r->source);
        json_close(&j);
    }
    json_close(&j);
    common_json_end(&j);
}

enum status validate_collectives(struct arena *a, const char *folder_or_table, bool json,
                                 struct error *err)
{
    struct published_collective *rows = NULL;
    size_t n = 0, n_groups = 0;
    TRY(validate_collectives_read(a, folder_or_table, &rows, &n, err));
    struct published_group *groups = validate_collectives_groups(a, rows, n, &n_groups);
    if (json) {
        put_json(rows, n, groups, n_groups);
        return OK;
    }
    print_rows(rows, n);
    print_groups(groups, n_groups);
    return OK;
}
