/* core/plan/read.c - plan.yaml to struct plan, and back in canonical form.
 *
 * The reader rejects what is invalid in any plan (unknown keys, numbers out of range, devices not in the
 * cluster); plan_check checks the parts against each other. The writer omits
 * defaults, so that a stage shows its decisions only.
 */
#include "core/plan/plan.h"

#include "core/base/arena.h"
#include "core/base/nearest.h"
#include "core/base/version.h"
#include "core/document/canonical.h"
#include "core/plan/internal.h"
#include "core/plan/keys.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    LAYER_MAX = 1000000,
    MICROBATCHES_MAX = 1 << 24, /* job.c's bound of the global batch */
    STEPS_MAX = 1000,
    RECEIVE_AHEAD_DEFAULT = 2,
    RECEIVE_AHEAD_MAX = 1024,
};
#define BUCKET_MAX_BYTES 0x1p50

struct reader {
    struct arena *a;
    struct plan *p;
    struct error *err;
};

static const struct node *given(const struct node *map, const char *key)
{
    const struct node *n = node_get(map, key);
    return n && n->kind != NODE_NULL ? n : NULL;
}

/* A count that fits int32; *out is the default where the key is absent. */
static enum status get_count(const struct node *map, const char *key, int32_t min, int32_t max, int32_t *out, struct error *err)
{
    int64_t value = *out;
    TRY(node_get_int(map, key, min, max, &value, err));
    *out = (int32_t)value;
    return OK;
}

static enum status need_list(const struct node *map, const char *key, const struct node **out, struct error *err)
{
    TRY(node_need(map, key, out, err));
    TRY(node_is(*out, NODE_LIST, err));
    return (*out)->count ? OK : node_error(*out, err, "must not be empty");
}

/* --- stages --- */

static enum status read_layers(struct reader *r, const struct node *stage, struct plan_stage *s)
{
    const struct node *n;
    int64_t first, last;
    TRY(node_need(stage, "layers", &n, r->err));
    TRY(node_is(n, NODE_LIST, r->err));
    if (n->count != 2)
        return node_error(n, r->err, "must be [first, last], found %zu values", n->count);
    TRY(node_int(n->members[0], 0, LAYER_MAX, &first, r->err));
    TRY(node_int(n->members[1], 0, LAYER_MAX, &last, r->err));
    if (last < first)
        return node_error(n, r->err, "ends at %" PRId64 ", before it starts at %" PRId64, last, first);
    s->first_layer = (int32_t)first, s->last_layer = (int32_t)last;
    return OK;
}

static enum status find_device(const void *reader, const struct node *n, int32_t *device)
{
    const struct reader *r = reader;
    const struct cluster *c = &r->p->cluster;
    const char *name, *list = "";
    char hint[NEAREST_HINT];
    TRY(node_text(n, &name, r->err));
    *device = cluster_device(c, name);
    if (*device >= 0) return OK;
    struct nearest near = nearest_to(name);
    for (int32_t i = 0; i < c->n_devices; i++) nearest_try(&near, c->devices[i].name);
    for (int32_t i = 0; i < c->n_devices && strlen(list) < 200; i++)
        list = arena_printf(r->a, "%s%s%s", list, i ? ", " : "",
                            strlen(list) + strlen(c->devices[i].name) < 200 ? c->devices[i].name
                                                                            : "...");
    return node_error(n, r->err, "unknown device '%.100s'; known: %s%s", name, list, nearest_hint(&near, hint));
}

/* devices: [a.0, b.0], sequences: [3, 2] */
static enum status read_devices(struct reader *r, const struct node *stage, struct plan_stage *s)
{
    const struct node *devices, *sequences = NULL, *sharding = given(stage, "sharding");
    TRY(need_list(stage, "devices", &devices, r->err));
    if (!sharding && !given(stage, "sequences"))
        return node_error(
            stage, r->err,
            "a stage on several devices needs `sequences` or `sharding`");
    if (!sharding) TRY(need_list(stage, "sequences", &sequences, r->err));
    if (sharding && given(stage, "sequences"))
        return node_error(
            sharding, r->err,
            "a stage has either `sequences` or `sharding`, not both");
    if (sequences && devices->count != sequences->count)
        return node_error(sequences, r->err, "has %zu numbers for %zu devices", sequences->count,
                          devices->count);
    if (devices->count > (size_t)r->p->cluster.n_devices)
        return node_error(devices, r->err, "%zu devices, but the cluster has %" PRId32,
                          devices->count, r->p->cluster.n_devices);
    int32_t *device = ARENA_ARRAY(r->a, int32_t, devices->count);
    int64_t *n = ARENA_ARRAY(r->a, int64_t, devices->count);
    for (size_t i = 0; i < devices->count; i++) {
        TRY(find_device(r, devices->members[i], &device[i]));
        if (sequences) TRY(node_int(sequences->members[i], 1, MICROBATCHES_MAX, &n[i], r->err));
    }
    s->device = device[0];
    s->n_shards = (int32_t)devices->count, s->devices = device;
    if (sequences) s->sequences = n;
    struct sharding *how = NULL;
    if (sharding) TRY(sharding_read(r->a, sharding, s->n_shards, &how, r->err));
    s->sharding = how;
    return OK;
}

