#include "core/base/arena.h"
#include "core/base/ranges.h"
#include "core/base/units.h"
#include "core/graph/gradient.h"
#include "core/lower/lower.h"
#include "profiles/team.h"
#include "tools/cmd.h"
#include "tools/common.h"
#include "tools/print/classes.h"
#include "tools/print/kernels.h"
#include "tools/predict.h"
#include "tools/saves.h"
#include "tools/print/layers.h"
#include "tools/print/links.h"
#include "tools/print/metrics.h"
#include "tools/print/outcome.h"
#include "tools/print/replicas.h"
#include "tools/print/sharding.h"
#include "tools/print/stated.h"
#include "tools/routing.h"

#include <stdio.h>
#include <string.h>

struct request {
    const char *path, *db;
    int64_t profile;
    bool layers, all;
    struct run_length length;
};

struct work { /* of one microbatch's training graph, unfused */
    const struct graph *graph;
    int32_t operators, layers;
};

static enum status measure(struct arena *a, const struct job *j, struct work *out,
                           struct error *err)
{
    struct graph *g = NULL;
    TRY(lower_graph(a, j, j->n_microbatches_sizes ? j->microbatch_sizes[0] : 1, &g, err));
    TRY(gradient_build(g, 1, err));
    *out = (struct work){.graph = g, .operators = g->n_ops, .layers = g->n_layers};
    return OK;
}

static enum status show_job(struct arena *a, const struct job *j, bool layers, bool as_json,
                            struct error *err)
{
    struct work w;
    struct metrics_flops flops;
    TRY(measure(a, j, &w, err));
    TRY(metrics_model_flops(j, &flops, err));
    int64_t parameters = model_parameters(&j->model),
            bytes = parameters * dtype_bytes(j->precision),
            active = j->model.experts ? model_active_parameters(&j->model) : parameters;
    bool images = model_pixels(&j->model) > 0;
    double samples = images ? 1 : (double)j->sequence_length,
           each = (flops.forward + flops.backward) / samples, forward = flops.forward / samples;
    if (as_json) {
        struct json out;
        common_json_begin(&out);
        json_put_text(&out, "kind", "job");
        json_put_text(&out, "model", j->model.name);
        json_put_text(&out, "family", j->model.family);
        json_put_int(&out, "parameters", parameters);
        if (j->model.experts) json_put_int(&out, "active_parameters", active);
        json_put_int(&out, "operators", w.operators);
        json_put_int(&out, "layers", w.layers);
        TRY(print_layers(a, w.graph, layers, &out, err));
        json_put_double(&out, images ? "flops_per_image" : "flops_per_token", each);
        json_put_double(&out, images ? "forward_flops_per_image" : "forward_flops_per_token",
                        forward);
        json_put_int(&out, "bytes_parameters", bytes);
        json_put_text(&out, "precision", dtype_name(j->precision));
        json_put_int(&out, "sequence_length", j->sequence_length);
        json_put_int(&out, "global_batch", j->global_batch);
        common_print_lr(a, j, &out);
        common_json_end(&out);
        return OK;
    }
    char text[32], number[32];
    printf("job: train %s (%s)\n", j->model.name, j->model.family);
    printf("  parameters        %s (%s in %s)\n", outcome_number(number, (double)parameters),
           units_print_bytes(text, (double)bytes), dtype_name(j->precision));
    if (j->model.experts)
        printf("  active            %s of them for one token: %lld of %lld experts a layer\n",
               outcome_number(number, (double)active), (long long)j->model.chosen, (long long)j->model.experts);
    printf(
        "  operators         %d in a microbatch's training graph, %d layers between cut points\n",
        (int)w.operators, (int)w.layers);
    TRY(print_layers(a, w.graph, layers, NULL, err));
    printf("  FLOPs per %-7s %.4g (forward %.4g)\n", images ? "image" : "token", each, forward);
    if (images)
        printf("  step              %lld images of %lld x %lld x %lld, %lld classes\n",
               (long long)j->global_batch, (long long)j->model.channels,
               (long long)j->model.image_size, (long long)j->model.image_size,
               (long long)j->model.vocabulary);
    else
        printf("  step              %lld sequences of %lld tokens\n", (long long)j->global_batch,
               (long long)j->sequence_length);
    common_print_lr(a, j, NULL);
    return OK;
}

