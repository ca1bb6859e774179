/* core/plan/describe.c - a plan in a few words: every replica of a small one, every shape of a large one. */
#include "core/base/arena.h"
#include "core/base/text.h"
#include "core/base/units.h"
#include "core/plan/internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { REPLICAS_ONE_BY_ONE = 8 };

/* Replicas that differ in their devices alone. */
struct alike {
    int32_t first, last, n; /* first and last replica of it; how many */
};

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

static void describe_devices(FILE *out, const struct plan *p, const struct plan_stage *s,
                             const struct plan_stage *last)
{
    for (int32_t k = 0; k < plan_stage_devices(s); k++) {
        fprintf(out, "%s%s", k ? "+" : "", device_name(p, s, k));
        if (last != s) fprintf(out, " … %s", device_name(p, last, k));
        if (s->sequences) fprintf(out, "×%" PRId64, s->sequences[k]);
    }
    if (s->sharding) fputs(" sharing operators", out);
}

/* warmup: the default, which goes without saying. */
static void describe_stage(FILE *out, const struct plan *p, const struct plan_stage *s,
                           const struct plan_stage *last, int32_t warmup)
{
    fprintf(out, "%" PRId32 "-%" PRId32 " ", s->first_layer, s->last_layer);
    describe_devices(out, p, s, last);
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
        a->receive_ahead != b->receive_ahead || a->sharding != b->sharding)
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

/* Shapes in order of first appearance; of few replicas each is one of its own. O(replicas · shapes). */
static int32_t find_shapes(struct arena *a, const struct plan *p, struct alike **out)
{
    int32_t n = 0;
    struct alike *found = ARENA_ARRAY(a, struct alike, (size_t)p->n_replicas);
    for (int32_t r = 0; r < p->n_replicas; r++) {
        int32_t k = p->n_replicas > REPLICAS_ONE_BY_ONE ? 0 : n;
        while (k < n && !same_shape(p, &p->replicas[found[k].first], &p->replicas[r])) k++;
        if (k == n) found[n++] = (struct alike){.first = r};
        found[k].last = r;
        found[k].n++;
    }
    *out = found;
    return n;
}

static void describe_shape(FILE *out, const struct plan *p, const struct alike *x)
{
    const struct plan_replica *r = &p->replicas[x->first], *last = &p->replicas[x->last];
    if (x->n > 1) fprintf(out, "%" PRId32 " of ", x->n);
    fprintf(out, "%" PRId32 " × ", r->microbatches);
    describe_order(out, r);
    fputc('[', out);
    for (int32_t i = 0; i < r->n_stages; i++) {
        if (i) fputs(" | ", out);
        int32_t behind = r->n_stages - i, most = r->microbatches;
        describe_stage(out, p, &r->stages[i], &last->stages[i], behind < most ? behind : most);
    }
    fputc(']', out);
}

const char *plan_describe(struct arena *a, const struct plan *p)
{
    struct text text;
    FILE *out = text_begin(&text);
    struct arena *scratch = arena_new();
    struct alike *shapes;
    int32_t n = find_shapes(scratch, p, &shapes);
    fprintf(out, "%" PRId32 " replica%s: ", p->n_replicas, p->n_replicas == 1 ? "" : "s");
    for (int32_t i = 0; i < n; i++) {
        if (i) fputs(", ", out);
        describe_shape(out, p, &shapes[i]);
    }
    arena_free(scratch);
    return text_end(a, &text, NULL);
}
