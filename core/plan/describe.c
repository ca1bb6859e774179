/* core/plan/describe.c - short descriptions of plans: classes of equal replicas, runs of equal stages. */
#include "core/base/arena.h"
#include "core/base/ranges.h"
#include "core/base/text.h"
#include "core/base/units.h"
#include "core/plan/internal.h"

#include <inttypes.h>
#include <string.h>

/* FOLDED: so many equal stages in a row are one entry. RUNS_SHOWN of a class's devices, SHARES_SHOWN of a microbatch one by one.
 * NAMES_MAX bytes: longer lists of devices are counts. */
enum { FOLDED = 3, RUNS_SHOWN = 4, SHARES_SHOWN = 8, NAMES_MAX = 60 };

/* What of a stage is not the default; NULL: the default. SHARING: how its GPUs share the work, "tensor", "batch 3+1". */
enum setting {
    SETTING_SHARING,
    SETTING_ORDER,
    SETTING_WARMUP,
    SETTING_RECOMPUTE,
    SETTING_OFFLOAD,
    SETTING_ZERO,
    SETTING_ALL_REDUCE,
    SETTING_BUCKET,
    SETTING_COUNT
};

static const struct device_type *type_at(const struct plan *p, const struct plan_stage *s,
                                         int32_t k)
{
    static const struct device_type unknown = {.name = "?"};
    int32_t device = plan_stage_device(s, k);
    bool there = device >= 0 && device < p->cluster.n_devices;
    return there ? &p->cluster.types[p->cluster.devices[device].type] : &unknown;
}

static const char *device_name(const struct plan *p, const struct plan_stage *s, int32_t k)
{
    int32_t device = plan_stage_device(s, k);
    return device >= 0 && device < p->cluster.n_devices ? p->cluster.devices[device].name : "?";
}

static int32_t default_warmup(const struct plan_replica *r, int32_t stage)
{
    int32_t behind = r->n_stages - stage;
    return behind < r->microbatches ? behind : r->microbatches;
}

