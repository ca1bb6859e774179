/* Time of a collective on a cluster by algorithm: the closed form (every hop has its link alone), the simulation of its transfers on the
 * cluster's links, NCCL's own estimate for NVIDIA GPUs, and the measured time if the profile has a table. */
#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/nearest.h"
#include "core/base/units.h"
#include "core/collective/rounds.h"
#include "profiles/team.h"
#include "sim/collective/price.h"
#include "sim/collective/routes.h"
#include "sim/collective/steps.h"
#include "tools/cmd.h"
#include "tools/common.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct request {
    const char *kind, *cluster, *bytes, *algorithm, *devices, *shards, *db, *nccl;
    int64_t profile;
};

struct result { /* of one algorithm */
    enum collective_algorithm algorithm;
    int64_t closed_ns, played_ns;
    int32_t transfers;
    const char *why_not; /* reason if the algorithm is impossible; NULL */
};

struct question {
    struct arena *arena;
    struct cluster cluster;
    struct profile profile;
    struct cost *cost;
    struct collective_routes *routes;
    struct collective_case c;
    int64_t bytes;
    int32_t *device; /* (n_members) */
    int32_t n_nodes;
    struct result results[COLLECTIVE_ALGORITHM_COUNT];
    int32_t n_results;
    const char *nccl;     /* version */
    const char *no_prior; /* reason if NCCL has no estimate; NULL: prior is valid */
    struct nccl_choice prior;
    bool has_table;
    struct collective_table table;
};

/* --- request --------------------------------------------------------------------------------- */

/* Items between commas, the arena's. */
static const char **items(struct arena *a, const char *list, int32_t *n)
{
    size_t capacity = 0;
    const char **out = NULL;
    *n = 0;
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        out = arena_grow(a, out, (size_t)*n, &capacity, sizeof *out);
        out[(*n)++] = arena_strndup(a, at, strcspn(at, ","));
    }
    return out;
}

static enum status take_devices(struct question *q, const char *list, struct error *err)
{
    const struct cluster *c = &q->cluster;
    int32_t n = c->n_devices;
    const char **names = list ? items(q->arena, list, &n) : NULL;
    q->device = ARENA_ARRAY(q->arena, int32_t, (size_t)n);
    int32_t *node = ARENA_ARRAY(q->arena, int32_t, (size_t)n);
    bool *seen = ARENA_ARRAY(q->arena, bool, (size_t)c->n_nodes);
    for (int32_t i = 0; i < n; i++) {
        q->device[i] = names ? cluster_device(c, names[i]) : i;
        if (q->device[i] < 0)
            return error_set(err, ERR_INPUT, "cluster %s has no device '%s'; its first is %s",
                             c->name, names[i], c->devices[0].name);
        for (int32_t k = 0; k < i; k++)
            if (q->device[k] == q->device[i])
                return error_set(err, ERR_USAGE, "--devices names %s twice", names[i]);
        node[i] = c->devices[q->device[i]].node;
        if (!seen[node[i]]) q->n_nodes++;
        seen[node[i]] = true;
    }
    q->c.n_members = n;
    q->c.node = node;
    return OK;
}

/* Shares in proportion to the numbers, as fractions of the vector. */
static enum status take_shards(struct question *q, const char *list, struct error *err)
{
    int32_t n = 0;
    if (!list) return OK;
    if (q->c.kind != COLLECTIVE_ALL_GATHER && q->c.kind != COLLECTIVE_REDUCE_SCATTER)
        return error_set(err, ERR_USAGE, "--shards is for all-gather and reduce-scatter");
    const char **words = items(q->arena, list, &n);
    if (n != q->c.n_members)
        return error_set(err, ERR_USAGE, "--shards has %" PRId32 " numbers for %" PRId32 " devices",
                         n, q->c.n_members);
    double *share = ARENA_ARRAY(q->arena, double, (size_t)n), sum = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!units_parse_number(words[i], &share[i]) || share[i] < 0)
            return error_set(err, ERR_USAGE, "--shards '%s': expected a number, 0 or more",
                             words[i]);
        sum += share[i];
    }
    if (!(sum > 0)) return error_set(err, ERR_USAGE, "--shards are all 0");
    int64_t *shards = ARENA_ARRAY(q->arena, int64_t, (size_t)n);
    collective_split(n, share, q->c.elements, shards);
    q->c.shards = shards;
    return OK;
}

