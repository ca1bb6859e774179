#include "planner/baseline/baseline.h"

#include "core/base/arena.h"
#include "core/base/ranges.h"
#include "core/cluster/topology.h"

#include <stdio.h>

#define MIB (INT64_C(1) << 20)
enum { APART_SHOWN = 6 }; /* runs of device names in a message */

/* --- common to all families --- */

static int32_t devices_of(const struct baseline_task *k, int32_t degree)
{
    return k->degrees[degree].n;
}

/* One replica per device. */
static struct baseline_setting replicas(const struct baseline_task *k, int32_t size)
{
    return (struct baseline_setting){.size = size,
                            .stages = 1,
                            .replicas = devices_of(k, 0),
                            .chunks = 1,
                            .cut = CUT_EVEN};
}

/* Rejects a family that needs at least two devices. */
static bool alone(struct baseline_task *k, const char *what)
{
    if (devices_of(k, 0) > 1) return false;
    snprintf(k->why, sizeof k->why, "a single device %s", what);
    return true;
}

/* Bucket size: a fraction of the largest stage's parameters, at least 64 KiB. */
static enum status part_bytes(struct baseline_task *k, const struct baseline_setting *x, int64_t parts,
                              int64_t *out, struct error *err)
{
    struct space *s;
    TRY(baseline_space(k, x->size, &s, err));
    int32_t type = baseline_type(k, x, 0);
    if (type < 0) type = s->cluster->devices[0].type;
    *out = space_stage_type(s, type, 0, s->n_layers - 1)->parameter_bytes / x->stages / parts;
    if (*out < 65536) *out = 65536;
    return OK;
}

/* Adds the setting with each bucket: fractions of the parameters, then absolute sizes. */
static enum status with_buckets(struct baseline_task *k, struct baseline_setting x, const int64_t *parts,
                                int32_t n_parts, const int64_t *sizes, int32_t n_sizes,
                                struct error *err)
{
    for (int32_t i = 0; i < n_parts; i++) {
        TRY(part_bytes(k, &x, parts[i], &x.bucket_bytes, err));
        TRY(baseline_add(k, x, err));
    }
    for (int32_t i = 0; i < n_sizes; i++) {
        x.bucket_bytes = sizes[i];
        TRY(baseline_add(k, x, err));
    }
    return OK;
}

/* --- one replica a device --- */

static enum status data_parallel(struct baseline_task *k, struct error *err)
{
    for (int32_t i = 0; i < k->n_sizes; i++) TRY(baseline_add(k, replicas(k, i), err));
    return OK;
}

static enum status ddp(struct baseline_task *k, struct error *err)
{
    static const int64_t parts[] = {2, 4, 8}, sizes[] = {25 * MIB}; /* torch's default */
    if (alone(k, "has no gradients to all-reduce")) return OK;
    for (int32_t i = 0; i < k->n_sizes; i++)
        TRY(with_buckets(k, replicas(k, i), parts, 3, sizes, 1, err));
    return OK;
}

/* The greatest common divisor of the numbers of GPUs on the nodes that have some (core/lower/hybrid.h). */
static int32_t node_part(const struct baseline_task *k)
{
    int32_t part = 0, *here = ARENA_ARRAY(k->arena, int32_t, (size_t)k->cluster->n_nodes);
    for (int32_t i = 0; i < k->degrees[0].n; i++) here[k->cluster->devices[k->degrees[0].first[i]].node]++;
    for (int32_t n = 0; n < k->cluster->n_nodes; n++) part = units_gcd(here[n], part);
    return part;
}

/* Data parallel with buckets of these sizes; 0: all gradients at once, behind the backward. */
static enum status bucketed(struct baseline_task *k, bool is_hierarchical, const int64_t *sizes, int32_t n_sizes, struct error *err)
{
    if (alone(k, "has no gradients to all-reduce")) return OK;
    for (int32_t i = 0; i < k->n_sizes; i++) {
        struct baseline_setting x = replicas(k, i);
        x.hierarchical = is_hierarchical;
        TRY(with_buckets(k, x, NULL, 0, sizes, n_sizes, err));
    }
    return OK;
}

static const int64_t fusion_buffers[] = {0, 64 * MIB, 128 * MIB};

