/* core/plan/describe.c - short descriptions of plans: every replica of a small one, every class of a large one. */
#include "core/base/arena.h"
#include "core/base/ranges.h"
#include "core/base/text.h"
#include "core/base/units.h"
#include "core/plan/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A stage of more devices names them by ranges, and so do classes of replicas; a list has so many runs. */
enum { DEVICES_ONE_BY_ONE = 4, RUNS_SHOWN = 4 };

/* How the replica's devices take their turns, where the stages do not say. */
static void describe_order(FILE *out, const struct plan_replica *r)
{
    if (r->schedule) fprintf(out, "%s%s ", r->schedule, r->split ? " split" : "");
    if (r->orders) fputs("ordered ", out);
}

static const char *device_name(const struct plan *p, const struct plan_stage *s, int32_t k)
{
    int32_t device = plan_stage_device(s, k);
    return device >= 0 && device < p->cluster.n_devices ? p->cluster.devices[device].name : "?";
}

static const struct device_type *type_at(const struct plan *p, const struct plan_stage *s,
                                         int32_t k)
{
    int32_t device = plan_stage_device(s, k);
    bool there = device >= 0 && device < p->cluster.n_devices;
    return there ? &p->cluster.types[p->cluster.devices[device].type] : NULL;
}

static int32_t tensor_parallel(const struct plan *p, const struct plan_stage *s)
{
    const struct device_type *t = type_at(p, s, 0);
    if (sharding_tensor_degree(s->sharding) > 1) return s->n_shards;
    return t && t->tensor_parallel > 1 ? t->tensor_parallel : 1;
}

/* The tensor-parallel degree of all the replica's stages, 0 where they differ. */
static int32_t one_degree(const struct plan *p, const struct plan_replica *r)
{
    int32_t degree = r->n_stages ? tensor_parallel(p, &r->stages[0]) : 1;
    for (int32_t i = 1; i < r->n_stages; i++)
        if (tensor_parallel(p, &r->stages[i]) != degree) return 0;
    return degree;
}

static bool same_sequences(const struct plan_stage *s)
{
    for (int32_t k = 1; s->sequences && k < plan_stage_devices(s); k++)
        if (s->sequences[k] != s->sequences[0]) return false;
    return true;
}

static void describe_devices(FILE *out, struct arena *scratch, const struct plan *p,
                             const struct plan_stage *s)
{
    int32_t n = plan_stage_devices(s);
    bool one_by_one = n <= DEVICES_ONE_BY_ONE || !same_sequences(s);
    const char **names = ARENA_ARRAY(scratch, const char *, (size_t)n);
    for (int32_t k = 0; k < n; k++) {
        names[k] = device_name(p, s, k);
        if (!one_by_one) continue;
        fprintf(out, "%s%s", k ? "+" : "", names[k]);
        if (s->sequences) fprintf(out, "×%" PRId64, s->sequences[k]);
    }
    if (one_by_one) return;
    fputs(ranges_of_names(scratch, names, (size_t)n, RUNS_SHOWN), out);
    if (s->sequences) fprintf(out, "×%" PRId64 " each", s->sequences[0]);
}

/* What of a stage is not the default. warmup: the default's. */
static void describe_settings(FILE *out, const struct plan_stage *s, int32_t warmup)
{
    if (s->sharding && sharding_tensor_degree(s->sharding) < 2) fputs(" sharding operators", out);
    if (s->order) fputs(" ordered", out);
    if (s->warmup && s->warmup != warmup) fprintf(out, " w%" PRId32, s->warmup);
    if (s->recompute) fputs(" recompute", out);
    if (s->recompute == RECOMPUTE_BLOCKS) fputs(" of blocks", out);
    if (s->recompute == RECOMPUTE_SELECTIVE) fputs(" of attention", out);
    if (s->zero) fprintf(out, " zero %" PRId32, s->zero);
    char bucket[32];
    if (s->bucket_bytes)
        fprintf(out, " bucket %s", units_print_bytes(bucket, (double)s->bucket_bytes));
}

static bool same_text(const char *a, const char *b) { return a == b || (a && b && !strcmp(a, b)); }