static enum status read_device(struct reader *r, const struct node *stage, struct plan_stage *s)
{
    const struct node *n, *devices = given(stage, "devices");
    if (devices && given(stage, "device"))
        return node_error(devices, r->err,
                          "a stage has either `device` or `devices`, not both");
    if (devices) return read_devices(r, stage, s);
    if (given(stage, "sequences"))
        return node_error(given(stage, "sequences"), r->err,
                          "`sequences` needs `devices`; one device has all sequences");
    if (given(stage, "sharding"))
        return node_error(given(stage, "sharding"), r->err,
                          "`sharding` needs `devices`; one device has nothing to share");
    TRY(node_need(stage, "device", &n, r->err));
    return find_device(r, n, &s->device);
}

static enum status read_stage(struct reader *r, const struct node *n, struct plan_stage *s)
{
    double bucket = 0;
    *s = (struct plan_stage){
        .receive_ahead = RECEIVE_AHEAD_DEFAULT, .line = n->line, .column = n->column};
    TRY(document_keys(n, plan_stage_keys, r->err));
    TRY(read_layers(r, n, s));
    TRY(read_device(r, n, s));
    TRY(get_count(n, "warmup", 1, MICROBATCHES_MAX, &s->warmup, r->err));
    TRY(node_get_lines(n, "order", &s->order, r->err));
    if (s->order && s->warmup)
        return node_error(n, r->err, "has both a warmup and an order; an order needs no warmup");
    TRY(plan_read_activations(n, s, r->err));
    TRY(node_get_quantity(n, "bucket", QUANTITY_BYTES, 1, BUCKET_MAX_BYTES, &bucket, r->err));
    s->bucket_bytes = (int64_t)llround(bucket);
    TRY(get_count(n, "zero", 0, ZERO_MAX, &s->zero, r->err));
    TRY(node_get_bool(n, "hybrid_shard", &s->hybrid_shard, r->err));
    if (s->hybrid_shard && !s->zero)
        return node_error(given(n, "hybrid_shard"), r->err, "needs zero: 1, 2 or 3, whose shards it keeps inside a node");
    TRY(sharding_read_algorithm(given(n, "all_reduce"), COLLECTIVE_ALL_REDUCE, &s->all_reduce, r->err));
    return get_count(n, "receive_ahead", 1, RECEIVE_AHEAD_MAX, &s->receive_ahead, r->err);
}

/* --- how devices take turns --- */

static enum status read_schedule(struct reader *r, const struct node *n, struct plan_replica *out)
{
    const struct node *name = given(n, "schedule");
    enum schedule_kind kind;
    struct error why = {0};
    TRY(node_get_text(n, "schedule", &out->schedule, r->err));
    TRY(node_get_bool(n, "split", &out->split, r->err));
    if (out->schedule && schedule_kind_parse(out->schedule, &kind, &why) != OK)
        return node_error(name, r->err, "%s", why.text);
    return OK;
}

/* "0F0 1F0 … | 0F0 …": the devices in order of their first stages. */
static enum status read_joined_orders(struct reader *r, const struct node *n,
                                      struct plan_replica *out)
{
    struct plan_lane *lanes;
    int32_t n_lanes = plan_lanes(r->a, out, &lanes), given = 1;
    const char *text;
    TRY(node_lines(n, &text, r->err));
    for (const char *t = text; *t; t++) given += *t == '|';
    if (given != n_lanes)
        return node_error(n, r->err,
                          "has %" PRId32 " orders between '|', the stages are on %" PRId32
                          " devices",
                          given, n_lanes);
    for (int32_t i = 0; i < n_lanes; i++) {
        size_t length = strcspn(text, "|");
        out->orders[lanes[i].stages[0]] = arena_strndup(r->a, text, length);
        text += length + (text[length] == '|');
    }
    return OK;
}