static enum status take_words(struct question *q, const struct request *r, struct error *err)
{
    char unit[UNITS_HINT];
    double bytes = 0;
    if (r->nccl && nccl_known(r->nccl, err) != OK) return ERR_USAGE;
    if (!collective_kind_parse(r->kind, &q->c.kind)) {
        char hint[NEAREST_HINT];
        return error_set(err, ERR_USAGE,
                         "unknown collective '%s'; expected all-reduce, all-gather, "
                         "reduce-scatter, broadcast, all-to-all%s",
                         r->kind, nearest_name_hint(r->kind, collective_kind_names, hint));
    }
    if (!units_parse_bytes(r->bytes, &bytes) || !(bytes >= 1 && bytes <= 1e15))
        return error_set(err, ERR_USAGE, "--bytes '%s': must be a size such as '1 GB', at most 1 PB%s",
                         r->bytes, units_hint(unit, QUANTITY_BYTES, r->bytes));
    q->bytes = (int64_t)bytes;
    q->c.element_bytes = q->bytes % 4 ? 1 : 4;
    q->c.elements = q->bytes / q->c.element_bytes;
    return OK;
}

/* --- results --------------------------------------------------------------------------------- */

static struct cost_link hop(const void *of, int32_t from, int32_t to)
{
    const struct question *q = of;
    struct cost_link l;
    /* an absent route is never used: the simulation has found all routes */
    (void)!collective_routes_cost(q->routes, q->cost, q->device[from], q->device[to], &l, NULL);
    return l;
}

static enum status try_algorithm(struct question *q, struct result *r, struct error *err)
{
    struct steps steps;
    struct collective_case c = q->c;
    struct collective_hops hops = {.hop = hop, .of = q};
    c.algorithm = r->algorithm;
    if (c.algorithm != ALGORITHM_LEADER && !collective_rounds_of(c.algorithm)->tiers) c.node = NULL;
    TRY(steps_make(q->arena, &c, &steps, err));
    struct steps_play p = {.steps = &steps,
                           .device = q->device,
                           .end_ns = ARENA_ARRAY(q->arena, int64_t, (size_t)c.n_members)};
    TRY(steps_run(&q->cluster, q->cost, &p, 1, err));
    r->transfers = steps.n;
    r->played_ns = p.makespan_ns;
    return collective_ns(&c, &hops, NULL, NULL, &r->closed_ns, err);
}

static enum status try_algorithms(struct question *q, const char *word, struct error *err)
{
    bool all = !strcmp(word, "all");
    enum collective_algorithm only = ALGORITHM_RING;
    if (!all && !collective_algorithm_parse(word, &only))
        return error_set(err, ERR_USAGE, "unknown algorithm '%s' of --algorithm; expected all, %s",
                         word, collective_choices(q->c.kind, false).text);
    if (!all && !collective_can(q->c.kind, only))
        return error_set(err, ERR_USAGE, "%s has no algorithm %s; expected all, %s",
                         collective_kind_name(q->c.kind), word,
                         collective_choices(q->c.kind, false).text);
    for (int w = 0; w < COLLECTIVE_ALGORITHM_COUNT; w++) {
        struct result *r = &q->results[q->n_results];
        struct error why;
        if (all ? !collective_can(q->c.kind, (enum collective_algorithm)w) : w != (int)only)
            continue;
        r->algorithm = (enum collective_algorithm)w;
        enum status st = try_algorithm(q, r, all ? &why : err);
        if (st != OK && !all) return st;
        if (st != OK) r->why_not = arena_strdup(q->arena, why.text);
        q->n_results++;
    }
    return OK;
}

static void query_nccl(struct question *q)
{
    struct error why;
    if (collective_nccl(q->cost, q->nccl, q->c.kind, q->device, q->c.n_members, q->bytes, &q->prior,
                        &why) != OK)
        q->no_prior = arena_strdup(q->arena, why.text);
}

static enum status answer(struct question *q, const struct request *r, struct error *err)
{
    TRY(take_words(q, r, err));
    TRY(cluster_read(q->arena, r->cluster, &q->cluster, err));
    TRY(team_complete(&q->cluster, err));
    TRY(take_devices(q, r->devices, err));
    TRY(take_shards(q, r->shards, err));
    TRY(common_profile(q->arena, &q->cluster, r->db, r->profile, &q->profile, err));
    q->cost = cost_new(q->arena, &q->profile, &q->cluster);
    q->routes = collective_routes_new(q->arena, &q->cluster);
    q->nccl = r->nccl ? r->nccl : q->cluster.nccl ? q->cluster.nccl : NCCL_VERSION_DEFAULT;
    TRY(try_algorithms(q, r->algorithm, err));
    query_nccl(q);
    q->has_table =
        collective_table_find(q->profile.collectives, q->profile.n_collectives, q->c.kind,
                              q->c.n_members, q->n_nodes,
                              collective_table_device(q->arena, &q->cluster, q->device,
                                                      q->c.n_members),
                              NULL, q->bytes, &q->table);
    return OK;
}