static void show_links(struct arena *a, const struct cluster *c, bool all)
{
    struct print_class *x;
    int32_t n = links_classes(a, c, all, &x);
    for (int32_t i = 0; i < n; i++) {
        printf("  %-10s %s: %s", x[i].names, links_ends(a, c, &x[i]), x[i].text);
        if (x[i].n > 1) printf(" (%d links)", (int)x[i].n);
        putchar('\n');
    }
}

static void show_cluster_text(struct arena *a, const struct cluster *c, bool all)
{
    const char **names = ARENA_ARRAY(a, const char *, (size_t)c->n_devices + 1),
               **texts = ARENA_ARRAY(a, const char *, (size_t)c->n_devices + 1);
    struct print_class *x;
    printf("cluster: %s%s\n", c->name, c->emulated ? " (emulated on this host)" : "");
    for (int32_t i = 0; i < c->n_devices; i++) {
        const struct device_type *t = &c->types[c->devices[i].type];
        char memory[64];
        names[i] = c->devices[i].name;
        texts[i] =
            arena_printf(a, "%s: %s%s, %s", t->name, t->catalogue,
                         t->slowdown > 0 ? arena_printf(a, ", %g times slower", t->slowdown) : "",
                         units_print_capacity(memory, (double)t->memory_bytes));
    }
    int32_t n = print_classes(a, c->n_devices, names, texts, all, &x);
    print_class_lines(x, n, "devices");
    print_stated(a, c, NULL, NULL);
    show_links(a, c, all);
}

static void show_cluster(struct arena *a, const struct cluster *c, bool all, bool as_json)
{
    if (as_json) {
        struct json out;
        common_json_begin(&out);
        json_put_text(&out, "kind", "cluster");
        json_put_text(&out, "name", c->name);
        json_put_bool(&out, "emulated", c->emulated);
        json_put_list(&out, "devices");
        for (int32_t i = 0; i < c->n_devices; i++) {
            const struct device_type *t = &c->types[c->devices[i].type];
            json_put_object_line(&out, NULL);
            json_put_text(&out, "id", c->devices[i].name);
            json_put_text(&out, "type", t->name);
            json_put_text(&out, "catalogue", t->catalogue);
            json_put_double(&out, "slowdown", t->slowdown);
            json_put_int(&out, "memory_bytes", t->memory_bytes);
            if (t->power_w > 0) json_put_double(&out, "power_w", t->power_w);
            if (t->priced) json_put_double(&out, "price_per_h", t->price_per_h);
            if (t->list_price_per_h > 0)
                json_put_double(&out, "list_price_per_h", t->list_price_per_h);
            json_close(&out);
        }
        json_close(&out);
        print_stated(a, c, NULL, &out);
        json_put_list(&out, "links");
        for (int32_t i = 0; i < c->n_links; i++) {
            const struct link *l = &c->links[i];
            json_put_object_line(&out, NULL);
            json_put_text(&out, "name", l->name);
            json_put_list_line(&out, "between");
            for (int32_t e = 0; e < l->n_ends; e++)
                json_put_text(&out, NULL, cluster_link_end(c, l, e));
            json_close(&out);
            if (l->stated)
                json_put_double(&out, "bandwidth_Bps", l->bandwidth_Bps);
            else
                json_put_null(&out, "bandwidth_Bps");
            json_put_double(&out, "latency_s", l->latency_s);
            json_put_text(&out, "duplex", l->half_duplex ? "half" : "full");
            json_put_text(&out, "sharing", links_sharing(l->sharing));
            json_close(&out);
        }
        json_close(&out);
        json_put_list(&out, "switches");
        for (int32_t i = 0; i < c->n_switches; i++) json_put_text(&out, NULL, c->switches[i]);
        json_close(&out);
        common_json_end(&out);
        return;
    }
    show_cluster_text(a, c, all);
}

static void show_replicas(struct arena *a, const struct plan *p, bool all)
{
    int at = printf("  ");
    print_replicas(a, p, (struct print_replicas){.at = at, .indent = 4, .all = all, .devices = true});
}