/* Devices that share a stage go by one order, the first one's. */
static enum status no_order(struct reader *r, const struct node *one, int32_t device,
                            const struct plan_replica *x)
{
    for (int32_t i = 0; device >= 0 && i < x->n_stages; i++)
        for (int32_t k = 1; k < x->stages[i].n_shards; k++)
            if (x->stages[i].devices[k] == device)
                return node_error(one, r->err,
                                  "'%.100s' has the order of '%.100s', the first device of the "
                                  "stages that they share: omit this one",
                                  one->key, r->p->cluster.devices[x->stages[i].devices[0]].name);
    return node_error(one, r->err, "no stage of this replica is on a device '%.100s'", one->key);
}

/* The order of a device stands at its first stage. */
static enum status read_orders(struct reader *r, const struct node *n, struct plan_replica *out)
{
    const struct node *map = given(n, "orders");
    if (!map) return OK;
    out->orders = ARENA_ARRAY(r->a, const char *, (size_t)out->n_stages);
    if (map->kind == NODE_SCALAR) return read_joined_orders(r, map, out);
    TRY(node_is(map, NODE_MAP, r->err));
    for (size_t i = 0; i < map->count; i++) {
        const struct node *one = map->members[i];
        int32_t device = cluster_device(&r->p->cluster, one->key), stage = 0;
        while (stage < out->n_stages && out->stages[stage].device != device) stage++;
        if (device < 0 || stage == out->n_stages) return no_order(r, one, device, out);
        TRY(node_lines(one, &out->orders[stage], r->err));
    }
    return OK;
}

static enum status read_replica(struct reader *r, const struct node *n, struct plan_replica *out)
{
    const struct node *microbatches, *stages;
    int64_t count;
    *out = (struct plan_replica){.line = n->line, .column = n->column};
    TRY(document_keys(n, plan_replica_keys, r->err));
    TRY(node_need(n, "microbatches", &microbatches, r->err));
    TRY(node_int(microbatches, 1, MICROBATCHES_MAX, &count, r->err));
    out->microbatches = (int32_t)count;
    TRY(need_list(n, "stages", &stages, r->err));
    if (stages->count > LAYER_MAX)
        return node_error(stages, r->err, "%zu stages, but a model has at most %d layers",
                          stages->count, LAYER_MAX);
    out->n_stages = (int32_t)stages->count;
    out->stages = ARENA_ARRAY(r->a, struct plan_stage, stages->count);
    for (size_t i = 0; i < stages->count; i++)
        TRY(read_stage(r, stages->members[i], &out->stages[i]));
    TRY(read_schedule(r, n, out));
    return read_orders(r, n, out);
}

static enum status read_replicas(struct reader *r, const struct node *root)
{
    const struct node *list;
    struct plan *p = r->p;
    TRY(need_list(root, "replicas", &list, r->err));
    if (list->count > (size_t)p->cluster.n_devices)
        return node_error(list, r->err, "%zu replicas, but the cluster has %" PRId32 " devices",
                          list->count, p->cluster.n_devices);
    p->line = list->line;
    p->column = list->column;
    p->n_replicas = (int32_t)list->count;
    p->replicas = ARENA_ARRAY(r->a, struct plan_replica, list->count);
    for (size_t i = 0; i < list->count; i++)
        TRY(read_replica(r, list->members[i], &p->replicas[i]));
    return OK;
}

/* --- the head --- */

/* Who made it. By hand: no profile, the job's seed. */
static enum status read_made_by(struct reader *r, const struct node *root)
{
    const struct node *n = given(root, "made_by");
    const char *version = "";
    int64_t seed = (int64_t)(r->p->job.seed & INT64_MAX);
    r->p->seed = r->p->job.seed;
    if (!n) return OK;
    TRY(document_keys(n, plan_made_by_keys, r->err));
    TRY(node_get_text(n, "musher", &version, r->err));
    TRY(node_get_int(n, "profile", 0, INT64_MAX, &r->p->profile_id, r->err));
    TRY(node_get_int(n, "seed", 0, INT64_MAX, &seed, r->err));
    r->p->seed = (uint64_t)seed;
    return node_get_int(n, "predicted_ns", 0, INT64_MAX, &r->p->predicted_ns, r->err);
}