static int32_t type_of(const struct plan *p, const struct plan_stage *s, int32_t k)
{
    int32_t device = plan_stage_device(s, k);
    return device >= 0 && device < p->cluster.n_devices ? p->cluster.devices[device].type : -1;
}

static bool same_stage(const struct plan *p, const struct plan_stage *a, const struct plan_stage *b)
{
    if (a->first_layer != b->first_layer || a->last_layer != b->last_layer ||
        a->n_shards != b->n_shards || !same_text(a->order, b->order) || a->warmup != b->warmup ||
        a->recompute != b->recompute || a->zero != b->zero || a->bucket_bytes != b->bucket_bytes ||
        a->receive_ahead != b->receive_ahead || !a->sharding != !b->sharding ||
        (a->sharding && !sharding_equal(a->sharding, b->sharding)))
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
    for (int32_t r = 0; r < p->n_replicas; r++) {
        int32_t k = p->n_replicas > PLAN_REPLICAS_ONE_BY_ONE ? 0 : n;
        while (k < n && !same_shape(p, &p->replicas[found[k].replicas[0]], &p->replicas[r])) k++;
        if (k == n) {
            size_t room =
                k || p->n_replicas > PLAN_REPLICAS_ONE_BY_ONE ? (size_t)(p->n_replicas - r) : 1;
            found[n++] = (struct plan_class){.replicas = ARENA_ARRAY(a, int32_t, room)};
        }
        found[k].replicas[found[k].n++] = r;
    }
    *out = found;
    return n;
}

/* "588 × zb-h2 split " */
static void describe_head(FILE *out, const struct plan_replica *r)
{
    fprintf(out, "%" PRId32 " × ", r->microbatches);
    describe_order(out, r);
}

static int32_t default_warmup(const struct plan_replica *r, int32_t stage)
{
    int32_t behind = r->n_stages - stage;
    return behind < r->microbatches ? behind : r->microbatches;
}

/* The tensor-parallel degree stands in front where one holds for all stages. */
static void describe_replica(FILE *out, struct arena *scratch, const struct plan *p,
                             const struct plan_replica *r)
{
    int32_t degree = one_degree(p, r);
    describe_head(out, r);
    if (degree > 1) fprintf(out, "tp %" PRId32 " ", degree);
    fputc('[', out);
    for (int32_t i = 0; i < r->n_stages; i++) {
        const struct plan_stage *s = &r->stages[i];
        fprintf(out, "%s%" PRId32 "-%" PRId32 " ", i ? " | " : "", s->first_layer, s->last_layer);
        describe_devices(out, scratch, p, s);
        if (!degree) fprintf(out, " tp %" PRId32, tensor_parallel(p, s));
        describe_settings(out, s, default_warmup(r, i));
    }
    fputc(']', out);
}

/* The type of a stage's devices; NULL where they differ. */
static const char *one_type(const struct plan *p, const struct plan_stage *s)
{
    const struct device_type *first = type_at(p, s, 0);
    for (int32_t k = 1; k < plan_stage_devices(s); k++)
        if (type_at(p, s, k) != first) return NULL;
    return first ? first->name : NULL;
}

/* "h100 tp 4 × 2 devices recompute": what stages of a class have besides their layers. */
static const char *stage_kind(struct arena *a, const struct plan *p, const struct plan_replica *r,
                              int32_t i)
{
    struct text text;
    const struct plan_stage *s = &r->stages[i];
    FILE *out = text_begin(&text);
    int32_t n = plan_stage_devices(s), degree = tensor_parallel(p, s);
    const char *type = one_type(p, s);
    fputs(type ? type : "devices of several types", out);
    if (degree > 1) fprintf(out, " tp %" PRId32, degree);
    if (n > 1 && degree < 2) fprintf(out, " × %" PRId32 " devices", n);
    describe_settings(out, s, default_warmup(r, i));
    return text_end(a, &text, NULL);
}

static int32_t layers_of(const struct plan_stage *s) { return s->last_layer - s->first_layer + 1; }