static enum status horovod_ring(struct baseline_task *k, struct error *err) { return bucketed(k, false, fusion_buffers, 3, err); }

/* Plans of measured layers do not state which devices share a node (planner/candidate/robust.h). */
static bool without_nodes(struct baseline_task *k)
{
    if (k->job->model.measured) snprintf(k->why, sizeof k->why, "plans of measured layers do not state which devices share a node");
    return k->job->model.measured;
}

static enum status hierarchical(struct baseline_task *k, struct error *err)
{
    int32_t part = node_part(k);
    if (without_nodes(k)) return OK;
    if (part == k->degrees[0].n) snprintf(k->why, sizeof k->why, "all devices are on one node: horovod-ring");
    if (part < 2) snprintf(k->why, sizeof k->why, "the nodes' numbers of GPUs have no common divisor above 1");
    return part < 2 || part == k->degrees[0].n ? OK : bucketed(k, true, fusion_buffers, 3, err);
}

/* NcclAllReduce's default, one pack; the packs of bytes_per_pack in the documentation of tf.distribute's CommunicationOptions. */
static enum status tf_mirrored(struct baseline_task *k, struct error *err)
{
    static const int64_t sizes[] = {0, 50 * MIB};
    return bucketed(k, false, sizes, 2, err);
}

/* part: as in a setting */
static enum status divided(struct baseline_task *k, int32_t zero, int32_t part, const int64_t *parts,
                           int32_t n_parts, bool whole, struct error *err)
{
    static const int64_t layers[] = {0};
    if (alone(k, "has no replicas to shard over")) return OK;
    if (k->t->o->no_zero) {
        snprintf(k->why, sizeof k->why, "ZeRO is left out of this search");
        return OK;
    }
    for (int32_t i = 0; i < k->n_sizes; i++) {
        struct baseline_setting x = replicas(k, i);
        x.zero = zero, x.part = part;
        TRY(with_buckets(k, x, parts, n_parts, layers, whole, err));
    }
    return OK;
}

static enum status zero_1(struct baseline_task *k, struct error *err)
{
    static const int64_t parts[] = {2, 4, 8};
    return divided(k, 1, 0, parts, 3, true, err);
}

static enum status zero_2(struct baseline_task *k, struct error *err)
{
    static const int64_t parts[] = {4, 8};
    return divided(k, 2, 0, parts, 2, true, err);
}

static enum status zero_3(struct baseline_task *k, struct error *err)
{
    static const int64_t parts[] = {2, 4, 8};
    return divided(k, 3, 0, parts, 3, true, err);
}

/* One layer, and two layers (a block). */
static enum status fully_sharded(struct baseline_task *k, int32_t part, struct error *err)
{
    struct space *s;
    TRY(baseline_space(k, 0, &s, err));
    int64_t parts[] = {s->n_layers > 2 ? s->n_layers / 2 : 1};
    return divided(k, 3, part, parts, 1, true, err);
}

static enum status fsdp(struct baseline_task *k, struct error *err) { return fully_sharded(k, 0, err); }

static enum status hsdp(struct baseline_task *k, struct error *err)
{
    int32_t part = node_part(k);
    if (without_nodes(k)) return OK;
    if (part == k->degrees[0].n) snprintf(k->why, sizeof k->why, "all devices are on one node: fsdp");
    if (part < 2) snprintf(k->why, sizeof k->why, "the nodes' numbers of GPUs have no common divisor above 1");
    return part < 2 || part == k->degrees[0].n ? OK : fully_sharded(k, part, err);
}

/* --- pipelines --- */

static enum status even_pipeline(struct baseline_task *k, struct error *err)
{
    for (int32_t i = 0; i < k->n_sizes; i++) {
        struct baseline_setting x = replicas(k, i);
        x.stages = x.replicas, x.replicas = 1;
        TRY(baseline_add(k, x, err));
    }
    return OK;
}

/* Both assignments of devices (listed, strided), if they differ. */
static enum status both_places(struct baseline_task *k, struct baseline_setting x, struct error *err)
{
    TRY(baseline_add(k, x, err));
    if (x.stages == 1 || x.replicas == 1) return OK;
    x.strided = true;
    return baseline_add(k, x, err);
}

/* Calls `family` for every division of n devices into equal pipelines of at least `least` stages. */
typedef enum status part_family(struct baseline_task *k, struct baseline_setting x, struct error *err);