static enum status read_head(struct reader *r, const struct node *root)
{
    const struct node *n = given(root, "name");
    struct plan *p = r->p;
    p->name = "plan";
    p->steps = 1;
    if (n) TRY(canonical_label(n, &p->name, r->err));
    TRY(read_made_by(r, root));
    TRY(node_need(root, "microbatch", &n, r->err));
    TRY(node_int(n, 1, MICROBATCHES_MAX, &p->microbatch, r->err));
    TRY(node_get_bool(root, "deterministic", &p->deterministic, r->err));
    TRY(node_get_bool(root, "gradient_noise_scale", &p->gradient_noise_scale, r->err));
    TRY(get_count(root, "weight_versions", 1, 2, &p->weight_versions, r->err));
    return get_count(root, "steps", 1, STEPS_MAX, &p->steps, r->err);
}

enum status plan_parse(struct arena *a, const struct node *root, const char *folder,
                       struct plan *out, struct error *err)
{
    const struct node *job, *cluster;
    struct plan p = {.file = root->file};
    struct reader r = {a, &p, err};
    TRY(canonical_kind(root, "plan", err));
    TRY(document_keys(root, plan_keys, err));
    TRY(canonical_version(root, err));
    TRY(node_need(root, "job", &job, err));
    TRY(node_need(root, "cluster", &cluster, err));
    TRY(job_parse(a, job, folder, &p.job, err));
    TRY(plan_read_experts(a, root, &p, err));
    TRY(cluster_parse(a, cluster, &p.cluster, err));
    TRY(read_head(&r, root));
    TRY(read_replicas(&r, root));
    TRY(plan_read_local_sgd(a, root, &p, err));
    TRY(plan_read_compression(root, &p, err));
    TRY(plan_read_servers(a, root, find_device, &r, &p, err));
    *out = p;
    return OK;
}

enum status plan_read(struct arena *a, const char *path, struct plan *out, struct error *err)
{
    struct node *root;
    const char *slash = strrchr(path, '/');
    TRY(document_read(a, path, &root, err));
    return plan_parse(a, root, slash ? arena_strndup(a, path, (size_t)(slash - path) + 1) : ".",
                      out, err);
}

/* --- writing --- */

/* The calls with one space between. */
static void write_order(FILE *out, const char *order)
{
    static const char spaces[] = " \t\r\n,";
    fputc('"', out);
    for (const char *t = order + strspn(order, spaces); *t; t += strspn(t, spaces)) {
        size_t length = strcspn(t, spaces);
        for (size_t i = 0; i < length; i++) {
            if (t[i] == '"' || t[i] == '\\') fputc('\\', out);
            fputc(t[i], out);
        }
        t += length;
        if (t[strspn(t, spaces)]) fputc(' ', out);
    }
    fputc('"', out);
}

static void write_device(FILE *out, const struct plan *p, int32_t device)
{
    if (device >= 0 && device < p->cluster.n_devices)
        canonical_text(out, p->cluster.devices[device].name);
    else
        fprintf(out, "%" PRId32, device);
}

static void write_devices(FILE *out, const struct plan *p, const struct plan_stage *s)
{
    if (s->n_shards < 1) {
        fputs("device: ", out);
        write_device(out, p, s->device);
        return;
    }
    fputs("devices: [", out);
    for (int32_t k = 0; k < s->n_shards; k++) {
        if (k) fputs(", ", out);
        write_device(out, p, s->devices[k]);
    }
    fputs("]", out);
    if (s->sharding) return;
    fputs(", sequences: [", out);
    for (int32_t k = 0; k < s->n_shards; k++)
        fprintf(out, "%s%" PRId64, k ? ", " : "", s->sequences[k]);
    fputc(']', out);
}

static void write_settings(FILE *out, const struct plan_stage *s, const char *between)
{
    plan_write_activations(out, s, between);
    if (s->bucket_bytes > 0) {
        fprintf(out, "%sbucket: ", between);
        canonical_quantity(out, QUANTITY_BYTES, (double)s->bucket_bytes);
    }
    if (s->zero) fprintf(out, "%szero: %" PRId32, between, s->zero);
    if (s->hybrid_shard) fprintf(out, "%shybrid_shard: true", between);
    if (s->all_reduce) fprintf(out, "%sall_reduce: %s", between, collective_algorithm_name(s->all_reduce));
}