/* A plan whose parts contradict each other describes no training; one that only lacks memory or a price is shown. */
static enum status check_plan(struct arena *a, const struct plan *p, struct error *err)
{
    struct graph *g = NULL;
    TRY(lower_graph(a, &p->job, p->microbatch, &g, err));
    return plan_check(p, g->n_layers, err);
}

/* A plan of a profile is simulated only with that profile. */
static enum status answer(struct arena *a, const struct request *q, const struct plan *p,
                          struct metrics *out, struct error *err)
{
    struct profile profile;
    int64_t tokens;
    bool large = p->n_replicas > COMMON_REPLICAS_ONE_BY_ONE, simulates = q->db || q->profile || !p->profile_id;
    TRY(print_run_length(&q->length, &p->job, &tokens, err));
    if (simulates) TRY(common_profile(a, &p->cluster, q->db, q->profile, &profile, err));
    predict_metrics(a, p, simulates ? &profile : NULL, large || !simulates ? p->predicted_ns : 0,
                    tokens, out);
    return OK;
}

/* An edited plan differs from what its file states. */
static void show_answers(struct arena *a, const struct request *q, const struct plan *p,
                         const struct metrics *m)
{
    char text[32];
    if (!m->failed && m->iteration_ns != p->predicted_ns)
        printf("  simulated %s per iteration with %s\n", units_print_ns(text, m->iteration_ns),
               q->db ? "the profile of --db" : "the catalogue's prior");
    print_metrics(a, m);
    if (!m->failed && !m->simulated)
        printf("  (--db of profile %lld gives the use of the devices)\n", (long long)p->profile_id);
}

static enum status show_plan(struct arena *a, const struct request *q, const struct plan *p,
                             bool as_json, struct error *err)
{
    char text[32];
    struct metrics m;
    TRY(check_plan(a, p, err));
    TRY(answer(a, q, p, &m, err));
    if (as_json) {
        struct json out;
        common_json_begin(&out);
        json_put_text(&out, "kind", "plan");
        json_put_text(&out, "name", p->name);
        json_put_text(&out, "describe", plan_describe(a, p));
        json_put_int(&out, "replicas", p->n_replicas);
        json_put_int(&out, "microbatch", p->microbatch);
        json_put_int(&out, "profile_id", p->profile_id);
        json_put_int(&out, "predicted_ns", p->predicted_ns);
        if (!m.failed) json_put_int(&out, "iteration_ns", m.iteration_ns);
        print_metrics_json(&out, &m);
        print_stated(a, &p->cluster, &p->job, &out);
        common_print_training(a, p, NULL, &out);
        print_sharding(a, p, true, &out);
        print_shard_groups(a, p, &out);
        common_json_end(&out);
        return OK;
    }
    printf("plan: %s%s\n", p->name, p->cluster.emulated ? " (emulated devices)" : "");
    show_replicas(a, p, q->all);
    printf("  microbatches of %lld %s%s, cluster %s, model %s\n", (long long)p->microbatch,
           model_pixels(&p->job.model) ? "image" : "sequence", p->microbatch == 1 ? "" : "s",
           p->cluster.name, p->job.model.name);
    if (p->predicted_ns)
        printf("  predicted %s per iteration%s with %s\n", units_print_ns(text, p->predicted_ns),
               p->cluster.emulated ? " of emulated devices" : "",
               p->profile_id ? arena_printf(a, "profile %lld", (long long)p->profile_id)
                             : "the catalogue's prior");
    show_answers(a, q, p, &m);
    print_stated(a, &p->cluster, &p->job, NULL);
    common_print_training(a, p, NULL, NULL);
    print_sharding(a, p, q->all, NULL);
    print_shard_groups(a, p, NULL);
    return OK;
}