static enum status all_parts(struct baseline_task *k, int32_t degree, int32_t least,
                             part_family *family, struct error *err)
{
    int32_t n = devices_of(k, degree);
    for (int32_t i = 0; i < k->n_sizes; i++)
        for (int32_t p = least; p <= n; p++) {
            if (n % p) continue;
            struct baseline_setting x = replicas(k, i);
            x.degree = degree, x.stages = p, x.replicas = n / p;
            TRY(family(k, x, err));
        }
    return OK;
}

static enum status gpipe_part(struct baseline_task *k, struct baseline_setting x, struct error *err)
{
    x.cut = CUT_BALANCED, x.gpipe = true;
    TRY(both_places(k, x, err));
    x.recompute = RECOMPUTE_STAGE;
    return both_places(k, x, err);
}

static enum status gpipe(struct baseline_task *k, struct error *err)
{
    if (alone(k, "is no pipeline")) return OK;
    return all_parts(k, 0, 2, gpipe_part, err);
}

static enum status megatron_part(struct baseline_task *k, struct baseline_setting x, struct error *err)
{
    for (x.chunks = 1; x.chunks <= 4; x.chunks *= 2) {
        if (x.chunks > 1 && x.stages == 1) break;
        x.zero = 0, x.bucket_bytes = 0;
        if (x.replicas > 1) TRY(part_bytes(k, &x, 4, &x.bucket_bytes, err));
        TRY(both_places(k, x, err));
        if (x.replicas == 1 || k->t->o->no_zero) continue;
        x.zero = 1; /* Megatron's distributed optimizer */
        TRY(both_places(k, x, err));
    }
    return OK;
}

static enum status on_degrees(struct baseline_task *k, part_family *family, struct error *err)
{
    for (int32_t d = 0; d < k->n_degrees; d++) TRY(all_parts(k, d, 1, family, err));
    return OK;
}

static enum status megatron(struct baseline_task *k, struct error *err)
{
    return on_degrees(k, megatron_part, err);
}

static enum status alpa_part(struct baseline_task *k, struct baseline_setting x, struct error *err)
{
    struct space *s;
    TRY(baseline_space(k, x.size, &s, err));
    x.cut = CUT_COARSE;
    for (x.coarse = 8; x.coarse <= 16; x.coarse *= 2) {
        if (x.coarse > s->n_layers) x.coarse = s->n_layers;
        TRY(both_places(k, x, err));
        if (x.coarse == s->n_layers) break;
    }
    return OK;
}

static enum status alpa_coarse(struct baseline_task *k, struct error *err)
{
    return on_degrees(k, alpa_part, err);
}

bool baseline_apart(struct arena *a, const struct cluster *c, struct search_result *out)
{
    int32_t *part = ARENA_ARRAY(a, int32_t, (size_t)c->n_devices + 1), largest = 0;
    int32_t parts = topology_parts(a, c, part);
    int32_t *size = ARENA_ARRAY(a, int32_t, (size_t)parts + 1);
    const char **names = ARENA_ARRAY(a, const char *, (size_t)c->n_devices + 1);
    size_t n = 0;
    if (parts <= 1) return false;
    for (int32_t d = 0; d < c->n_devices; d++) size[part[d]]++;
    for (int32_t k = 1; k < parts; k++)
        if (size[k] > size[largest]) largest = k;
    for (int32_t d = 0; d < c->n_devices; d++)
        if (part[d] != largest) names[n++] = c->devices[d].name;
    for (int32_t i = 0; i < out->n_baselines; i++)
        out->baselines[i].why =
            arena_printf(a, "uses all devices, but no link joins %s to the others",
                         ranges_of_names(a, names, n, APART_SHOWN));
    return true;
}

/* --- the table --- */

#define harp_published NULL
#define hap NULL
static const struct {
    const char *name;
    baseline_family *settings;
} table[] = {
#define X(id, name, help) {name, id},
    BASELINES(X)
#undef X
};
#undef hap
#undef harp_published

int32_t baseline_count(void) { return (int32_t)(sizeof table / sizeof *table); }
const char *baseline_name(int32_t i) { return table[i].name; }
baseline_family *baseline_settings(int32_t i) { return table[i].settings; }
