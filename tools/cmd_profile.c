/* Measures what the job needs on what the cluster has, through the executor itself: each unique operator once (equal structural
 * keys share one measurement), each link between the first pair of devices that uses it. The traces of these benches hold the
 * samples; medians go to the store as a new profile. */
#include "core/arena.h"
#include "core/gradient.h"
#include "core/log.h"
#include "core/lower.h"
#include "core/shard.h"
#include "core/units.h"
#include "exec/bench.h"
#include "exec/worker.h"
#include "planner/layer_classes.h"
#include "profiles/catalogue.h"
#include "profiles/fit.h"
#include "profiles/store.h"
#include "profiles/team.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/options.h"
#include "tools/profile_cuda.h"
#include "tools/profile_links.h"
#include "traces/quantile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES_MOST = 16, FLAT_SIZES = 6, LARGEST_MEASURED_FULLY = 8, SHARERS = 4, FEW_REPEATS = 3 };

struct request {
    const char *job, *cluster, *db;
    int64_t repeats;
    double warm_s;
};

struct bench {
    struct arena *arena;
    const struct job *job;
    const struct cluster *cluster;
    struct lower_options lower;
    struct program_op *ops; /* unique by key */
    size_t n, capacity,
        n_fully; /* the first ones get all repeats, the rest, large or only there for a fit, a few */
    struct profile_links links;
    struct profile_cards cards;
    int32_t seen;       /* operators of all graphs, repeats counted */
    const char *layers; /* how many of the job's are unique, for people */
};

static void add_op(struct bench *b, enum op_kind kind, enum phase phase,
                   const struct op_attrs *attrs, const struct op_shapes *shapes, enum dtype t)
{
    char text[256];
    uint64_t key = op_key(kind, attrs, shapes, t);
    b->seen++;
    for (size_t i = 0; i < b->n; i++)
        if (b->ops[i].key == key) return;
    b->ops = arena_grow(b->arena, b->ops, b->n, &b->capacity, sizeof *b->ops);
    b->ops[b->n++] = (struct program_op){
        .kind = kind,
        .phase = phase,
        .attrs = *attrs,
        .dtype = t,
        .shapes = *shapes,
        .key = key,
        .n_inputs = shapes->n_inputs,
        .n_outputs = shapes->n_outputs,
        .name = arena_strdup(b->arena, op_key_text(text, sizeof text, kind, attrs, shapes, t))};
}

/* All but what devices do together and what is empty. */
static void add_ops(struct bench *b, const struct graph *g)
{
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *op = &g->ops[i];
        struct op_shapes shapes;
        graph_op_shapes(g, op, &shapes);
        if (!op->attrs.exchange && shape_elements(&shapes.output[0]))
            add_op(b, op->kind, op->phase, &op->attrs, &shapes, g->dtype);
    }
}

static enum status add_graph(struct bench *b, int64_t microbatch, struct error *err)
{
    struct graph *g = NULL;
    TRY(lower_graph(b->arena, b->job, microbatch, &g, err));
    g = graph_fuse(g, b->lower.fused, b->lower.n_fused);
    TRY(gradient_build(g, 1, err));
    if (!b->layers) b->layers = layer_classes_text(b->arena, layer_classes_new(b->arena, g));
    add_ops(b, g);
    return OK;
}

/* One of equal devices that share all that can be split by this index: a fit of whole operators takes parts for too fast. */
static enum status add_share(struct bench *b, const struct graph *whole, enum op_index index,
                             struct error *err)
{
    static const double even[SHARERS] = {1, 1, 1, 1};
    const struct sharding_rule rule = {.match = "*", .choice = {.index = {index}}};
    const struct sharding s = {.n_devices = SHARERS,
                               .n_axes = 1,
                               .mesh = {SHARERS, 1},
                               .n_ratios = 1,
                               .n_operators = 1,
                               .ratios = even,
                               .operators = &rule};
    struct graph *g = NULL;
    if (shard_graph(b->arena, whole, &s, 0, 0, whole->n_layers - 1, &g, NULL) != OK)
        return OK; /* nothing of the model can be split by it */
    TRY(gradient_build(g, 1, err));
    add_ops(b, g);
    return OK;
}