/* --- printing -------------------------------------------------------------------------------- */

static double bus_Bps(const struct question *q, double seconds)
{
    return seconds > 0
               ? collective_bus_factor(q->c.kind, q->c.n_members) * (double)q->bytes / seconds
               : NAN;
}

static void print_time(const struct question *q, const char *name, double seconds)
{
    char time[32], rate[32] = "-";
    if (isfinite(bus_Bps(q, seconds))) units_print_bytes_per_s(rate, bus_Bps(q, seconds));
    printf("%s %10s, bus bandwidth %10s", name, units_print_ns(time, units_ns_from_s(seconds)),
           rate);
}

static void print(const struct question *q)
{
    char size[32], closed[32], played[32], rate[32];
    printf("%s of %s over %" PRId32 " devices on %" PRId32 " nodes of %s (%s)\n",
           collective_kind_name(q->c.kind), units_print_bytes(size, (double)q->bytes),
           q->c.n_members, q->n_nodes, q->cluster.name,
           common_profile_label(q->arena, &q->profile));
    printf("  %-16s %12s %15s %14s\n", "algorithm", "closed form", "simulated", "bus bandwidth");
    for (int32_t i = 0; i < q->n_results; i++) {
        const struct result *r = &q->results[i];
        double bus = bus_Bps(q, units_s_from_ns(r->played_ns));
        if (r->why_not)
            printf("  %-16s not possible: %s\n", collective_algorithm_name(r->algorithm), r->why_not);
        else
            printf("  %-16s %12s %15s %14s\n", collective_algorithm_name(r->algorithm),
                   units_print_ns(closed, r->closed_ns), units_print_ns(played, r->played_ns),
                   isfinite(bus) ? units_print_bytes_per_s(rate, bus) : "-");
    }
    if (q->no_prior) {
        printf("  NCCL %s: no estimate: %s\n", q->nccl, q->no_prior);
    } else {
        print_time(q, "  NCCL estimates", q->prior.seconds);
        printf(": %s, %s, %" PRId32 " channels (%s, a prior)\n",
               nccl_algorithm_names[q->prior.algorithm], nccl_protocol_names[q->prior.protocol],
               q->prior.channels, q->nccl);
    }
    if (!q->has_table) return;
    print_time(q, "  measured      ", collective_table_seconds(&q->table, q->bytes));
    printf(": %zu sizes, %s\n", q->table.n, q->table.rows->provenance);
}

static void put_json(const struct question *q)
{
    struct json j;
    common_json_begin(&j);
    json_put_text(&j, "kind", collective_kind_name(q->c.kind));
    json_put_int(&j, "bytes", q->bytes);
    json_put_text(&j, "cluster", q->cluster.name);
    json_put_int(&j, "profile_id", q->profile.id);
    json_put_int(&j, "nodes", q->n_nodes);
    json_put_list_line(&j, "devices");
    for (int32_t i = 0; i < q->c.n_members; i++)
        json_put_text(&j, NULL, q->cluster.devices[q->device[i]].name);
    json_close(&j);
    json_put_list(&j, "algorithms");
    for (int32_t i = 0; i < q->n_results; i++) {
        const struct result *r = &q->results[i];
        json_put_object_line(&j, NULL);
        json_put_text(&j, "name", collective_algorithm_name(r->algorithm));
        if (r->why_not) {
            json_put_text(&j, "not_possible", r->why_not);
        } else {
            json_put_int(&j, "closed_ns", r->closed_ns);
            json_put_int(&j, "simulated_ns", r->played_ns);
            json_put_double(&j, "bus_Bps", bus_Bps(q, units_s_from_ns(r->played_ns)));
            json_put_int(&j, "transfers", r->transfers);
        }
        json_close(&j);
    }
    json_close(&j);
    json_put_object_line(&j, "nccl");
    json_put_text(&j, "version", q->nccl);
    if (q->no_prior) {
        json_put_text(&j, "no_estimate", q->no_prior);
    } else {
        json_put_double(&j, "seconds", q->prior.seconds);
        json_put_double(&j, "bus_Bps", bus_Bps(q, q->prior.seconds));
        json_put_text(&j, "algorithm", nccl_algorithm_names[q->prior.algorithm]);
        json_put_text(&j, "protocol", nccl_protocol_names[q->prior.protocol]);
        json_put_int(&j, "channels", q->prior.channels);
    }
    json_close(&j);
    if (q->has_table) {
        double seconds = collective_table_seconds(&q->table, q->bytes);
        json_put_object_line(&j, "measured");
        json_put_double(&j, "seconds", seconds);
        json_put_double(&j, "bus_Bps", bus_Bps(q, seconds));
        json_put_int(&j, "sizes", (int64_t)q->table.n);
        json_put_int(&j, "least_bytes", q->table.rows[0].bytes);
        json_put_int(&j, "max_bytes", q->table.rows[q->table.n - 1].bytes);
        json_put_text(&j, "provenance", q->table.rows->provenance);
        json_close(&j);
    }
    common_json_end(&j);
}