/* "h100 tp 4: 0-2 | 3-78 in 19 stages | 79-83; v100: …": stages of one kind stand together, equal ones that follow each other as
 * one. */
static void describe_stages(FILE *out, struct arena *scratch, const struct plan *p,
                            const struct plan_replica *r)
{
    const char *last = "";
    for (int32_t i = 0, end; i < r->n_stages; i = end) {
        const struct plan_stage *s = r->stages;
        const char *kind = stage_kind(scratch, p, r, i);
        for (end = i + 1; end < r->n_stages && layers_of(&s[end]) == layers_of(&s[i]) &&
                          !strcmp(stage_kind(scratch, p, r, end), kind);)
            end++;
        if (end - i == 2) end--;
        if (strcmp(kind, last) != 0)
            fprintf(out, "%s%s: ", i ? "; " : "", kind);
        else
            fputs(" | ", out);
        last = kind;
        fprintf(out, "%" PRId32 "-%" PRId32, s[i].first_layer, s[end - 1].last_layer);
        if (end - i > 1) fprintf(out, " in %" PRId32 " stages", end - i);
    }
}

static const char *devices_of(struct arena *a, const struct plan *p, const struct plan_class *x,
                              size_t *n)
{
    size_t capacity = 0;
    const char **names = NULL;
    *n = 0;
    for (int32_t k = 0; k < x->n; k++)
        for (int32_t i = 0; i < p->replicas[x->replicas[k]].n_stages; i++) {
            const struct plan_stage *s = &p->replicas[x->replicas[k]].stages[i];
            for (int32_t d = 0; d < plan_stage_devices(s); d++) {
                names = arena_grow(a, names, *n, &capacity, sizeof *names);
                names[(*n)++] = device_name(p, s, d);
            }
        }
    return ranges_of_names(a, names, *n, RUNS_SHOWN);
}

static void describe_class(FILE *out, struct arena *scratch, const struct plan *p,
                           const struct plan_class *x)
{
    const struct plan_replica *r = &p->replicas[x->replicas[0]];
    size_t n = 0;
    fprintf(out, "replica%s %s: ", x->n > 1 ? "s" : "",
            ranges_of_numbers(scratch, x->replicas, (size_t)x->n, RUNS_SHOWN));
    describe_head(out, r);
    fputc('[', out);
    describe_stages(out, scratch, p, r);
    const char *devices = devices_of(scratch, p, x, &n);
    fprintf(out, "] on %zu devices %s", n, devices);
}

const char **plan_describe_classes(struct arena *a, const struct plan *p, int32_t *n)
{
    struct arena *scratch = arena_new();
    struct plan_class *classes;
    *n = plan_classes(scratch, p, &classes);
    const char **lines = ARENA_ARRAY(a, const char *, (size_t)*n + 1);
    for (int32_t i = 0; i < *n; i++) {
        struct text text;
        FILE *out = text_begin(&text);
        if (p->n_replicas > PLAN_REPLICAS_ONE_BY_ONE)
            describe_class(out, scratch, p, &classes[i]);
        else
            describe_replica(out, scratch, p, &p->replicas[i]);
        lines[i] = text_end(a, &text, NULL);
    }
    arena_free(scratch);
    return lines;
}

const char *plan_describe_replica(struct arena *a, const struct plan *p, int32_t replica)
{
    struct text text;
    struct arena *scratch = arena_new();
    describe_replica(text_begin(&text), scratch, p, &p->replicas[replica]);
    arena_free(scratch);
    return text_end(a, &text, NULL);
}

const char *plan_describe(struct arena *a, const struct plan *p)
{
    struct text text;
    int32_t n;
    struct arena *scratch = arena_new();
    const char **lines = plan_describe_classes(scratch, p, &n);
    FILE *out = text_begin(&text);
    fprintf(out, "%" PRId32 " replica%s: ", p->n_replicas, p->n_replicas == 1 ? "" : "s");
    for (int32_t i = 0; i < n; i++) fprintf(out, "%s%s", i ? ", " : "", lines[i]);
    arena_free(scratch);
    return text_end(a, &text, NULL);
}