static enum status add_shares(struct bench *b, int64_t microbatch, struct error *err)
{
    struct graph *whole = NULL;
    if (b->cluster->n_devices < 2 || b->job->model.measured || b->job->model.tensor_parallel > 1)
        return OK;
    TRY(lower_graph(b->arena, b->job, microbatch, &whole, err));
    for (int index = INDEX_batch; index < INDEX_COUNT; index++)
        TRY(add_share(b, whole, (enum op_index)index, err));
    return OK;
}

/* Operators over flat runs have sizes that only a plan knows: a few sizes make a line. */
static enum status add_flat(struct bench *b, enum op_kind kind, int64_t parameters,
                            struct error *err)
{
    for (int64_t i = 0, n = parameters; i < FLAT_SIZES && n >= 1024; i++, n /= 4) {
        struct op_attrs attrs = {.decay = true};
        bool adamw = kind == OP_adamw || kind == OP_flat_adamw;
        struct shape run = {.rank = 1, .dim = {n}};
        struct op_shapes shapes = {.n_inputs = kind == OP_accumulate ? 1 : adamw ? 4 : 2};
        for (int32_t k = 0; k < shapes.n_inputs; k++) shapes.input[k] = run;
        if (kind == OP_zero)
            shapes = (struct op_shapes){.n_outputs = 1, .output = {run}};
        else
            TRY(op_infer(kind, &attrs, &shapes, err));
        add_op(b, kind, PHASE_U, &attrs, &shapes, b->job->precision);
    }
    return OK;
}

/* Every microbatch size that the search may choose. */
static int32_t sizes_of(const struct job *j, int64_t *sizes)
{
    int32_t n = 0;
    for (; n < j->n_microbatches_sizes; n++) sizes[n] = j->microbatch_sizes[n];
    for (int64_t size = 1; !j->n_microbatches_sizes && size <= 64 && size <= j->global_batch;
         size *= 2)
        if (j->global_batch % size == 0) sizes[n++] = size;
    return n;
}

static enum status collect_ops(struct bench *b, struct error *err)
{
    const struct job *j = b->job;
    int64_t parameters = model_parameters(&j->model);
    int64_t sizes[SIZES_MOST + 1];
    int32_t n = sizes_of(j, sizes);
    for (int32_t i = 0; i < n; i++)
        if (sizes[i] <= LARGEST_MEASURED_FULLY) TRY(add_graph(b, sizes[i], err));
    TRY(add_flat(b, j->optimizer.kind == OPTIMIZER_ADAMW ? OP_flat_adamw : OP_flat_sgd, parameters,
                 err));
    TRY(add_flat(b, OP_accumulate, parameters, err));
    TRY(add_flat(b, OP_zero, parameters, err));
    b->n_fully = b->n;
    TRY(add_shares(b, sizes[n / 2], err));
    int64_t least = sizes[0], most = sizes[0];
    for (int32_t i = 0; i < n; i++) {
        if (sizes[i] > LARGEST_MEASURED_FULLY) TRY(add_graph(b, sizes[i], err));
        if (sizes[i] < least) least = sizes[i];
        if (sizes[i] > most) most = sizes[i];
    }
    /* one size more, so that each kind has two at least and a fit can tell its constant from its slope */
    if (least > 1) return add_graph(b, least / 2, err);
    return most <= LARGEST_MEASURED_FULLY ? add_graph(b, 2 * most, err) : OK;
}

/* Medians of the bench's COMPUTE spans by key; the first rounds of samples are warm-up. */
static void rows_of(struct bench *b, const struct trace *t, const char *base,
                    const struct program_op *ops, size_t n_ops, int32_t warm, struct profile *p)
{
    double *values = ARENA_ARRAY(b->arena, double, t->n_spans + 1),
           *copy = ARENA_ARRAY(b->arena, double, t->n_spans + 1);
    size_t at = p->n_ops;
    struct op_row *rows = ARENA_ARRAY(b->arena, struct op_row, p->n_ops + n_ops);
    if (p->n_ops) memcpy(rows, p->ops, p->n_ops * sizeof *rows);
    for (size_t i = 0; i < n_ops; i++) {
        const struct program_op *op = &ops[i];
        size_t n = 0;
        for (size_t k = 0; k < t->n_spans; k++) {
            const struct span *s = &t->spans[k];
            if (s->kind != SPAN_COMPUTE || s->key != op->key ||
                (s->microbatch < warm && s->step == 0))
                continue;
            values[n++] = s_from_ns(s->end_ns - s->begin_ns);
        }
        if (!n) continue;
        memcpy(copy, values, n * sizeof *copy);
        rows[at++] = (struct op_row){
            .base = base,
            .key = op->key,
            .kind = op->kind,
            .dtype = op->dtype,
            .text = op->name,
            .flops = op_flops(op->kind, &op->attrs, &op->shapes),
            .bytes = (double)(op_bytes_read(op->kind, &op->attrs, &op->shapes, op->dtype) +
                              op_bytes_written(op->kind, &op->attrs, &op->shapes, op->dtype)),
            .seconds = median_double(values, n),
            .spread = fit_spread(copy, n),
            .samples = (int32_t)n,
            .provenance = "profile"};
    }
    p->ops = rows;
    p->n_ops = at;
}