static enum status show_trace(struct arena *a, const char *path, bool as_json, struct error *err)
{
    struct trace *t = NULL;
    char text[32];
    int64_t devices = 0;
    TRY(trace_read(a, path, &t, err));
    for (int32_t i = 0; i < t->n_devices; i++) devices += trace_weight(t, i);
    if (as_json) {
        struct json out;
        common_json_begin(&out);
        json_put_text(&out, "kind", "trace");
        json_put_text(&out, "plan", t->plan);
        json_put_text(&out, "clock", t->clock);
        json_put_int(&out, "iteration_ns", t->iteration_ns);
        json_put_int(&out, "steps", t->steps);
        json_put_int(&out, "devices", devices);
        json_put_int(&out, "devices_in_trace", t->n_devices);
        saves_print_trace(t, &out);
        routing_print(a, t, &out);
        print_kernels(a, t, &out);
        common_json_end(&out);
        return OK;
    }
    printf("trace: %s, %s, %d devices, %d steps, %s per iteration%s\n", t->plan,
           trace_is_predicted(t) ? "predicted" : "measured", (int)devices, (int)t->steps,
           units_print_ns(text, t->iteration_ns), t->emulated ? " (emulated devices)" : "");
    if (devices > t->n_devices)
        printf("  %d devices stand for all, and operators count for all%s\n", (int)t->n_devices,
               t->equal_shape ? "; those of a class have the same shape and may differ in time, "
                                "because of contention"
                              : "");
    saves_print_trace(t, NULL);
    routing_print(a, t, NULL);
    print_kernels(a, t, NULL);
    return OK;
}

#define NOT_OF_PLAN "--db, --profile, --tokens and --images are for plans; %s is a %s"

static enum status show(struct arena *a, const struct request *q, bool as_json, struct error *err)
{
    const char *path = q->path;
    bool layers = q->layers, of_plan = q->db || q->profile || q->length.tokens || q->length.images;
    struct node *root = NULL;
    if (common_is_program(path))
        return error_set(
            err, ERR_INPUT,
            "%s: a program file, which run reads; show reads jobs, clusters, plans and traces",
            path);
    if (layers && common_is_trace(path))
        return error_set(err, ERR_USAGE, "--layers is for jobs; %s is a trace", path);
    if (of_plan && common_is_trace(path))
        return error_set(err, ERR_USAGE, NOT_OF_PLAN, path, "trace");
    if (common_is_trace(path)) return show_trace(a, path, as_json, err);
    TRY(document_read(a, path, &root, err));
    TRY(node_is(root, NODE_MAP, err));
    if (of_plan && !node_get(root, "replicas"))
        return error_set(err, ERR_USAGE, NOT_OF_PLAN, path,
                         node_get(root, "device_types") ? "cluster" : "job");
    if (layers && (node_get(root, "replicas") || node_get(root, "device_types")))
        return error_set(err, ERR_USAGE, "--layers is for jobs; %s is a %s", path,
                         node_get(root, "replicas") ? "plan" : "cluster");
    if (node_get(root, "replicas")) {
        struct plan p;
        TRY(common_plan(a, path, &p, err));
        return show_plan(a, q, &p, as_json, err);
    }
    if (node_get(root, "device_types")) {
        struct cluster c;
        TRY(cluster_read(a, path, &c, err));
        TRY(team_complete(&c, err));
        show_cluster(a, &c, q->all, as_json);
        return OK;
    }
    if (node_get(root, "model")) {
        struct job j;
        TRY(job_read(a, path, &j, err));
        return show_job(a, &j, layers, as_json, err);
    }
    return node_error(
        root, err,
        "neither a job (has `model`), a cluster (`device_types`) nor a plan (`replicas`)");
}

static enum status run_show(struct arena *a, void *request, const struct common *common,
                            struct error *err)
{
    const struct request *q = request;
    return show(a, q, common->json, err);
}

static const struct option options[] = {
    {.name = "FILE", ARGUMENT_AT(path), .help = "job, cluster, plan or trace file"},
    {.name = "layers",
     FLAG_AT(layers),
     .help = "list a job's distinct layers: FLOPs, bytes, and activations at the cut after each"},
    OPTION_DB(db),
    OPTION_PROFILE(profile),
    OPTION_TOKENS(length),
    OPTION_IMAGES(length),
    OPTION_ALL,
    {0}};

const struct verb cmd_show = {
    .name = "show",
    .summary = "summarise a job, cluster, plan or trace file",
    .options = options,
    .examples = {"musher show job.yaml", "musher show job.yaml --layers",
                 "musher show plan.yaml --tokens 1T", "musher show run.trace --json"},
    REQUEST(0),
    .run = run_show,
};