static void settings_of(struct arena *a, const struct plan_replica *r, int32_t stage,
                        const char *out[SETTING_COUNT])
{
    const struct plan_stage *s = &r->stages[stage];
    char bucket[32];
    static const char *const recomputes[] = {[RECOMPUTE_STAGE] = "recompute",
                                             [RECOMPUTE_BLOCKS] = "recompute of blocks",
                                             [RECOMPUTE_SELECTIVE] = "recompute of attention"};
    if (s->order) out[SETTING_ORDER] = "ordered";
    if (s->warmup && s->warmup != default_warmup(r, stage))
        out[SETTING_WARMUP] = arena_printf(a, "warm-up %" PRId32, s->warmup);
    if (s->recompute) out[SETTING_RECOMPUTE] = recomputes[s->recompute];
    if (s->recompute_blocks)
        out[SETTING_RECOMPUTE] = arena_printf(a, "recompute of %" PRId32 " blocks", s->recompute_blocks);
    if (s->offload) out[SETTING_OFFLOAD] = "activations offloaded";
    if (s->zero)
        out[SETTING_ZERO] = arena_printf(a, "zero %" PRId32 "%s", s->zero, s->hybrid_shard ? " inside nodes" : "");
    if (s->all_reduce) out[SETTING_ALL_REDUCE] = arena_printf(a, "%s all-reduce", collective_algorithm_name(s->all_reduce));
    if (s->bucket_bytes)
        out[SETTING_BUCKET] =
            arena_printf(a, "bucket %s", units_print_bytes(bucket, (double)s->bucket_bytes));
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

static int32_t type_of(const struct plan *p, const struct plan_stage *s, int32_t k)
{
    int32_t device = plan_stage_device(s, k);
    return device >= 0 && device < p->cluster.n_devices ? p->cluster.devices[device].type : -1;
}

static bool same_sharding(const struct sharding *a, const struct sharding *b)
{
    return a == b || (a && b && sharding_equal(a, b));
}

static bool same_stage(const struct plan *p, const struct plan_stage *a, const struct plan_stage *b)
{
    if (a->first_layer != b->first_layer || a->last_layer != b->last_layer ||
        a->n_shards != b->n_shards || !same_text(a->order, b->order) || a->warmup != b->warmup ||
        a->recompute != b->recompute || a->recompute_blocks != b->recompute_blocks || a->offload != b->offload || a->zero != b->zero || a->hybrid_shard != b->hybrid_shard || a->all_reduce != b->all_reduce || a->bucket_bytes != b->bucket_bytes ||
        a->receive_ahead != b->receive_ahead || !same_sharding(a->sharding, b->sharding))
        return false;
    for (int32_t k = 0; k < plan_stage_devices(a); k++)
        if (type_of(p, a, k) != type_of(p, b, k) ||
            (a->sequences && b->sequences && a->sequences[k] != b->sequences[k]))
            return false;
    return true;
}

static bool same_shape(const struct plan *p, const struct plan_replica *a,
                       const struct plan_replica *b)
{
    if (a->microbatches != b->microbatches || a->n_stages != b->n_stages || a->split != b->split ||
        !same_text(a->schedule, b->schedule) || !a->orders != !b->orders)
        return false;
    for (int32_t i = 0; i < a->n_stages; i++)
        if (!same_stage(p, &a->stages[i], &b->stages[i]) ||
            (a->orders && !same_text(a->orders[i], b->orders[i])))
            return false;
    return true;
}

/* O(replicas · classes). */
int32_t plan_classes(struct arena *a, const struct plan *p, struct plan_class **out)
{
    int32_t n = 0;
    struct plan_class *found = ARENA_ARRAY(a, struct plan_class, (size_t)p->n_replicas);
    size_t *capacity = ARENA_ARRAY(a, size_t, (size_t)p->n_replicas);
    for (int32_t r = 0; r < p->n_replicas; r++) {
        int32_t k = 0;
        while (k < n && !same_shape(p, &p->replicas[found[k].replicas[0]], &p->replicas[r])) k++;
        if (k == n) {
            found[n++] = (struct plan_class){0};
            capacity[k] = 0;
        }
        struct plan_class *x = &found[k];
        x->replicas = arena_grow(a, x->replicas, (size_t)x->n, &capacity[k], sizeof *x->replicas);
        x->replicas[x->n++] = r;
    }
    *out = found;
    return n;
}

/* --- stages --- */

/* What stages must have in common to stand together: everything but layers and devices' names. */
struct stage_text {
    const char *counts; /* "8 a100", "1 h100 + 2 a100" */
    const char *settings[SETTING_COUNT];
    int32_t devices;
};

/* Sequences of a microbatch on each device: "batch 4+2", "batch 2 each". */
static const char *shares_text(struct arena *a, const struct plan_stage *s)
{
    int64_t least = s->sequences[0], most = s->sequences[0];
    const char *text = "batch ";
    for (int32_t k = 0; k < s->n_shards; k++) {
        least = s->sequences[k] < least ? s->sequences[k] : least;
        most = s->sequences[k] > most ? s->sequences[k] : most;
        if (s->n_shards <= SHARES_SHOWN)
            text = arena_printf(a, "%s%s%" PRId64, text, k ? "+" : "", s->sequences[k]);
    }
    if (least == most) return arena_printf(a, "batch %" PRId64 " each", least);
    return s->n_shards <= SHARES_SHOWN
               ? text
               : arena_printf(a, "batch %" PRId64 " to %" PRId64, least, most);
}

/* NULL: one device. */
static const char *sharing_text(struct arena *a, const struct plan_stage *s)
{
    if (s->sharding) return sharding_kind(a, s->sharding);
    return s->n_shards > 0 && s->sequences ? shares_text(a, s) : NULL;
}

/* GPUs by type, in the order of each type's first device. */
static const char *counts_text(struct arena *a, const struct plan *p, const struct plan_stage *s)
{
    const char *text = "";
    for (int32_t k = 0; k < plan_stage_devices(s); k++) {
        const char *name = type_at(p, s, k)->name;
        int64_t gpus = 0;
        bool first = true;
        for (int32_t i = 0; i < k && first; i++)
            first = strcmp(type_at(p, s, i)->name, name) != 0;
        if (!first) continue;
        for (int32_t i = k; i < plan_stage_devices(s); i++)
            if (!strcmp(type_at(p, s, i)->name, name)) gpus++;
        text = arena_printf(a, "%s%s%" PRId64 " %s", text, *text ? " + " : "", gpus, name);
    }
    return text;
}

static struct stage_text stage_text(struct arena *a, const struct plan *p,
                                    const struct plan_replica *r, int32_t stage)
{
    const struct plan_stage *s = &r->stages[stage];
    struct stage_text x = {.counts = counts_text(a, p, s), .devices = plan_stage_devices(s)};
    x.settings[SETTING_SHARING] = sharing_text(a, s);
    settings_of(a, r, stage, x.settings);
    return x;
}

static bool same_stage_text(const struct stage_text *x, const struct stage_text *y)
{
    for (int k = 0; k < SETTING_COUNT; k++)
        if (!same_text(x->settings[k], y->settings[k])) return false;
    return x->devices == y->devices && !strcmp(x->counts, y->counts);
}

static int32_t layers_of(const struct plan_stage *s) { return s->last_layer - s->first_layer + 1; }

/* "0-4, 5-60 in 7 stages" of stages first … end - 1. */
static void describe_layers(FILE *out, const struct plan_stage *s, int32_t first, int32_t end)
{
    for (int32_t i = first, next; i < end; i = next) {
        next = i + 1;
        while (next < end && layers_of(&s[next]) == layers_of(&s[i])) next++;
        if (next - i < FOLDED) next = i + 1;
        fprintf(out, "%s%" PRId32, i > first ? ", " : "", s[i].first_layer);
        if (s[next - 1].last_layer > s[i].first_layer)
            fprintf(out, "-%" PRId32, s[next - 1].last_layer);
        if (next - i > 1) fprintf(out, " in %" PRId32 " stages", next - i);
    }
}

/* Names in the order of the stages, ascending ones as ranges: "n0-1.0-7, m.3". */
static const char *names_text(struct arena *a, const struct plan *p, const struct plan_stage *s,
                              int32_t n)
{
    size_t count = 0, capacity = 0;
    const char **names = NULL, *text = "";
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < plan_stage_devices(&s[i]); k++) {
            names = arena_grow(a, names, count, &capacity, sizeof *names);
            names[count++] = device_name(p, &s[i], k);
        }
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && strverscmp(names[end - 1], names[end]) < 0;) end++;
        text = arena_printf(a, "%s%s%s", text, i ? ", " : "",
                            ranges_of_names(a, names + i, end - i, SIZE_MAX));
    }
    return text;
}