static enum status measure_some(struct bench *b, const char *base, const struct program_op *ops,
                                size_t n, int64_t repeats, struct profile *p, struct error *err)
{
    struct program program;
    struct run_result r;
    struct program_device device = {.name = "bench",
                                    .type = base,
                                    .host = "localhost",
                                    .kind = "host",
                                    .slowdown = b->cluster->emulated ? 1 : 0,
                                    .memory_bytes = INT64_MAX / 2};
    struct run_options o = {.steps = 1, .keep_trace = true};
    int32_t warm = 1, card = profile_card_of(&b->cards, base);
    if (!n) return OK;
    if (card >= 0) {
        device = lower_device(b->cluster, card);
        warm = profile_warm_rounds(&b->cards, base, ops, n);
    }
    TRY(bench_ops(b->arena, ops, (int32_t)n, &device, (int32_t)repeats + warm,
                  b->job->model.vocabulary, &program, err));
    log_info("measuring %zu unique operators of %d on %s, %lld times each", n, (int)b->seen, base,
             (long long)repeats);
    TRY(worker_run(b->arena, &program, &o, &r, err));
    rows_of(b, r.trace, base, ops, n, warm, p);
    return OK;
}

static enum status measure_base(struct bench *b, const char *base, int64_t repeats,
                                struct profile *p, struct error *err)
{
    TRY(measure_some(b, base, b->ops, b->n_fully, repeats, p, err));
    return measure_some(b, base, b->ops + b->n_fully, b->n - b->n_fully,
                        repeats < FEW_REPEATS ? repeats : FEW_REPEATS, p, err);
}

static enum status measure_ops(struct bench *b, int64_t repeats, struct profile *p,
                               struct error *err)
{
    for (int32_t t = 0; t < b->cluster->n_types; t++) {
        const struct catalogue_device *d = NULL;
        const char *base = b->cluster->types[t].catalogue;
        bool seen = false;
        for (int32_t k = 0; k < t; k++) seen |= !strcmp(b->cluster->types[k].catalogue, base);
        if (seen) continue;
        TRY(catalogue_find(base, &d, err));
        if (strcmp(d->backend, "host") != 0 && profile_card_of(&b->cards, base) < 0) {
            log_warn("no %s on this machine: its costs stay the catalogue's prior%s%s", base,
                     *b->cards.reason ? ": " : "", b->cards.reason);
            continue;
        }
        TRY(measure_base(b, base, repeats, p, err));
    }
    return OK;
}

static double off_of(const struct bench *b, const char *link)
{
    for (int32_t i = 0; i < b->cluster->n_links; i++)
        if (!strcmp(b->cluster->links[i].name, link)) return b->links.off[i];
    return 0;
}