static enum status collective(struct arena *a, void *request, const struct common *common,
                              struct error *err)
{
    struct question q = {.arena = a};
    TRY(answer(&q, request, err));
    if (common->json)
        put_json(&q);
    else
        print(&q);
    return OK;
}

static const char *const kinds[] = {
#define X(id, word, name) name,
    COLLECTIVE_KINDS(X)
#undef X
        NULL};
static const char *const algorithms[] = {
#define X(id, name, kinds, native, rounds) name,
    "all", COLLECTIVE_ALGORITHM_CHOICES(X)
#undef X
               NULL};
#define ALGORITHM_NAME(id, name, kinds, native, rounds) name ", "
static const struct option options[] = {
    {.name = "KIND",
     ARGUMENT_AT(kind),
     .choices = kinds,
     .help = "all-reduce, all-gather, reduce-scatter, broadcast or all-to-all"},
    {.name = "CLUSTER", ARGUMENT_AT(cluster), .help = "cluster file, e.g. cluster.yaml"},
    {.name = "bytes",
     .letter = 'b',
     TEXT_AT(bytes),
     .unit = "SIZE",
     .help = "message size as nccl-tests counts it, e.g. 64MiB: a rank's vector; for all-gather "
             "and reduce-scatter the full vector of all ranks"},
    {.name = "algorithm",
     .letter = 'a',
     TEXT_AT(algorithm),
     .unit = "NAME",
     .choices = algorithms,
     .help = "algorithm: " COLLECTIVE_ALGORITHM_CHOICES(
         ALGORITHM_NAME) "or all: each that is possible"},
    {.name = "devices",
     TEXT_AT(devices),
     .unit = "DEVICE,...",
     .help = "members in rank order, e.g. a.0,a.1,b.0",
     .preset = "every device of CLUSTER"},
    {.name = "shards",
     TEXT_AT(shards),
     .unit = "X,...",
     .help = "relative shard sizes of all-gather and reduce-scatter, one per member, e.g. 3,1",
     .preset = "equal shards"},
    {.name = "db",
     TEXT_AT(db),
     .unit = "DB",
     .help = "profile database with measured links and collectives, e.g. profiles.db",
     .preset = "none: links as CLUSTER states them"},
    OPTION_PROFILE(profile),
    {.name = "nccl",
     TEXT_AT(nccl),
     .unit = "VERSION",
     .help = "NCCL version whose cost model is shown for comparison: 2.28.9 or 2.30",
     .preset = "as CLUSTER states, else " NCCL_VERSION_DEFAULT},
    {0}};

const struct verb cmd_collective = {
    .name = "collective",
    .summary = "price a collective (all-reduce, all-gather, ...) by algorithm",
    .about =
        "For every algorithm: the closed form, in which every transfer has its link alone; the "
        "simulated time on the links of CLUSTER, where transfers share them; and the bus "
        "bandwidth as nccl-tests defines it. Next to them are NCCL's own estimate for NVIDIA "
        "GPUs, and the measured time if the profile has one.",
    .options = options,
    .examples = {"musher collective all-reduce cluster.yaml --bytes 1GB",
                 "musher collective all-gather cluster.yaml --shards 4,2,2,1 --algorithm ring"},
    REQUEST(.bytes = "1 GB", .algorithm = "all"),
    .run = collective,
};