/* "8 a100 each", or, if named and short enough, "n0-6.0-7, 8 each". */
static void describe_devices(FILE *out, struct arena *a, const struct plan *p,
                             const struct plan_stage *s, int32_t n, const struct stage_text *x,
                             size_t names_max)
{
    const char *names = names_max ? names_text(a, p, s, n) : NULL;
    if (!names || strlen(names) > names_max)
        fprintf(out, "%s%s", x->counts, n > 1 ? " each" : "");
    else if (n > 1 && x->devices > 1)
        fprintf(out, "%s, %" PRId32 " each", names, x->devices);
    else
        fputs(names, out);
}

/* Settings other than the hidden ones; those of a stage beside its devices. */
static void describe_settings(FILE *out, const char *const settings[SETTING_COUNT],
                              const char *const hidden[SETTING_COUNT], bool of_stage)
{
    for (int k = 0; k < SETTING_COUNT; k++)
        if (settings[k] && !(hidden && hidden[k]))
            fprintf(out,
                    k != SETTING_SHARING ? ", %s"
                    : of_stage           ? " (%s)"
                                         : ", sharded (%s)",
                    settings[k]);
}

/* The settings that all stages have. */
static void common_settings(const struct stage_text *x, int32_t n, const char *out[SETTING_COUNT])
{
    for (int k = 0; k < SETTING_COUNT; k++) {
        out[k] = n ? x[0].settings[k] : NULL;
        for (int32_t i = 1; i < n; i++)
            if (!same_text(out[k], x[i].settings[k])) out[k] = NULL;
    }
}

static struct stage_text *stage_texts(struct arena *a, const struct plan *p,
                                      const struct plan_replica *r)
{
    struct stage_text *x = ARENA_ARRAY(a, struct stage_text, (size_t)r->n_stages + 1);
    for (int32_t i = 0; i < r->n_stages; i++) x[i] = stage_text(a, p, r, i);
    return x;
}

/* ", zb-h1 split, zero 1: layers 0-4, 5-60 in 7 stages on 8 a100 each (tensor) | 61-72 on 4 h100". What all of several stages have
 * stands in front, of several GPUs as "sharded (tensor)". names_max 0: no names; else the longest list of them, and every stage by
 * itself if there is no limit. hidden: settings that are printed elsewhere; may be NULL. */
static void describe_replica(FILE *out, struct arena *a, const struct plan *p,
                             const struct plan_replica *r, size_t names_max,
                             const char *const hidden[SETTING_COUNT])
{
    const struct stage_text *x = stage_texts(a, p, r);
    const char *common[SETTING_COUNT] = {0};
    if (r->n_stages > 1) common_settings(x, r->n_stages, common);
    if (r->schedule) fprintf(out, ", %s%s", r->schedule, r->split ? " split" : "");
    if (r->orders) fputs(", ordered", out);
    describe_settings(out, common, hidden, false);
    for (int k = 0; k < SETTING_COUNT; k++)
        if (hidden && hidden[k]) common[k] = hidden[k];
    for (int32_t i = 0, end; i < r->n_stages; i = end) {
        for (end = i + 1;
             names_max < SIZE_MAX && end < r->n_stages && same_stage_text(&x[i], &x[end]);)
            end++;
        fputs(i ? " | " : ": layers ", out);
        describe_layers(out, r->stages, i, end);
        fputs(" on ", out);
        describe_devices(out, a, p, &r->stages[i], end - i, &x[i], names_max);
        describe_settings(out, x[i].settings, common, true);
    }
}