/* The same in lines, because what follows has many. */
static void write_sharded(FILE *out, struct arena *a, const struct plan *p,
                          const struct plan_stage *s)
{
    int32_t ahead = s->receive_ahead > 0 ? s->receive_ahead : 1;
    fprintf(out, "      - layers: [%" PRId32 ", %" PRId32 "]\n        ", s->first_layer,
            s->last_layer);
    write_devices(out, p, s);
    if (s->order)
        fputs("\n        order: ", out), write_order(out, s->order);
    else if (s->warmup)
        fprintf(out, "\n        warmup: %" PRId32, s->warmup);
    write_settings(out, s, "\n        ");
    if (ahead != RECEIVE_AHEAD_DEFAULT) fprintf(out, "\n        receive_ahead: %" PRId32, ahead);
    fprintf(out, "\n        sharding:\n%s", sharding_write(a, s->sharding, 10));
}

static void write_stage(FILE *out, const struct plan *p, const struct plan_stage *s)
{
    int32_t ahead = s->receive_ahead > 0 ? s->receive_ahead : 1;
    fprintf(out, "      - {layers: [%" PRId32 ", %" PRId32 "], ", s->first_layer, s->last_layer);
    write_devices(out, p, s);
    if (s->order)
        fputs(", order: ", out), write_order(out, s->order);
    else if (s->warmup)
        fprintf(out, ", warmup: %" PRId32, s->warmup);
    write_settings(out, s, ", ");
    if (ahead != RECEIVE_AHEAD_DEFAULT) fprintf(out, ", receive_ahead: %" PRId32, ahead);
    fputs("}\n", out);
}

static void write_replica(FILE *out, struct arena *a, const struct plan *p,
                          const struct plan_replica *r)
{
    fprintf(out, "  - microbatches: %" PRId32 "\n", r->microbatches);
    if (r->schedule) {
        fputs("    schedule: ", out);
        canonical_text(out, r->schedule);
        fputc('\n', out);
    }
    if (r->split) fputs("    split: true\n", out);
    if (r->orders) fputs("    orders:\n", out);
    for (int32_t i = 0; r->orders && i < r->n_stages; i++) {
        if (!r->orders[i]) continue;
        fputs("      ", out);
        canonical_text(out, p->cluster.devices[r->stages[i].device].name);
        fputs(": ", out);
        write_order(out, r->orders[i]);
        fputc('\n', out);
    }
    fputs("    stages:\n", out);
    for (int32_t i = 0; i < r->n_stages; i++)
        if (r->stages[i].sharding)
            write_sharded(out, a, p, &r->stages[i]);
        else
            write_stage(out, p, &r->stages[i]);
}

void plan_write_executed(FILE *out, struct arena *a, const struct plan *p)
{
    fprintf(out, "microbatch: %" PRId64 "\ndeterministic: %s\nsteps: %" PRId32 "\n%s", p->microbatch, p->deterministic ? "true" : "false",
            p->steps > 0 ? p->steps : 1, p->gradient_noise_scale ? "gradient_noise_scale: true\n" : "");
    if (plan_delays_gradients(p)) fprintf(out, "weight_versions: %" PRId32 "\n", p->weight_versions);
    plan_write_compression(out, p);
    plan_write_local_sgd(out, p);
    plan_write_servers(out, p);
    plan_write_experts(out, p);
    fputs("replicas:\n", out);
    for (int32_t r = 0; r < p->n_replicas; r++) write_replica(out, a, p, &p->replicas[r]);
    fputs("job:\n", out);
    job_write(out, a, &p->job, 2);
    fputs("cluster:\n", out);
    cluster_write(out, &p->cluster, 2);
}

void plan_write(FILE *out, struct arena *a, const struct plan *p)
{
    fputs("version: 1\nname: ", out);
    canonical_text(out, p->name && *p->name ? p->name : "plan");
    fprintf(out, "\nmade_by: {musher: " MUSHER_VERSION ", profile: %" PRId64 ", seed: %" PRIu64,
            p->profile_id, p->seed);
    if (p->predicted_ns > 0) fprintf(out, ", predicted_ns: %" PRId64, p->predicted_ns);
    fputs("}\n", out);
    plan_write_executed(out, a, p);
}