static void report(const struct profile *p, const struct bench *b, bool as_json)
{
    if (as_json) {
        struct json j;
        common_json_begin(&j);
        json_put_int(&j, "profile_id", p->id);
        json_put_int(&j, "operators", (int64_t)p->n_ops);
        json_put_int(&j, "operators_seen", b->seen);
        json_put_list(&j, "links");
        for (size_t i = 0; i < p->n_links; i++) {
            json_put_object_line(&j, NULL);
            json_put_text(&j, "name", p->links[i].name);
            json_put_double(&j, "latency_s", p->links[i].model.latency_s);
            json_put_double(&j, "bandwidth_Bps", p->links[i].model.bandwidth_Bps);
            json_put_double(&j, "residual", p->links[i].model.residual);
            json_put_text(&j, "source", source_name(p->links[i].model.source));
            if (p->links[i].model.source == SOURCE_STATED)
                json_put_double(&j, "checked_within", off_of(b, p->links[i].name));
            json_close(&j);
        }
        json_close(&j);
        profile_copies_json(&j, &b->cards);
        common_json_end(&j);
        return;
    }
    printf("profile %lld: %zu unique operators of %d measured, %zu fits\n  layers     %s\n",
           (long long)p->id, p->n_ops, (int)b->seen, p->n_fits, b->layers);
    for (size_t i = 0; i < p->n_links; i++) {
        char latency[32], rate[32];
        printf("  link %-10s %s + bytes / %s, ", p->links[i].name,
               units_print_ns(latency, ns_from_s(p->links[i].model.latency_s)),
               units_print_bytes_per_s(rate, p->links[i].model.bandwidth_Bps));
        if (p->links[i].model.source == SOURCE_STATED)
            printf("stated (emulated); checked: as stated within %.1f %%\n",
                   100 * off_of(b, p->links[i].name));
        else
            printf("measured, residual %.1f %%\n", 100 * p->links[i].model.residual);
    }
    profile_copies_print(&b->cards);
}

static enum status profile(struct arena *a, const struct request *q, bool as_json,
                           struct error *err)
{
    struct job j;
    struct cluster c;
    struct store *s = NULL;
    TRY(job_read(a, q->job, &j, err));
    TRY(cluster_read(a, q->cluster, &c, err));
    TRY(team_complete(&c, err));
    struct bench b = {.arena = a,
                      .job = &j,
                      .cluster = &c,
                      .links = {a, &c, NULL, ARENA_ARRAY(a, double, (size_t)c.n_links + 1)}};
    struct profile p = {.cluster = c.name,
                        .machine = common_machine(a),
                        .note = j.model.name,
                        .pace = 1,
                        .calibrated_on = "",
                        .cluster_hash = common_cluster_hash(a, &c)};
    b.links.cards = &b.cards;
    profile_cards_find(a, &c, q->warm_s, &b.cards);
    TRY(team_fused(a, &c, &b.lower, err));
    TRY(store_open(a, q->db, true, &s, err)); /* before minutes of measuring */
    enum status st = collect_ops(&b, err);
    if (st == OK) st = measure_ops(&b, q->repeats, &p, err);
    if (st == OK) st = profile_links(&b.links, q->repeats, &p, err);
    if (st == OK) st = profile_copies(a, &b.cards, (int32_t)q->repeats, err);
    if (st == OK) st = profile_fit_ops(a, &p, err);
    if (st == OK) st = store_append(s, &p, err);
    store_close(s);
    if (st == OK) report(&p, &b, as_json);
    return st;
}

enum status cmd_profile(int argc, char **argv, struct error *err)
{
    struct common common = COMMON_DEFAULTS;
    struct request q = {.repeats = 15, .warm_s = 0.5};
    const struct option options[] = {
        {.name = "JOB", .type = OPTION_ARGUMENT, .value = &q.job, .help = "job.yaml"},
        {.name = "CLUSTER", .type = OPTION_ARGUMENT, .value = &q.cluster, .help = "cluster.yaml"},
        {.name = "db",
         .type = OPTION_TEXT,
         .value = &q.db,
         .unit = "DB",
         .help = "profile database; made where missing"},
        {.name = "repeats",
         .type = OPTION_INT,
         .value = &q.repeats,
         .unit = "N",
         .min = 3,
         .max = 1000,
         .help = "samples of each operator and message size"},
        {.name = "warm",
         .type = OPTION_DOUBLE,
         .value = &q.warm_s,
         .unit = "SECONDS",
         .min = 0,
         .max = 60,
         .help = "work of a card before anything is counted, so that its clocks are up"},
        {0}};
    const struct command command = {
        "profile",
        "measure the job's operators and the cluster's links",
        options,
        {"musher profile job.yaml cluster.yaml --db profiles.db",
         "musher profile job.yaml cluster.yaml --db profiles.db --repeats 50"}};
    struct arena *a = arena_new();
    enum status st = options_parse(a, &command, &common, argc, argv, err);
    if (st == OK && !common.help)
        st = q.db ? profile(a, &q, common.json, err)
                  : error_set(err, ERR_USAGE, "profile wants --db DB");
    arena_free(a);
    return st;
}