/* --- plans --- */

/* The settings that all stages of all classes have. */
static void plan_settings(struct arena *a, const struct plan *p, const struct plan_class *classes,
                          int32_t n, const char *out[SETTING_COUNT])
{
    struct stage_text *x = ARENA_ARRAY(a, struct stage_text, (size_t)n + 1);
    for (int32_t i = 0; i < n; i++) {
        const struct plan_replica *r = &p->replicas[classes[i].replicas[0]];
        common_settings(stage_texts(a, p, r), r->n_stages, x[i].settings);
    }
    common_settings(x, n, out);
}

const char **plan_describe_classes(struct arena *a, const struct plan *p, int32_t *n,
                                   const char **common)
{
    struct arena *scratch = arena_new();
    struct plan_class *classes;
    struct text text;
    const char *settings[SETTING_COUNT] = {0};
    *n = plan_classes(scratch, p, &classes);
    const char **lines = ARENA_ARRAY(a, const char *, (size_t)*n + 1);
    if (common && *n > 1) plan_settings(scratch, p, classes, *n, settings);
    if (common) {
        describe_settings(text_begin(&text), settings, NULL, false);
        *common = text_end(a, &text, NULL);
    }
    for (int32_t i = 0; i < *n; i++) {
        const struct plan_replica *r = &p->replicas[classes[i].replicas[0]];
        FILE *out = text_begin(&text);
        fprintf(out, "%" PRId32 " replica%s of %" PRId32 " microbatch%s", classes[i].n,
                classes[i].n == 1 ? "" : "s", r->microbatches, r->microbatches == 1 ? "" : "es");
        describe_replica(out, scratch, p, r, classes[i].n > 1 ? 0 : NAMES_MAX, settings);
        lines[i] = text_end(a, &text, NULL);
    }
    arena_free(scratch);
    return lines;
}

const char *plan_class_devices(struct arena *a, const struct plan *p, const struct plan_class *x,
                               size_t *n)
{
    struct arena *scratch = arena_new();
    size_t capacity = 0;
    const char **names = NULL;
    *n = 0;
    for (int32_t k = 0; k < x->n; k++)
        for (int32_t i = 0; i < p->replicas[x->replicas[k]].n_stages; i++) {
            const struct plan_stage *s = &p->replicas[x->replicas[k]].stages[i];
            for (int32_t d = 0; d < plan_stage_devices(s); d++) {
                names = arena_grow(scratch, names, *n, &capacity, sizeof *names);
                names[(*n)++] = device_name(p, s, d);
            }
        }
    const char *text = ranges_of_names(a, names, *n, RUNS_SHOWN);
    arena_free(scratch);
    return text;
}

const char *plan_describe_replica(struct arena *a, const struct plan *p, int32_t replica)
{
    struct text text;
    const struct plan_replica *r = &p->replicas[replica];
    struct arena *scratch = arena_new();
    FILE *out = text_begin(&text);
    fprintf(out, "replica %" PRId32 " of %" PRId32 " microbatch%s", replica, r->microbatches,
            r->microbatches == 1 ? "" : "es");
    describe_replica(out, scratch, p, r, SIZE_MAX, NULL);
    arena_free(scratch);
    return text_end(a, &text, NULL);
}

const char *plan_describe(struct arena *a, const struct plan *p)
{
    struct text text;
    int32_t n;
    struct arena *scratch = arena_new();
    const char **lines = plan_describe_classes(scratch, p, &n, NULL);
    FILE *out = text_begin(&text);
    const char *local = plan_describe_local_sgd(scratch, &p->local_sgd.outer, p->local_sgd.n_islands);
    if (local) fprintf(out, "local SGD %s: ", local);
    const char *servers = plan_describe_servers(scratch, &p->servers.rule);
    if (servers) fprintf(out, "parameter server %s: ", servers);
    const char *versions = plan_describe_versions(scratch, p);
    if (versions) fprintf(out, "%s: ", versions);
    for (int of = 0; of < COMPRESSIONS; of++) {
        const char *compressed = plan_describe_compressor(scratch, &p->compression, of);
        if (compressed) fprintf(out, "%s: ", compressed);
    }
    for (int32_t i = 0; i < n; i++) fprintf(out, "%s%s", i ? "; " : "", lines[i]);
    arena_free(scratch);
    return text_end(a, &text, NULL);
}
